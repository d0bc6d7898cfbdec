package soak

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"synclab/bench"
	"synclab/scenarios"
)

// The kinds of failures.
const (
	Violated  = "violation" // of an invariant
	Misrouted = "misrouted" // a flow reached an endpoint that it may not reach
	Lost      = "lost"      // a flow failed, and no fault held that may lose flows
	Unsettled = "unsettled" // the subject did not get in sync, or exceeded a budget
	Broken    = "broken"    // the run broke off: the subject or the lab ended by itself
)

// Failure is what a run showed that must not be.
type Failure struct {
	Kind      string  `json:"kind"`
	Invariant string  `json:"invariant,omitempty"`
	Step      string  `json:"step,omitempty"` // "12:check"
	At        float64 `json:"at,omitempty"`   // seconds since the run began
	Service   string  `json:"service,omitempty"`
	Error     string  `json:"error,omitempty"`
	Count     int     `json:"count"` // how many of the same kind and invariant there were; this is the first
}

func (f Failure) String() string {
	parts := []string{f.Kind}
	for _, part := range []string{f.Invariant, f.Service, f.Error} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, " ")
	if f.Step != "" {
		text += fmt.Sprintf(" (step %s, after %.1f s)", f.Step, f.At)
	}
	if f.Count > 1 {
		text += fmt.Sprintf(" and %d more", f.Count-1)
	}
	return text
}

// like says whether two failures are of the same sort, as far as a smaller scenario can show the same one.
func (f Failure) like(other Failure) bool {
	return f.Kind == other.Kind && f.Invariant == other.Invariant && (f.Kind != Broken || plainError(f.Error) == plainError(other.Error))
}

// atStep finds the step that a run broke off at, in its error.
var atStep = regexp.MustCompile(`step (\d+:\w+): `)

// plainError is an error without where it happened and without numbers, which differ from one scenario to the next.
func plainError(text string) string {
	if at := atStep.FindStringIndex(text); at != nil {
		text = text[at[1]:]
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r >= '0' && r <= '9' }), "0")
}

// brokeAt is the step that a run broke off at: the error says it, or else the last record has it.
func brokeAt(text string, records []bench.Record) string {
	if found := atStep.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	if n := len(records); n > 0 {
		return records[n-1].Step
	}
	return ""
}

// stepIndex of a step's name "12:check", from 0; -1 when it names none.
func stepIndex(name string) int {
	n := 0
	_, _ = fmt.Sscanf(name, "%d:", &n)
	return n - 1
}

// Outcome is what a run came to.
type Outcome struct {
	Totals   Totals
	Failures []Failure // the first of each kind and invariant, with their number
}

// add notes a failure, as one more of its kind if there are some.
func (o *Outcome) add(f Failure) {
	if i := slices.IndexFunc(o.Failures, f.like); i >= 0 {
		o.Failures[i].Count++
		return
	}
	f.Count = 1
	o.Failures = append(o.Failures, f)
}

// Judge goes through the records of a run of a scenario. broke is why it ended early; nil: it did not.
func Judge(s *scenarios.Scenario, records []bench.Record, broke error) Outcome {
	o := Outcome{Totals: Totals{Scenarios: 1, Faults: map[string]int{}}}
	windows := losses(s, records)
	for _, r := range records {
		o.count(s, r, windows)
		switch r.Metric {
		case bench.Violation:
			o.add(Failure{Kind: Violated, Invariant: r.Invariant, Step: r.Step, At: r.At, Service: r.Service, Error: r.Error})
		case bench.Exceeded:
			o.add(Failure{Kind: Unsettled, Step: r.Step, At: r.At, Error: r.Error})
		case bench.Flow, bench.HeldFlow:
			if kind := astray(r, windows); kind != "" {
				o.add(Failure{Kind: kind, Step: r.Step, At: r.At, Service: r.Service, Error: flowText(r)})
			}
		}
	}
	if broke != nil {
		first, _, _ := strings.Cut(broke.Error(), "\n")
		o.add(Failure{Kind: Broken, Step: brokeAt(first, records), Error: first})
	}
	return o
}

// astray is the kind of failure that a flow is; "": none.
func astray(r bench.Record, windows []window) string {
	switch {
	case r.Outcome == "":
		return ""
	case r.Outcome == Misrouted && r.Metric == bench.HeldFlow && slices.ContainsFunc(windows, func(w window) bool { return w.full && w.holds(r) }):
		return ""
	case r.Outcome == Misrouted:
		return Misrouted
	case slices.ContainsFunc(windows, func(w window) bool { return w.holds(r) }):
		return ""
	}
	return Lost
}

func flowText(r bench.Record) string {
	text := fmt.Sprintf("%s %s after %.0f ms", strings.ToLower(r.Protocol), r.Outcome, r.Value*1000)
	if r.Metric == bench.HeldFlow {
		text = "held " + text
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return strings.TrimSpace(text)
}

// window is a time during which flows may fail, in seconds since the run began.
type window struct {
	from, to float64
	// full: the conntrack table is. Whoever cleans it walks through all of it, which takes seconds: until then a held UDP
	// flow stays where it was.
	full bool
}

// holds says whether a flow overlapped the window. Whether its record was made at its due time or at its end, the flow lies
// within its own length of At.
func (w window) holds(r bench.Record) bool {
	return r.At+r.Value >= w.from && r.At-r.Value <= w.to
}

// losses are the windows of a run: each from a fault that may lose flows to the end of the first settle step after which
// it no longer held.
func losses(s *scenarios.Scenario, records []bench.Record) []window {
	began, settled := map[int]float64{}, map[int]float64{}
	for _, r := range records {
		step := stepIndex(r.Step)
		if fault := stepIndex(r.Fault); r.Metric == bench.FaultBegun && fault >= 0 {
			step = fault
		}
		switch at, seen := began[step]; {
		case !seen || r.At < at:
			began[step] = r.At
		}
		if step >= 0 && step < len(s.Steps) && s.Steps[step].Settle != nil {
			settled[step] = max(settled[step], r.At) // what a settle step counts, it counts at its end
		}
	}
	var windows []window
	for i, step := range s.Steps {
		if step.Fault == nil || bench.LosesFlows(step.Fault.Kind) == "" {
			continue
		}
		w := window{from: startOf(i, s, began), to: forever, full: step.Fault.Kind == scenarios.FaultConntrackFull}
		if end, ok := endOf(i, s, settled); ok {
			w.to = end
		}
		windows = append(windows, w)
	}
	return windows
}

const forever = 1e9 // s

// startOf is when a step began at the earliest: at its first record, or at the last one of the steps before it.
func startOf(i int, s *scenarios.Scenario, began map[int]float64) float64 {
	if at, ok := began[i]; ok {
		return at
	}
	latest := 0.
	for j := range i {
		latest = max(latest, began[j])
	}
	return latest
}

// endOf is the end of the first settle step after fault i, and after what ends it if it holds.
func endOf(i int, s *scenarios.Scenario, settled map[int]float64) (float64, bool) {
	settle, ends := bench.LossEnds(s.Steps, i)
	at, ok := settled[settle]
	return at, ends && ok
}
