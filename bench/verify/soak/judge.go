package soak

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"synclab/bench/fault"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// The kinds of failures.
const (
	Violated  = "violation" // an invariant was violated
	Misrouted = "misrouted" // a flow reached a wrong endpoint
	Lost      = "lost"      // a flow failed while no active fault may lose flows
	Unsettled = "unsettled" // the subject did not converge, or exceeded a budget
	Broken    = "broken"    // the run broke off: the subject or Synclab exited unexpectedly
)

// Failure is a failure of a run.
type Failure struct {
	Kind      string  `json:"kind"`
	Invariant string  `json:"invariant,omitempty"`
	Step      string  `json:"step,omitempty"` // "12:check"
	At        float64 `json:"at,omitempty"`   // seconds since the run began
	Service   string  `json:"service,omitempty"`
	Error     string  `json:"error,omitempty"`
	Count     int     `json:"count"` // number of failures of the same kind and invariant; this is the first
}

func (f Failure) String() string {
	parts := []string{f.Kind}
	for _, part := range []string{f.Invariant, f.Service, f.Error} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	end := ""
	if f.Step != "" {
		end += fmt.Sprintf(" (step %s, after %.1f s)", f.Step, f.At)
	}
	if f.Count > 1 {
		end += fmt.Sprintf(" and %d more", f.Count-1)
	}
	return raw.Brief(strings.Join(parts, " "), raw.LineLength-len(end)) + end
}

// like reports whether two failures are the same, as far as a smaller scenario can show it.
func (f Failure) like(other Failure) bool {
	return f.Kind == other.Kind && f.Invariant == other.Invariant && (f.Kind != Broken || plainError(f.Error) == plainError(other.Error))
}

// atStep matches, in an error, the step at which a run broke off.
var atStep = regexp.MustCompile(`step (\d+:\w+): `)

// plainError removes the step and all numbers from an error, because they differ between scenarios.
func plainError(text string) string {
	if at := atStep.FindStringIndex(text); at != nil {
		text = text[at[1]:]
	}
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r >= '0' && r <= '9' }), "0")
}

// brokeAt returns the step at which a run broke off: from the error, or else from the last record.
func brokeAt(text string, records []raw.Record) string {
	if found := atStep.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	if n := len(records); n > 0 {
		return records[n-1].Step
	}
	return ""
}

// Outcome is the result of a run.
type Outcome struct {
	Totals   Totals
	Failures []Failure // the first of each kind and invariant, with their number
}

// add adds a failure, or its count (0 means 1) to that of the same failure.
func (o *Outcome) add(f Failure) {
	f.Count = max(1, f.Count)
	if i := slices.IndexFunc(o.Failures, f.like); i >= 0 {
		o.Failures[i].Count += f.Count
		return
	}
	o.Failures = append(o.Failures, f)
}

// Judge evaluates the records of a scenario's run. broke is the error that ended the run early, or nil.
func Judge(s *scenarios.Scenario, records []raw.Record, broke error) Outcome {
	o := Outcome{Totals: Totals{Scenarios: 1, Faults: map[string]int{}}}
	windows := losses(s, records)
	for _, r := range records {
		o.count(s, r, windows)
		switch r.Metric {
		case raw.Violation:
			o.add(Failure{Kind: Violated, Invariant: r.Invariant, Step: r.Step, At: r.At, Service: r.Service, Error: r.Error, Count: int(r.Value)})
		case raw.Exceeded:
			o.add(Failure{Kind: Unsettled, Step: r.Step, At: r.At, Error: r.Error})
		case raw.Flow, raw.LongLivedFlow:
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

// astray returns the kind of a flow's failure; "" if it did not fail.
func astray(r raw.Record, windows []window) string {
	switch {
	case r.Outcome == "":
		return ""
	case r.Outcome == Misrouted && r.Metric == raw.LongLivedFlow && slices.ContainsFunc(windows, func(w window) bool { return w.full && w.holds(r) }):
		return ""
	case r.Outcome == Misrouted:
		return Misrouted
	case slices.ContainsFunc(windows, func(w window) bool { return w.holds(r) }):
		return ""
	}
	return Lost
}

func flowText(r raw.Record) string {
	text := fmt.Sprintf("%s %s after %.0f ms", strings.ToLower(r.Protocol), r.Outcome, r.Value*1000)
	if r.Metric == raw.LongLivedFlow {
		text = "long-lived " + text
	}
	if r.Error != "" {
		text += ": " + r.Error
	}
	return strings.TrimSpace(text)
}

// window is a period in which flows may fail, in seconds since the run began.
type window struct {
	from, to float64
	// full: the conntrack table is full. A cleanup then scans the whole table, which takes seconds. Until then a
	// long-lived UDP flow keeps its old endpoint.
	full bool
}

// holds reports whether a flow overlapped the window. A record's At is the flow's scheduled time or its end, so the
// flow lies within its duration of At.
func (w window) holds(r raw.Record) bool {
	return r.At+r.Value >= w.from && r.At-r.Value <= w.to
}

// losses returns the windows of a run. Each starts with a fault that may lose flows. It ends with the first settle step
// after the fault is over.
func losses(s *scenarios.Scenario, records []raw.Record) []window {
	began, settled := map[int]float64{}, map[int]float64{}
	for _, r := range records {
		step := fault.StepIndex(r.Step)
		if of := fault.StepIndex(r.Fault); r.Metric == raw.FaultDuration && of >= 0 {
			step = of
		}
		switch at, seen := began[step]; {
		case !seen || r.At < at:
			began[step] = r.At
		}
		if step >= 0 && step < len(s.Steps) && s.Steps[step].Settle != nil {
			settled[step] = max(settled[step], r.At) // a settle step writes its counts at its end
		}
	}
	var windows []window
	for i, step := range s.Steps {
		if step.Fault == nil || fault.Of(step.Fault.Kind).LosesFlows == "" {
			continue
		}
		w := window{from: startOf(i, s, began), to: forever, full: fault.Of(step.Fault.Kind).FillsConntrack}
		if end, ok := endOf(i, s, settled); ok {
			w.to = end
		}
		windows = append(windows, w)
	}
	return windows
}

const forever = 1e9 // seconds

// startOf returns the earliest start of a step: the time of its first record, or the latest time of the steps before
// it.
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

// endOf returns the end of the first settle step after fault i has ended.
func endOf(i int, s *scenarios.Scenario, settled map[int]float64) (float64, bool) {
	settle, ends := fault.LossEnds(s.Steps, i)
	at, ok := settled[settle]
	return at, ends && ok
}
