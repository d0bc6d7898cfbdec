package sections

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strings"

	"synclab/bench/raw"
	"synclab/bench/verify/move"
	"synclab/reports/estimate"
	"synclab/reports/records"
	"synclab/scenarios"
)

// Move is one step migrate of a series, all repetitions together.
type Move struct {
	Cell records.Cell `json:"cell"`
	From string       `json:"from"`
	To   string       `json:"to"`
	Step string       `json:"step"`
	// Took is the time until every Service is in the tables of the next proxier, Settled the time until it has converged, both
	// from SIGTERM, in seconds.
	Took    *estimate.Distribution `json:"took,omitempty"`
	Settled *estimate.Distribution `json:"settled,omitempty"`
	// Unfinished counts the repetitions in which the next proxier did not converge.
	Unfinished int `json:"unfinished,omitempty"`
	// During has the flows from SIGTERM until the next proxier has converged, Later those after it, up to the next move. Before has
	// those before the first move.
	Before []MoveFlows `json:"before"`
	During []MoveFlows `json:"during"`
	Later  []MoveFlows `json:"later"`
	// Unobserved is the number of flows and packets, of all parts, that timed out while flows that no rule concerns did too, or
	// the stream had no CPU.
	Unobserved int `json:"unobserved,omitempty"`
	// Unreachable are destinations that answered before the first move, and none of several flows later.
	Unreachable []string `json:"unreachable,omitempty"`
	// Left is the largest number of things left by the earlier proxier, by kind. Differs is the number of Services by
	// behaviour (subject.Behaviours).
	Left    map[string]int `json:"left,omitempty"`
	Differs map[string]int `json:"differs,omitempty"`
}

// MoveFlows are the new flows of a protocol, or the recorded packets of long-lived flows, in a part of a move.
type MoveFlows struct {
	Protocol  string `json:"protocol"`
	LongLived bool   `json:"long_lived,omitempty"`
	Outcomes
	// For is the time from the first to the last flow that failed or was misrouted, the longest of a repetition, in seconds.
	For float64 `json:"for"`
}

// AllMoves returns the moves of all series, cell by cell.
func AllMoves(c *records.Collection) (all []Move) {
	for s, samples := range c.Each() {
		// The subject that a run moves to has only records of its process.
		if slices.ContainsFunc(samples.Records, func(r records.Record) bool { return r.Metric.Row().Journey }) {
			for _, m := range Moves(samples, s.Subject) {
				m.Cell = samples.Cell
				all = append(all, m)
			}
		}
	}
	return all
}

// moveTimes are the times of a move in one repetition, in seconds since its start.
type moveTimes struct{ began, settled float64 }

// destination is what flows are sent to.
type destination struct{ service, family, protocol, target string }

func (d destination) String() string {
	return strings.Join(strings.Fields(strings.Join([]string{d.service, d.family, d.protocol, d.target}, " ")), " ")
}

// movePart identifies a part of the stream: before the first move (-1), or one of a move's two.
type movePart struct {
	move  int
	later bool
}

// Moves returns the moves of a series in a cell, in order.
func Moves(c *records.Samples, name string) []Move {
	owners := StepOwners(c)
	var steps []string
	for _, step := range c.Steps() {
		if _, kind := scenarios.StepOf(step); kind == "migrate" {
			steps = append(steps, step)
		}
	}
	if len(steps) == 0 {
		return nil
	}
	out := make([]Move, len(steps))
	for i, step := range steps {
		out[i] = Move{From: name, Step: step, Left: map[string]int{}, Differs: map[string]int{}}
	}
	times := moveFacts(c, owners, steps, out)
	for i := range out[:len(out)-1] {
		out[i+1].From = cmp.Or(out[i].To, "?")
	}
	flows, lost := moveFlows(c, times)
	unobserved := unwatched(c)
	for i := range out {
		m := &out[i]
		m.Unobserved = unobserved
		m.Before, m.During, m.Later = flows[movePart{-1, false}], flows[movePart{i, false}], flows[movePart{i, true}]
		m.Unreachable = lost(i)
	}
	return out
}

// moveFacts fills in what records say about moves, except flows. It returns the times of the moves in each repetition.
func moveFacts(c *records.Samples, owners map[string]string, steps []string, out []Move) map[records.Repetition][]moveTimes {
	took, settled := make([]estimate.Sample, len(out)), make([]estimate.Sample, len(out))
	left := make([]map[records.Repetition]map[string]int, len(out))
	times := map[records.Repetition][]moveTimes{}
	for i := range out {
		took[i], settled[i], left[i] = estimate.Sample{}, estimate.Sample{}, map[records.Repetition]map[string]int{}
	}
	for _, r := range c.Records {
		i, of := slices.Index(steps, owners[r.Step]), records.Repetition{Run: r.Run, Rep: r.Rep}
		if i < 0 {
			continue
		}
		for len(times[of]) <= i {
			times[of] = append(times[of], moveTimes{math.Inf(1), math.Inf(1)})
		}
		m, at := &out[i], &times[of][i]
		switch r.Metric {
		case raw.Move:
			m.To = r.Kind
			took[i][of] = append(took[i][of], r.Value)
			at.began = r.At - r.Value
		case raw.MoveSettled:
			settled[i][of] = append(settled[i][of], r.Value)
			at.settled = r.At
		case raw.BehaviourDiffers:
			m.Differs[r.Table] = max(m.Differs[r.Table], int(r.Value))
			at.began = min(at.began, r.At) // recorded right before SIGTERM
		case raw.LeftBehind:
			if left[i][of] == nil {
				left[i][of] = map[string]int{}
			}
			left[i][of][r.Table] += int(r.Value) // of the families
			m.Left[r.Table] = max(m.Left[r.Table], left[i][of][r.Table])
		}
	}
	for i := range out {
		out[i].Took, out[i].Settled = described(took[i]), described(settled[i])
		for _, all := range times {
			if len(all) > i && math.IsInf(all[i].settled, 1) {
				out[i].Unfinished++
			}
		}
	}
	return times
}

// partAt returns the part of the stream that a flow belongs to, which lasted from one time to another. A flow that began before
// a move and ended in it belongs to the move.
func partAt(times []moveTimes, from, to float64) movePart {
	for i, at := range slices.Backward(times) {
		if at.began <= to {
			return movePart{i, from > at.settled}
		}
	}
	return movePart{-1, false}
}

// moveFlows counts the flows in each part of the stream. lost returns the destinations that a move made unreachable.
func moveFlows(c *records.Samples, times map[records.Repetition][]moveTimes) (flows map[movePart][]MoveFlows, lost func(move int) []string) {
	type span struct {
		movePart
		of   records.Repetition
		kind MoveFlows // protocol and LongLived only
	}
	flows = map[movePart][]MoveFlows{}
	first, last := map[span]float64{}, map[span]float64{}
	type to struct {
		movePart
		destination
	}
	answered, failed := map[to]int{}, map[to]int{}
	for _, r := range c.Records {
		if r.Metric != raw.Flow && r.Metric != raw.LongLivedFlow {
			continue
		}
		of := records.Repetition{Run: r.Run, Rep: r.Rep}
		part := partAt(times[of], r.At, r.At+r.Value)
		kind := MoveFlows{Protocol: r.Protocol, LongLived: r.Metric == raw.LongLivedFlow}
		into := flowsOf(flows, part, kind)
		into.count(r.Outcome)
		there := to{part, destination{r.Service, r.Family, r.Protocol, r.Target}}
		if r.Outcome == "" {
			answered[there]++
			continue
		}
		if r.Outcome != records.Misrouted {
			failed[there]++
		}
		at := span{part, of, kind}
		if _, known := first[at]; !known {
			first[at], last[at] = r.At, r.At
		}
		first[at], last[at] = min(first[at], r.At), max(last[at], r.At)
		into.For = max(into.For, last[at]-first[at])
	}
	return flows, func(move int) []string {
		var names []string
		for there, n := range failed {
			before := to{movePart{-1, false}, there.destination}
			if there.movePart == (movePart{move, true}) && n >= severalFlows && answered[there] == 0 && answered[before] > 0 {
				names = append(names, there.String())
			}
		}
		slices.Sort(names)
		return names
	}
}

// severalFlows without an answer make a destination unreachable: a single one may have been bad luck.
const severalFlows = 3

// flowsOf returns the flows of a part and kind; it adds them if there are none yet.
func flowsOf(flows map[movePart][]MoveFlows, part movePart, kind MoveFlows) *MoveFlows {
	list := flows[part]
	i := slices.IndexFunc(list, func(f MoveFlows) bool { return f.Protocol == kind.Protocol && f.LongLived == kind.LongLived })
	if i < 0 {
		i = len(list)
		list = append(list, kind)
		flows[part] = list
	}
	return &list[i]
}

// newFlows adds up the new flows of all protocols.
func newFlows(list []MoveFlows) (total MoveFlows) {
	for _, f := range list {
		if !f.LongLived {
			total.Flows, total.Failed, total.Misrouted, total.For = total.Flows+f.Flows, total.Failed+f.Failed, total.Misrouted+f.Misrouted, max(total.For, f.For)
		}
	}
	return total
}

// LeftThings returns what the earlier proxier left, without conntrack entries, which belong to flows.
func (m *Move) LeftThings() map[string]int {
	things := maps.Clone(m.Left)
	maps.DeleteFunc(things, func(what string, n int) bool { return n == 0 || strings.HasPrefix(what, move.Flows) })
	return things
}
