package sections

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// FaultResult is the result of one fault, with one subject in one cell.
type FaultResult struct {
	Series string       `json:"series"`
	Cell   records.Cell `json:"cell"`
	// Fault is the step and its fault, "5:fault flush nat". Holds is the planned duration in seconds; 0: instant.
	Fault    string  `json:"fault"`
	Duration float64 `json:"duration,omitempty"`
	// Times is the number of repetitions with the fault.
	Times int `json:"times"`
	// Detected counts from the fault. raw.FaultRepaired defines the start of Repaired. Never counts repetitions
	// without a recovery within Waited, in seconds.
	Detected  *estimate.Distribution `json:"detected,omitempty"`
	Recovered *estimate.Distribution `json:"recovered,omitempty"`
	Never     int                    `json:"never,omitempty"`
	Waited    float64                `json:"waited,omitempty"`
	Why       string                 `json:"why,omitempty"` // the first recovery that failed
	// Of the flows of the stream between fault and recovery.
	Outcomes
}

// faultResults has one entry for each cell, fault and series, in the order of the steps.
func faultResults(c *records.Collection) []FaultResult {
	var out []FaultResult
	for _, cell := range c.Cells {
		names := map[string]bool{}
		for _, s := range c.Series {
			if samples := s.Cells[cell.ID()]; samples != nil {
				for _, name := range records.FaultsIn(samples) {
					names[name] = true
				}
			}
		}
		for _, name := range scenarios.SortedSteps(names) {
			for _, s := range c.Series {
				samples := s.Cells[cell.ID()]
				if samples == nil || !slices.Contains(records.FaultsIn(samples), name) {
					continue
				}
				result := ResultOfFault(samples, name)
				result.Series, result.Cell = s.Name, cell
				out = append(out, result)
			}
		}
	}
	return out
}

// faultSpan is a fault of one repetition, until the recovery, the end of the wait, or the start of the next fault.
type faultSpan struct {
	of       records.Repetition
	from, to float64
}

func ResultOfFault(c *records.Samples, name string) FaultResult {
	f := FaultResult{Fault: name}
	var spans []faultSpan
	detected, repaired := estimate.Sample{}, estimate.Sample{}
	for _, r := range c.Records {
		if r.Fault != name {
			continue
		}
		switch r.Metric {
		case raw.FaultDuration:
			f.Times++
			f.Duration = r.Value
			spans = append(spans, faultSpan{records.Repetition{Run: r.Run, Rep: r.Rep}, r.At, math.Inf(1)})
		case raw.FaultDetected:
			if r.Error == "" {
				detected.Add(estimate.Sample{records.Repetition{Run: r.Run, Rep: r.Rep}: {r.Value}})
			}
		case raw.FaultRepaired:
			if r.Error != "" {
				f.Never++
				f.Waited, f.Why = max(f.Waited, r.Value), cmp.Or(f.Why, r.Error)
				break
			}
			repaired.Add(estimate.Sample{records.Repetition{Run: r.Run, Rep: r.Rep}: {r.Value}})
		}
	}
	f.Detected, f.Recovered = described(detected), described(repaired)
	for i := range spans {
		spans[i].to = faultEnd(c, name, spans[i])
	}
	for _, r := range c.Records {
		if r.Metric == raw.Flow && within(spans, r) {
			f.count(r.Outcome)
		}
	}
	return f
}

// faultEnd is the time of the recovery from a fault. Without a recovery, it is the end of the wait or the start of the
// next fault.
func faultEnd(c *records.Samples, name string, span faultSpan) float64 {
	end := math.Inf(1)
	for _, r := range c.Records {
		if (records.Repetition{Run: r.Run, Rep: r.Rep}) != span.of {
			continue
		}
		switch {
		case r.Metric == raw.FaultRepaired && r.Fault == name:
			return r.At // its value may count from the fault's end
		case r.Metric == raw.FaultDuration && r.At > span.from:
			end = min(end, r.At)
		}
	}
	return end
}

// within reports whether a flow began between a fault and the recovery. One that began before is left out: mostly an
// earlier fault made it fail. The time of its record is when it was due.
func within(spans []faultSpan, r records.Record) bool {
	return slices.ContainsFunc(spans, func(s faultSpan) bool {
		return s.of == records.Repetition{Run: r.Run, Rep: r.Rep} && r.At >= s.from && r.At <= s.to
	})
}

// FaultText is a fault's display name without its step: "flush nat".
func FaultText(name string) string {
	_, what := scenarios.StepOf(name)
	return cmp.Or(strings.TrimSpace(strings.TrimPrefix(what, "fault")), name)
}

// NumberedFault is a fault's display name in a list of steps: "5 flush nat".
func NumberedFault(name string) string {
	number, _ := scenarios.StepOf(name)
	if number == 0 {
		return FaultText(name)
	}
	return strconv.Itoa(number) + " " + FaultText(name)
}

// InvariantResult counts the checks of one invariant, with one subject over all cells.
type InvariantResult struct {
	Series     string `json:"series"`
	Invariant  string `json:"invariant"`
	Checked    int    `json:"invariant_checks"`
	Violations int    `json:"violations"`
	// First describes the first violation, and how to repeat it.
	First string `json:"first,omitempty"`
}

// invariantTexts has a short text for each invariant.
var invariantTexts = map[string]string{
	"I1":  "after any event, the rules equal the rules of a full sync by a new proxier",
	"I2":  "no black hole: if an endpoint is ready, a new flow reaches one",
	"I3":  "no wrong delivery: only endpoints of the old or the new set",
	"I4":  "no endpoints: refused at once, or dropped where that is the policy",
	"I5":  "a failed restore leaves each table in its old or its desired state",
	"I6":  "once faults end, the subject converges by itself",
	"I7":  "foreign rules and chains stay untouched",
	"I8":  "own stale chains are removed, and nothing leaks",
	"I9":  "TCP connections survive; UDP flows leave removed endpoints",
	"I10": "endpoints get equal shares",
	"I11": "healthz fails while the rules are wrong",
	"I12": "metrics match the actual state",
	"I13": "a restart causes no gap and no needless change",
	"I14": "health check NodePorts: each address and family answers, with the ready endpoints of this node",
	"I15": "packets to changed Services: they go to the endpoints of the API's objects",
}

// FaultName is a fault's display name among others. It has the step if another has the same name: "flush nat (step 14)".
func FaultName(name string, among []string) string {
	text := FaultText(name)
	number, _ := scenarios.StepOf(name)
	same := func(other string) bool { return other != name && FaultText(other) == text }
	if number > 0 && slices.ContainsFunc(among, same) {
		text += " (step " + strconv.Itoa(number) + ")"
	}
	return text
}

// InvariantText names an invariant with the beginning of its text: "I3 (no wrong delivery)".
func InvariantText(name string) string {
	text, _, _ := strings.Cut(invariantTexts[name], ":")
	return strings.TrimSuffix(name+" ("+text+")", " ()")
}

// mostOfViolation is the most characters of a violation's text, in a line that names the invariant and the subject too.
const mostOfViolation = raw.LineLength - 60

// invariantResults has one entry for each invariant and series, by number.
func invariantResults(c *records.Collection) []InvariantResult {
	var out []InvariantResult
	for _, s := range c.Series {
		found := map[string]*InvariantResult{}
		for _, cell := range c.Cells {
			samples := s.Cells[cell.ID()]
			if samples == nil {
				continue
			}
			for _, r := range samples.Records {
				if r.Metric != raw.InvariantChecks && r.Metric != raw.Violation {
					continue
				}
				if found[r.Invariant] == nil {
					found[r.Invariant] = &InvariantResult{Series: s.Name, Invariant: r.Invariant}
				}
				one := found[r.Invariant]
				if r.Metric == raw.InvariantChecks {
					one.Checked += int(r.Value)
					continue
				}
				one.Violations += int(r.Value)
				one.First = cmp.Or(one.First, raw.Brief(r.Error, mostOfViolation))
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
		return slices.IndexFunc(c.Series, func(s *records.Series) bool { return s.Name == r.Series })
	}
	slices.SortFunc(out, func(a, b InvariantResult) int { return cmp.Or(order(a)-order(b), place(a)-place(b)) })
	return out
}
