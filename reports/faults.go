package reports

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"synclab/bench"
	"synclab/reports/estimate"
)

// FaultResult is what became of one fault, with one subject in one cell.
type FaultResult struct {
	Series string `json:"series"`
	Cell   Cell   `json:"cell"`
	// Fault is the step and what was done, "5:fault flush nat"; Holds is how long it holds by plan, 0: done at once.
	Fault string  `json:"fault"`
	Holds float64 `json:"holds,omitempty"`
	// Times is in how many repetitions it was done.
	Times int `json:"times"`
	// Detected is counted from the fault; what Repaired is counted from, bench.FaultRepaired says. Never is how often it was not repaired within Waited, in seconds.
	Detected *estimate.Distribution `json:"detected,omitempty"`
	Repaired *estimate.Distribution `json:"repaired,omitempty"`
	Never    int                    `json:"never,omitempty"`
	Waited   float64                `json:"waited,omitempty"`
	Why      string                 `json:"why,omitempty"` // of the first that was not
	// Flows are those of the stream between fault and repair, Failed and Misrouted of them what they say.
	Flows     int `json:"flows"`
	Failed    int `json:"failed"`
	Misrouted int `json:"misrouted"`
}

// faultResults has one entry for each cell, fault and series, in the order of the steps.
func faultResults(c *collection) []FaultResult {
	var out []FaultResult
	for _, cell := range c.cells {
		names := map[string]bool{}
		for _, s := range c.series {
			if samples := s.cells[cell.id()]; samples != nil {
				for _, name := range samples.faultNames() {
					names[name] = true
				}
			}
		}
		for _, name := range sortedSteps(names) {
			for _, s := range c.series {
				samples := s.cells[cell.id()]
				if samples == nil || !slices.Contains(samples.faultNames(), name) {
					continue
				}
				result := samples.faultResult(name)
				result.Series, result.Cell = s.name, cell
				out = append(out, result)
			}
		}
	}
	return out
}

// faultNames are the faults of a cell that have a beginning.
func (c *cellSamples) faultNames() []string {
	var out []string
	for _, r := range c.records {
		if r.Metric == bench.FaultBegun && !slices.Contains(out, r.Fault) {
			out = append(out, r.Fault)
		}
	}
	return out
}

// faultSpan is a fault of one repetition, from its moment until it was repaired, or was given up, or the next began.
type faultSpan struct {
	of       repetition
	from, to float64
}

func (c *cellSamples) faultResult(name string) FaultResult {
	f := FaultResult{Fault: name}
	var spans []faultSpan
	detected, repaired := estimate.Sample{}, estimate.Sample{}
	for _, r := range c.records {
		if r.Fault != name {
			continue
		}
		switch r.Metric {
		case bench.FaultBegun:
			f.Times++
			f.Holds = r.Value
			spans = append(spans, faultSpan{repetition{Run: r.run, Rep: r.Rep}, r.At, math.Inf(1)})
		case bench.FaultDetected:
			if r.Error == "" {
				detected.Add(estimate.Sample{repetition{Run: r.run, Rep: r.Rep}: {r.Value}})
			}
		case bench.FaultRepaired:
			if r.Error != "" {
				f.Never++
				f.Waited, f.Why = max(f.Waited, r.Value), cmp.Or(f.Why, r.Error)
				break
			}
			repaired.Add(estimate.Sample{repetition{Run: r.run, Rep: r.Rep}: {r.Value}})
		}
	}
	f.Detected, f.Repaired = described(detected), described(repaired)
	for i := range spans {
		spans[i].to = c.faultEnd(name, spans[i])
	}
	for _, r := range c.records {
		if r.Metric == bench.Flow && within(spans, r) {
			f.count(r.Outcome)
		}
	}
	return f
}

// faultEnd is when a fault was repaired; of one that never was, when it was given up.
func (c *cellSamples) faultEnd(name string, span faultSpan) float64 {
	end := math.Inf(1)
	for _, r := range c.records {
		if (repetition{Run: r.run, Rep: r.Rep}) != span.of {
			continue
		}
		switch {
		case r.Metric == bench.FaultRepaired && r.Fault == name:
			return r.At // its value may count from the fault's end
		case r.Metric == bench.FaultBegun && r.At > span.from:
			end = min(end, r.At)
		}
	}
	return end
}

// within says whether a flow was under way between a fault and its repair.
func within(spans []faultSpan, r taggedRecord) bool {
	return slices.ContainsFunc(spans, func(s faultSpan) bool {
		return s.of == repetition{Run: r.run, Rep: r.Rep} && flowEnd(r.Record) >= s.from && r.At <= s.to
	})
}

// flowEnd is when a flow was answered, or had failed: its record is as of when it was due.
func flowEnd(r *bench.Record) float64 { return r.At + r.Value }

func (f *FaultResult) count(outcome string) {
	f.Flows++
	switch outcome {
	case "":
	case misrouted:
		f.Misrouted++
	default:
		f.Failed++
	}
}

// faultText is a fault for people: "5 flush nat".
func faultText(name string) string {
	index, what := stepOf(name)
	what = strings.TrimSpace(strings.TrimPrefix(what, "fault"))
	if index == 0 || what == "" {
		return cmp.Or(what, name)
	}
	return strconv.Itoa(index) + " " + what
}

// InvariantResult is what was looked at for one invariant, with one subject over all cells.
type InvariantResult struct {
	Series     string `json:"series"`
	Invariant  string `json:"invariant"`
	Checked    int    `json:"checked"`
	Violations int    `json:"violations"`
	// First says what was wrong first, and how to see it again.
	First string `json:"first,omitempty"`
}

// invariantTexts say the invariants in a few words.
var invariantTexts = map[string]string{
	"I1":  "after anything, the rules equal those of a full sync of a fresh proxier",
	"I2":  "no black hole: where an endpoint is ready, a new flow reaches one",
	"I3":  "no wrong delivery: only endpoints of the old or the new set",
	"I4":  "no endpoints: refused at once, or dropped where that is the policy",
	"I5":  "a failed restore leaves each table as it was or as it should be",
	"I6":  "once faults end, in sync again by itself",
	"I7":  "foreign rules and chains stay untouched",
	"I8":  "own stale chains go, and nothing leaks",
	"I9":  "TCP connections survive; UDP flows leave endpoints that are gone",
	"I10": "endpoints get equal shares",
	"I11": "healthz says so while the rules are not what they should be",
	"I12": "metrics say what is",
	"I13": "a restart makes no gap and no needless change",
}

// invariantResults has one entry for each invariant and series, by number.
func invariantResults(c *collection) []InvariantResult {
	var out []InvariantResult
	for _, s := range c.series {
		found := map[string]*InvariantResult{}
		for _, cell := range c.cells {
			samples := s.cells[cell.id()]
			if samples == nil {
				continue
			}
			for _, r := range samples.records {
				if r.Metric != bench.Checked && r.Metric != bench.Violation {
					continue
				}
				if found[r.Invariant] == nil {
					found[r.Invariant] = &InvariantResult{Series: s.name, Invariant: r.Invariant}
				}
				one := found[r.Invariant]
				if r.Metric == bench.Checked {
					one.Checked += int(r.Value)
					continue
				}
				one.Violations += int(r.Value)
				one.First = cmp.Or(one.First, r.Error)
			}
		}
		for _, one := range found {
			out = append(out, *one)
		}
	}
	order := func(r InvariantResult) int {
		n, _ := strconv.Atoi(strings.TrimPrefix(r.Invariant, "I"))
		return n
	}
	place := func(r InvariantResult) int {
		return slices.IndexFunc(c.series, func(s *series) bool { return s.name == r.Series })
	}
	slices.SortFunc(out, func(a, b InvariantResult) int { return cmp.Or(order(a)-order(b), place(a)-place(b)) })
	return out
}
