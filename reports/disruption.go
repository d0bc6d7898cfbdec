package reports

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"synclab/bench"
	"synclab/reports/estimate"
)

// Disruption is what a stream of new flows, and flows that were held, met in one cell of one subject.
type Disruption struct {
	Series string          `json:"series"`
	Cell   Cell            `json:"cell"`
	Steps  []DisruptedStep `json:"steps"`
	// Unwatched are flows, and packets of flows held, that nothing is known of: they are in no other number.
	Unwatched int `json:"unwatched,omitempty"`
}

// DisruptedStep is the part of the stream that was due during one step and the settle and check steps behind it.
type DisruptedStep struct {
	Step  string `json:"step"`            // "4:churn"
	Fault string `json:"fault,omitempty"` // what was done, where the step is a fault
	// Rest says that nothing happened but the stream itself.
	Rest      bool           `json:"rest,omitempty"`
	Flows     int            `json:"flows"`
	Failed    int            `json:"failed"` // refused, reset or timed out
	Misrouted int            `json:"misrouted"`
	ByOutcome map[string]int `json:"by_outcome,omitempty"` // of those that were not answered by an endpoint that they may reach
	// FailedAtMost and MisroutedAtMost bound the shares, one-sided with 95 % confidence, if flows fail independently.
	FailedAtMost    float64 `json:"failed_at_most"`
	MisroutedAtMost float64 `json:"misrouted_at_most"`
	// Answered is the latency of flows that were answered, due to answer.
	Answered *estimate.Distribution `json:"answered,omitempty"`
	// AddedP99 is the 99th percentile less that of the same stream at rest: the median of the repetitions, with its interval.
	AddedP99     *float64 `json:"added_p99,omitempty"`
	AddedP99Low  *float64 `json:"added_p99_ci_low,omitempty"`
	AddedP99High *float64 `json:"added_p99_ci_high,omitempty"`
	// RemovedServed and AddedWaits are of endpoints, in seconds; HeldLeft is how long UDP flows held stayed with one that was
	// removed.
	RemovedServed *estimate.Distribution `json:"removed_served,omitempty"`
	HeldLeft      *estimate.Distribution `json:"held_left,omitempty"`
	AddedWaits    *estimate.Distribution `json:"added_waits,omitempty"`
	// AddedNotYet are new endpoints that never answered while they were observed, AddedNotYetFor the longest that one was.
	AddedNotYet    int     `json:"added_not_yet,omitempty"`
	AddedNotYetFor float64 `json:"added_not_yet_for,omitempty"`
	// Held are recorded packets of flows that were there before, of which only some of the answered ones are; Broken of
	// them got no answer from their endpoint (TCP), and Removed still went to an endpoint that was gone (UDP).
	HeldTCP        int `json:"held_tcp,omitempty"`
	HeldTCPBroken  int `json:"held_tcp_broken,omitempty"`
	HeldUDP        int `json:"held_udp,omitempty"`
	HeldUDPRemoved int `json:"held_udp_on_removed,omitempty"`
	HeldUDPLost    int `json:"held_udp_lost,omitempty"`
}

// misrouted is the outcome of a flow that somebody answered who may not.
const misrouted = "misrouted"

// disruptions has one entry for each series and cell with a stream.
func disruptions(c *collection) []Disruption {
	var out []Disruption
	for _, cell := range c.cells {
		for _, s := range c.series {
			samples := s.cells[cell.id()]
			if samples == nil || !(samples.has(bench.Flow) || samples.has(bench.HeldFlow)) {
				continue
			}
			d := Disruption{Series: s.name, Cell: cell, Steps: disruptedSteps(samples)}
			for _, r := range samples.records {
				if r.Metric == bench.FlowsUnwatched {
					d.Unwatched += int(r.Value)
				}
			}
			out = append(out, d)
		}
	}
	return out
}

// stepOwners says to which step's work each step belongs: settles and checks to the step in front.
func stepOwners(c *cellSamples) map[string]string {
	names := map[string]bool{}
	for _, r := range c.records {
		if r.Step != "" {
			names[r.Step] = true
		}
	}
	owners := map[string]string{}
	owner := ""
	for _, name := range sortedSteps(names) {
		if _, kind := stepOf(name); owner == "" || (kind != "settle" && kind != "check") {
			owner = name
		}
		owners[name] = owner
	}
	return owners
}

func sortedSteps[V any](names map[string]V) []string {
	var out []string
	for name := range names {
		out = append(out, name)
	}
	slices.SortFunc(out, func(a, b string) int {
		i, _ := stepOf(a)
		j, _ := stepOf(b)
		return cmp.Or(i-j, strings.Compare(a, b))
	})
	return out
}

func disruptedSteps(c *cellSamples) []DisruptedStep {
	owners := stepOwners(c)
	steps := map[string]*DisruptedStep{}
	faults := map[string]string{}
	answered := map[string]estimate.Sample{}
	removed, left, waits := map[string]estimate.Sample{}, map[string]estimate.Sample{}, map[string]estimate.Sample{}
	for _, r := range c.records {
		owner := owners[r.Step]
		if r.Metric == bench.FaultBegun {
			faults[owner] = r.Fault
		}
		if !ofStream(r.Metric) {
			continue
		}
		if steps[owner] == nil {
			steps[owner] = &DisruptedStep{Step: owner, ByOutcome: map[string]int{}}
			answered[owner] = estimate.Sample{}
		}
		step := steps[owner]
		switch r.Metric {
		case bench.Flow:
			step.flow(r.Outcome)
			if r.Outcome == "" {
				of := repetition{Run: r.run, Rep: r.Rep}
				answered[owner][of] = append(answered[owner][of], r.Value)
			}
		case bench.HeldFlow:
			step.held(r.Protocol, r.Outcome)
		case bench.RemovedServed:
			into := removed
			if r.Method != "" {
				into = left
			}
			add(into, owner, r)
		case bench.AddedWaits:
			if r.Outcome != "" {
				step.AddedNotYet, step.AddedNotYetFor = step.AddedNotYet+1, max(step.AddedNotYetFor, r.Value)
				continue
			}
			add(waits, owner, r)
		}
	}
	var out []DisruptedStep
	rest := ""
	for _, name := range sortedSteps(steps) {
		step := steps[name]
		if _, kind := stepOf(name); kind == "traffic" && rest == "" && step.Flows > 0 {
			rest, step.Rest = name, true
		}
		step.Fault = faults[name]
		step.Answered = described(answered[name])
		step.RemovedServed, step.HeldLeft, step.AddedWaits = described(removed[name]), described(left[name]), described(waits[name])
		step.FailedAtMost, step.MisroutedAtMost = estimate.ShareAtMost(step.Failed, step.Flows), estimate.ShareAtMost(step.Misrouted, step.Flows)
		if rest != "" && !step.Rest {
			step.added(answered[name], answered[rest])
		}
		out = append(out, *step)
	}
	return out
}

// add a record's value to what is known of a step.
func add(into map[string]estimate.Sample, step string, r taggedRecord) {
	if into[step] == nil {
		into[step] = estimate.Sample{}
	}
	of := repetition{Run: r.run, Rep: r.Rep}
	into[step][of] = append(into[step][of], r.Value)
}

func ofStream(m bench.Metric) bool {
	return m == bench.Flow || m == bench.HeldFlow || m == bench.RemovedServed || m == bench.AddedWaits
}

func (d *DisruptedStep) flow(outcome string) {
	d.Flows++
	switch outcome {
	case "":
		return
	case misrouted:
		d.Misrouted++
	default:
		d.Failed++
	}
	d.ByOutcome[outcome]++
}

func (d *DisruptedStep) held(protocol, outcome string) {
	switch {
	case protocol == "UDP":
		d.HeldUDP++
		switch outcome {
		case "":
		case misrouted:
			d.HeldUDPRemoved++
		default:
			d.HeldUDPLost++
		}
	default:
		d.HeldTCP++
		if outcome != "" {
			d.HeldTCPBroken++
		}
	}
}

// added sets the 99th percentile beside that at rest.
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

// stepText is a step's name for people: "4 churn".
func stepText(name string) string {
	index, kind := stepOf(name)
	if index == 0 {
		return name
	}
	return strconv.Itoa(index) + " " + kind
}

// text is the step's name for people: "4 churn", or of a fault what was done.
func (d DisruptedStep) text() string {
	if d.Fault != "" {
		return faultText(d.Fault)
	}
	return stepText(d.Step)
}

// during adds up the steps behind the first that is at rest.
func (d Disruption) during() (total DisruptedStep) {
	var worst *DisruptedStep
	for i, step := range d.Steps {
		if step.Rest {
			continue
		}
		total.Flows += step.Flows
		total.Failed += step.Failed
		total.Misrouted += step.Misrouted
		total.HeldTCP += step.HeldTCP
		total.HeldTCPBroken += step.HeldTCPBroken
		total.HeldUDP += step.HeldUDP
		total.HeldUDPRemoved += step.HeldUDPRemoved
		total.HeldUDPLost += step.HeldUDPLost
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
