package agreement

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/raw"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/simulator"
	"synclab/sim/world"
)

// stream has the changes and syncs of a subject in one repetition of a cell, from the records.
type stream struct {
	// events for the simulator, sorted, no two with the same due time. An event of weight 0 changed no endpoint that a
	// packet could reach. A proxier may sync for it, but no latency is measured.
	events []simulator.Event
	// seen is the measured latency of each event, by its due time.
	seen map[time.Duration]time.Duration
	// before are the syncs that started before the first change.
	before []pastSync
	// syncs are the later syncs.
	syncs []pastSync
	// idle counts later syncs that had nothing to write; their durations are unknown.
	idle int
	// cpu is the CPU time of the steps with changes, in seconds; window is the duration of these steps. 0: unknown.
	cpu, window float64
	played      []timeSpan
	// strange changes are in the records but not in the scenario. Each counts as a separate Service.
	strange int
}

// timeSpan is the time from a moment to another.
type timeSpan struct{ from, to time.Duration }

// measuredCPU reports whether the run measured the CPU time at a moment.
func (s *stream) measuredCPU(at time.Duration) bool {
	return slices.ContainsFunc(s.played, func(w timeSpan) bool { return at >= w.from && at < w.to })
}

// pastSync is one sync as it was recorded.
type pastSync struct {
	kind    simulator.SyncKind
	at      time.Duration // its end, or the end of its last write
	took    time.Duration
	changed int // Services, or changes, that it processed; 0: unknown
}

// played is a step's trace with its place in the scenario.
type played struct {
	step    string
	part    int // of a step with several traces in sequence
	changes sim.Trace
}

// tracesOf makes the changes of a cell's steps in one repetition again, from the scenario's seed. It fails for steps
// whose changes depend on more than that.
func tracesOf(s *scenarios.Scenario, rep int) ([]played, error) {
	world, err := world.NewWorld(s.Shape, s.Seed)
	if err != nil {
		return nil, err
	}
	world.Repetition(rep)
	var out []played
	for i := range s.Steps {
		step := &s.Steps[i]
		var trace sim.Trace
		switch {
		case step.Create != nil:
			first := len(world.Objects().Services) == 0
			if trace, err = world.Create(*step.Create); err == nil && first && step.Create.Rate == 0 {
				trace = nil // created before the proxier starts
			}
		case step.React != nil:
			var parts []sim.Trace
			parts, err = world.React(*step.React)
			for part, changes := range parts {
				out = append(out, played{fmt.Sprintf("%d:%s", i+1, step.Kind()), part, changes})
			}
		case step.Churn != nil:
			trace, err = world.Churn(*step.Churn)
		case step.Rollout != nil:
			trace, err = world.Rollout(*step.Rollout)
		case step.Scale != nil:
			trace, err = world.Scale(*step.Scale)
		case step.NodeLoss != nil:
			trace, err = world.NodeLoss(*step.NodeLoss)
		case step.Settle != nil, step.Probe != nil:
		default:
			err = fmt.Errorf("step %s: its changes are not in the scenario", step.Kind())
		}
		if err != nil {
			return nil, err
		}
		if len(trace) > 0 {
			out = append(out, played{fmt.Sprintf("%d:%s", i+1, step.Kind()), 0, trace})
		}
	}
	return out, nil
}

// dueExact is the precision of a due time from a record: At minus Value, two floats.
const dueExact = 2 * time.Microsecond

// streamOf combines a repetition's records with the scenario's changes. Without traces each change is a separate
// Service.
func streamOf(records []raw.Record, traces []played, family corev1.IPFamily) *stream {
	s := &stream{seen: map[time.Duration]time.Duration{}}
	type sight struct {
		due, latency time.Duration
		known        bool
	}
	var sights []sight
	begun := map[string][]float64{} // start times of steps and their parts
	for _, r := range records {
		switch {
		case (r.Metric == raw.NetworkProgrammingLatency || r.Metric == raw.Reaction) && (r.Family == "" || r.Family == string(family)):
			sights = append(sights, sight{due: ofSeconds(r.At - r.Value), latency: ofSeconds(r.Value)})
		case r.Metric == raw.ChangesApplied:
			begun[r.Step] = append(begun[r.Step], r.At)
		}
	}
	slices.SortStableFunc(sights, func(a, b sight) int { return cmp.Compare(a.due, b.due) })
	dues := make([]time.Duration, len(sights))
	for i := range sights {
		dues[i] = sights[i].due
	}
	numbers := map[string]int32{}
	number := func(name string) int32 {
		if _, known := numbers[name]; !known {
			numbers[name] = int32(len(numbers))
		}
		return numbers[name]
	}
	for _, p := range traces {
		trace := ofFamily(p.changes, family)
		at, told := 0.0, p.part < len(begun[p.step])
		if told {
			at = begun[p.step][p.part]
		}
		start, matched := startOf(trace, dues, ofSeconds(at), told)
		if !matched {
			continue
		}
		events, names := simulator.Recorded(trace)
		for _, e := range events {
			e.Due += start
			e.Service = number(names[e.Service].String())
			e.Weight = 0
			i, _ := slices.BinarySearch(dues, e.Due-dueExact)
			for ; i < len(dues) && dues[i] <= e.Due+dueExact; i++ {
				if !sights[i].known {
					sights[i].known, e.Due, e.Weight = true, dues[i], 1
					s.add(e, sights[i].latency)
					break
				}
			}
			if e.Weight == 0 {
				s.events = append(s.events, e)
			}
		}
	}
	for i, one := range sights {
		if !one.known {
			s.strange++
			s.add(simulator.Event{Due: one.due, Service: number(fmt.Sprint("strange ", i)), Weight: 1}, one.latency)
		}
	}
	for i := range s.events { // each due time must identify one event
		e := &s.events[i]
		for _, taken := s.seen[e.Due]; taken && e.Weight == 0; _, taken = s.seen[e.Due] {
			e.Due++
		}
	}
	slices.SortStableFunc(s.events, func(a, b simulator.Event) int { return cmp.Compare(a.Due, b.Due) })
	s.takeSyncs(records, family)
	s.takeCPU(records, begun)
	return s
}

// add adds an event with a measured latency, at a due time that no other event has.
func (s *stream) add(e simulator.Event, latency time.Duration) {
	for _, taken := s.seen[e.Due]; taken; _, taken = s.seen[e.Due] {
		e.Due++
	}
	s.seen[e.Due] = latency
	s.events = append(s.events, e)
}

func ofSeconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// ofFamily omits the slices of other families, which a proxier's other engine processes.
func ofFamily(t sim.Trace, family corev1.IPFamily) sim.Trace {
	return slices.DeleteFunc(slices.Clone(t), func(c sim.Change) bool {
		slice, ok := c.Object.(*discoveryv1.EndpointSlice)
		return ok && slice.AddressType != discoveryv1.AddressType(family)
	})
}

// startOf finds the start of a trace: the time at which most of its changes match a measured due time. If the run
// recorded the start, the result is at most a second later.
func startOf(t sim.Trace, dues []time.Duration, told time.Duration, isTold bool) (start time.Duration, found bool) {
	const tries, latest = 8, time.Second
	best := 0
	for i := range min(tries, len(t)) {
		for j, due := range dues {
			candidate := due - t[i].Due
			if isTold && (candidate < told-dueExact || candidate > told+latest) {
				continue
			}
			if best > 0 && j > 0 && candidate == start {
				continue
			}
			if n := meetings(t, dues, candidate); n > best {
				best, start = n, candidate
			}
		}
	}
	return start, best > 0
}

// meetings counts the changes that match a measured due time, for a trace with the given start.
func meetings(t sim.Trace, dues []time.Duration, start time.Duration) int {
	n, i := 0, 0
	for _, c := range t {
		want := start + c.Due
		for i < len(dues) && dues[i] < want-dueExact {
			i++
		}
		if i < len(dues) && dues[i] <= want+dueExact {
			n, i = n+1, i+1
		}
	}
	return n
}

// takeSyncs reads the syncs from the records and divides them at the first change.
func (s *stream) takeSyncs(records []raw.Record, family corev1.IPFamily) {
	type id struct {
		step string
		sync int
	}
	changed, wrote := map[id]int{}, map[id]bool{}
	var all []pastSync
	var ids []id
	var turns []id
	for _, r := range records {
		if r.Family != "" && r.Family != string(family) || r.Error != "" {
			continue
		}
		key := id{r.Step, r.Sync}
		switch r.Metric {
		case raw.FullSync, raw.PartialSync:
			kind := simulator.Partial
			if r.Metric == raw.FullSync {
				kind = simulator.Full
			}
			wrote[key] = true
			all, ids = append(all, pastSync{kind: kind, at: ofSeconds(r.At), took: ofSeconds(r.Value)}), append(ids, key)
		case raw.Changes:
			changed[key] = int(r.Value)
		case raw.Backlog:
			turns = append(turns, key)
		}
	}
	if len(s.events) == 0 {
		return
	}
	for i := range all {
		all[i].changed = changed[ids[i]]
		if first := s.events[0].Due; all[i].at-all[i].took < first {
			s.before = append(s.before, all[i])
			continue
		}
		s.syncs = append(s.syncs, all[i])
	}
	for _, list := range [][]pastSync{s.before, s.syncs} {
		slices.SortStableFunc(list, func(a, b pastSync) int { return cmp.Compare(a.at, b.at) })
	}
	for _, key := range turns {
		if !wrote[key] {
			s.idle++
		}
	}
	if len(changed) == 0 {
		s.attribute()
	}
}

// attribute counts the changes of each sync, for a subject that does not report them. A change belongs to the last
// sync that started before it became visible, or to the sync before that if that one had just ended. Package model
// attributes differently: over all families together, also to syncs before the first change, and never to syncs whose
// tools are unknown.
func (s *stream) attribute() {
	const late = 5 * time.Millisecond
	for due, latency := range s.seen {
		at := due + latency
		i, _ := slices.BinarySearchFunc(s.syncs, at, func(p pastSync, at time.Duration) int { return cmp.Compare(p.at-p.took, at) })
		if i--; i > 0 && at <= s.syncs[i-1].at+late {
			i--
		}
		if i >= 0 {
			s.syncs[i].changed++
		}
	}
}

// takeCPU adds up the CPU time that the subject used while changes were made, and the duration.
func (s *stream) takeCPU(records []raw.Record, begun map[string][]float64) {
	for _, r := range records {
		if r.Metric != raw.SubjectCPU {
			continue
		}
		if from, ok := begun[r.Step]; ok {
			s.cpu += r.Value
			s.window += r.At - from[0]
			s.played = append(s.played, timeSpan{ofSeconds(from[0]), ofSeconds(r.At)})
		}
	}
}
