package sections

import (
	"strconv"

	"synclab/bench/raw"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// Disruption has the outcomes of new and of long-lived flows, for one subject in one cell.
type Disruption struct {
	Series string          `json:"series"`
	Cell   records.Cell    `json:"cell"`
	Steps  []DisruptedStep `json:"steps"`
	// Unwatched are flows, and packets of long-lived flows, that were not observed, or that failed together with flows
	// that bypass the rules: the machine was too busy. No other number counts them.
	Unwatched int `json:"unobserved,omitempty"`
}

// DisruptedStep is the part of the stream that was due during one step, or during the settle and check steps after it.
type DisruptedStep struct {
	Step  string `json:"step"`            // "4:churn"
	Fault string `json:"fault,omitempty"` // the fault, if the step is one
	// Rest marks the part of the stream before anything changed.
	Rest bool `json:"rest,omitempty"`
	Outcomes
	ByOutcome map[string]int `json:"by_outcome,omitempty"` // of flows without an answer from a permitted endpoint
	// FailedAtMost and MisroutedAtMost bound the shares, one-sided with 95 % confidence, if flows fail independently.
	FailedAtMost    float64 `json:"failed_at_most"`
	MisroutedAtMost float64 `json:"misrouted_at_most"`
	// Answered is the latency of answered flows, from the due time to the answer.
	Answered *estimate.Distribution `json:"answered,omitempty"`
	// AddedP99 is the 99th percentile minus the 99th percentile of the same stream at rest. It is the median of the
	// repetitions, with its interval.
	AddedP99     *float64 `json:"added_p99,omitempty"`
	AddedP99Low  *float64 `json:"added_p99_ci_low,omitempty"`
	AddedP99High *float64 `json:"added_p99_ci_high,omitempty"`
	// RemovedEndpointServing and NewEndpointDelay are times of endpoints, in seconds. LongLivedLeft is the time that
	// long-lived UDP flows stayed with a removed endpoint, in seconds.
	RemovedEndpointServing *estimate.Distribution `json:"removed_endpoint_serving,omitempty"`
	LongLivedLeft          *estimate.Distribution `json:"long_lived_left,omitempty"`
	NewEndpointDelay       *estimate.Distribution `json:"new_endpoint_delay,omitempty"`
	// AddedNotYet counts new endpoints that never answered while observed. AddedNotYetFor is the longest time for which
	// such an endpoint was observed.
	AddedNotYet    int     `json:"added_not_yet,omitempty"`
	AddedNotYetFor float64 `json:"added_not_yet_for,omitempty"`
	// The LongLived fields count recorded packets of long-lived flows; only some of the answered packets are recorded.
	// Broken packets got no answer from their endpoint (TCP). Removed packets still went to a removed endpoint (UDP).
	LongLivedTCP        int `json:"long_lived_tcp,omitempty"`
	LongLivedTCPBroken  int `json:"long_lived_tcp_broken,omitempty"`
	LongLivedUDP        int `json:"long_lived_udp,omitempty"`
	LongLivedUDPRemoved int `json:"long_lived_udp_on_removed,omitempty"`
	LongLivedUDPLost    int `json:"long_lived_udp_lost,omitempty"`
}

// Outcomes counts flows by their outcome.
type Outcomes struct {
	Flows     int `json:"flows"`
	Failed    int `json:"failed"` // refused, reset or timed out
	Misrouted int `json:"misrouted"`
}

func (o *Outcomes) count(outcome string) {
	o.Flows++
	switch outcome {
	case "":
	case records.Misrouted:
		o.Misrouted++
	default:
		o.Failed++
	}
}

// unwatched counts the flows and packets that timed out while flows that no rule concerns did too, or the stream had no CPU.
func unwatched(c *records.Samples) (n int) {
	for _, r := range c.Records {
		switch r.Metric {
		case raw.FlowsUnobserved:
			n += int(r.Value)
		case raw.ControlFailure:
			n++
		}
	}
	return n
}

// Disruptions has one entry for each series and cell with a stream.
func Disruptions(c *records.Collection) []Disruption {
	var out []Disruption
	for s, samples := range c.Each() {
		d := Disruption{Series: s.Name, Cell: samples.Cell, Unwatched: unwatched(samples)}
		if d.Unwatched > 0 || samples.Has(raw.Flow) || samples.Has(raw.LongLivedFlow) {
			d.Steps = DisruptedSteps(samples)
			out = append(out, d)
		}
	}
	return out
}

// StepOwners maps each step to the step that did the work. Settles and checks belong to the step before them.
func StepOwners(c *records.Samples) map[string]string {
	owners := map[string]string{}
	owner := ""
	for _, name := range c.Steps() {
		if _, kind := scenarios.StepOf(name); owner == "" || !scenarios.RoleOf(kind).Belongs() {
			owner = name
		}
		owners[name] = owner
	}
	return owners
}

func DisruptedSteps(c *records.Samples) []DisruptedStep {
	owners := StepOwners(c)
	steps := map[string]*DisruptedStep{}
	faults := map[string]string{}
	answered := map[string]estimate.Sample{}
	removed, left, waits := map[string]estimate.Sample{}, map[string]estimate.Sample{}, map[string]estimate.Sample{}
	for _, r := range c.Records {
		owner := owners[r.Step]
		if r.Metric == raw.FaultDuration {
			faults[owner] = r.Fault
		}
		if !ofStream(r.Metric) {
			continue
		}
		if steps[owner] == nil {
			steps[owner] = &DisruptedStep{Step: owner, ByOutcome: map[string]int{}}
		}
		step := steps[owner]
		switch r.Metric {
		case raw.Flow:
			step.flow(r.Outcome)
			if r.Outcome == "" {
				add(answered, owner, r)
			}
		case raw.LongLivedFlow:
			step.held(r.Protocol, r.Outcome)
		case raw.RemovedEndpointServing:
			into := removed
			if r.Method != "" {
				into = left
			}
			add(into, owner, r)
		case raw.NewEndpointDelay:
			if r.Outcome != "" {
				step.AddedNotYet, step.AddedNotYetFor = step.AddedNotYet+1, max(step.AddedNotYetFor, r.Value)
				continue
			}
			add(waits, owner, r)
		}
	}
	var out []DisruptedStep
	rest := ""
	for _, name := range scenarios.SortedSteps(steps) {
		step := steps[name]
		if _, kind := scenarios.StepOf(name); kind == "traffic" && rest == "" && step.Flows > 0 {
			rest, step.Rest = name, true
		}
		step.Fault = faults[name]
		step.Answered = described(answered[name])
		step.RemovedEndpointServing, step.LongLivedLeft, step.NewEndpointDelay = described(removed[name]), described(left[name]), described(waits[name])
		step.FailedAtMost, step.MisroutedAtMost = estimate.ShareAtMost(step.Failed, step.Flows), estimate.ShareAtMost(step.Misrouted, step.Flows)
		if rest != "" && !step.Rest {
			step.added(answered[name], answered[rest])
		}
		out = append(out, *step)
	}
	return out
}

// add adds a record's value to the sample of a step.
func add(into map[string]estimate.Sample, step string, r records.Record) {
	if into[step] == nil {
		into[step] = estimate.Sample{}
	}
	of := records.Repetition{Run: r.Run, Rep: r.Rep}
	into[step][of] = append(into[step][of], r.Value)
}

func ofStream(m raw.Metric) bool {
	return m == raw.Flow || m == raw.LongLivedFlow || m == raw.RemovedEndpointServing || m == raw.NewEndpointDelay
}

func (d *DisruptedStep) flow(outcome string) {
	if d.count(outcome); outcome != "" {
		d.ByOutcome[outcome]++
	}
}

func (d *DisruptedStep) held(protocol, outcome string) {
	switch {
	case protocol == "UDP":
		d.LongLivedUDP++
		switch outcome {
		case "":
		case records.Misrouted:
			d.LongLivedUDPRemoved++
		default:
			d.LongLivedUDPLost++
		}
	default:
		d.LongLivedTCP++
		if outcome != "" {
			d.LongLivedTCPBroken++
		}
	}
}

// added sets AddedP99 and its interval.
func (d *DisruptedStep) added(here, rest estimate.Sample) {
	own := estimate.Sample{}
	for of, values := range here {
		if len(rest[of]) > 0 {
			own[of] = []float64{estimate.Percentile(values, 99) - estimate.Percentile(rest[of], 99)}
		}
	}
	if added := estimate.Of("", "s", own, 50); added != nil {
		d.AddedP99, d.AddedP99Low, d.AddedP99High = &added.Value, added.Low, added.High
	}
}

// StepText is a step's display name: "4 churn".
func StepText(name string) string {
	number, kind := scenarios.StepOf(name)
	if number == 0 {
		return name
	}
	return strconv.Itoa(number) + " " + kind
}

// text is the step's display name: "4 churn", or the fault's display name.
func (d DisruptedStep) text() string {
	if d.Fault != "" {
		return NumberedFault(d.Fault)
	}
	return StepText(d.Step)
}

// During adds up all steps except the stream at rest.
func (d Disruption) During() (total DisruptedStep) {
	var worst *DisruptedStep
	for i, step := range d.Steps {
		if step.Rest {
			continue
		}
		total.Flows += step.Flows
		total.Failed += step.Failed
		total.Misrouted += step.Misrouted
		total.LongLivedTCP += step.LongLivedTCP
		total.LongLivedTCPBroken += step.LongLivedTCPBroken
		total.LongLivedUDP += step.LongLivedUDP
		total.LongLivedUDPRemoved += step.LongLivedUDPRemoved
		total.LongLivedUDPLost += step.LongLivedUDPLost
		if step.AddedP99 != nil && (worst == nil || *step.AddedP99 > *worst.AddedP99) {
			worst = &d.Steps[i]
		}
	}
	if worst != nil {
		total.Step, total.Fault, total.AddedP99, total.Answered = worst.Step, worst.Fault, worst.AddedP99, worst.Answered
	}
	total.FailedAtMost, total.MisroutedAtMost = estimate.ShareAtMost(total.Failed, total.Flows), estimate.ShareAtMost(total.Misrouted, total.Flows)
	return total
}
