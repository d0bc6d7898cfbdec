package reports

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/twin"
)

// stream is what one repetition of a subject in a cell lived through, as it was recorded.
type stream struct {
	// events for the twin, sorted, no two due together. Those of weight 0 changed no endpoint that a packet could reach:
	// a proxier may sync for them, and nobody waits to see them.
	events []twin.Event
	// seen is the latency of each event that was waited for, by its due time.
	seen map[time.Duration]time.Duration
	// before are the syncs that began before the first change.
	before []pastSync
	// syncs are those from then on.
	syncs []pastSync
	// idle syncs are those of syncs that found nothing to write; their durations are not known.
	idle int
	// cpu time in the steps that played changes, in seconds; window is how long these were. 0: not known.
	cpu, window float64
	played      []timeSpan
	// strange changes are in the records, and not in what the scenario makes: each counts as a Service of its own.
	strange int
}

// timeSpan is from a moment to another.
type timeSpan struct{ from, to time.Duration }

// measuredCPU says whether the CPU time of a moment was measured.
func (s *stream) measuredCPU(at time.Duration) bool {
	return slices.ContainsFunc(s.played, func(w timeSpan) bool { return at >= w.from && at < w.to })
}

// pastSync is one sync as it was recorded.
type pastSync struct {
	kind    twin.SyncKind
	at      time.Duration // its end, or when its last write ended
	took    time.Duration
	changed int // Services, or changes, that it took; 0: not known
}

// played is a step's trace with its place in the scenario.
type played struct {
	step    string
	part    int // of a step that plays one trace after the other
	changes sim.Trace
}

// tracesOf are the changes of a cell's steps, as its seed makes them again. With some steps nobody can say: then there is
// an error.
func tracesOf(s *scenarios.Scenario) ([]played, error) {
	world, err := sim.NewWorld(s.Shape, s.Seed)
	if err != nil {
		return nil, err
	}
	var out []played
	for i := range s.Steps {
		step := &s.Steps[i]
		var trace sim.Trace
		switch {
		case step.Create != nil:
			first := len(world.Objects().Services) == 0
			if trace, err = world.Create(*step.Create); err == nil && first && step.Create.Rate == 0 {
				trace = nil // it is there before the proxier
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
			err = fmt.Errorf("a step %s: what it changes is not in the scenario", step.Kind())
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

// dueExact is how exact a due time can be had from a record: its At less its Value, two floats.
const dueExact = 2 * time.Microsecond

// streamOf puts a repetition's records and what the scenario plays together. Without traces every change is a Service of its own.
func streamOf(records []bench.Record, traces []played, family corev1.IPFamily) *stream {
	s := &stream{seen: map[time.Duration]time.Duration{}}
	type sight struct {
		due, latency time.Duration
		known        bool
	}
	var sights []sight
	begun := map[string][]float64{} // steps, and their parts
	for _, r := range records {
		switch {
		case (r.Metric == bench.NetworkProgrammingLatency || r.Metric == bench.Reaction) && (r.Family == "" || r.Family == string(family)):
			sights = append(sights, sight{due: ofSeconds(r.At - r.Value), latency: ofSeconds(r.Value)})
		case r.Metric == bench.Played:
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
		events, names := twin.Recorded(trace)
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
			s.add(twin.Event{Due: one.due, Service: number(fmt.Sprint("strange ", i)), Weight: 1}, one.latency)
		}
	}
	for i := range s.events { // whoever is told a due time shall know which event it is
		e := &s.events[i]
		for _, taken := s.seen[e.Due]; taken && e.Weight == 0; _, taken = s.seen[e.Due] {
			e.Due++
		}
	}
	slices.SortStableFunc(s.events, func(a, b twin.Event) int { return cmp.Compare(a.Due, b.Due) })
	s.takeSyncs(records, family)
	s.takeCPU(records, begun)
	return s
}

// add an event that was waited for, at a moment that no other has.
func (s *stream) add(e twin.Event, latency time.Duration) {
	for _, taken := s.seen[e.Due]; taken; _, taken = s.seen[e.Due] {
		e.Due++
	}
	s.seen[e.Due] = latency
	s.events = append(s.events, e)
}

func ofSeconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// ofFamily leaves out the slices of other families, which a proxier's other engine sees.
func ofFamily(t sim.Trace, family corev1.IPFamily) sim.Trace {
	return slices.DeleteFunc(slices.Clone(t), func(c sim.Change) bool {
		slice, ok := c.Object.(*discoveryv1.EndpointSlice)
		return ok && slice.AddressType != discoveryv1.AddressType(family)
	})
}

// startOf finds when a trace began to be played: where most of its changes meet one that was seen. Not much later than the
// run says, if it does.
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

// meetings counts the changes that were seen, were the trace begun at a start.
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

// takeSyncs takes the syncs of the records: those before the first change, and the others.
func (s *stream) takeSyncs(records []bench.Record, family corev1.IPFamily) {
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
		case bench.FullSync, bench.PartialSync:
			kind := twin.Partial
			if r.Metric == bench.FullSync {
				kind = twin.Full
			}
			wrote[key] = true
			all, ids = append(all, pastSync{kind: kind, at: ofSeconds(r.At), took: ofSeconds(r.Value)}), append(ids, key)
		case bench.Changes:
			changed[key] = int(r.Value)
		case bench.Backlog:
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

// attribute counts the changes that each sync wrote, of a subject that does not tell: those seen since it began, and before
// the next did. What is seen right after the end of the one before is of that one. Package model attributes otherwise: of
// all families together, with nothing before the first change left out, and none to syncs of whose tools nothing is known.
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

// takeCPU adds up what the subject used while it worked on changes, and how long that was.
func (s *stream) takeCPU(records []bench.Record, begun map[string][]float64) {
	for _, r := range records {
		if r.Metric != bench.SubjectCPU {
			continue
		}
		if from, ok := begun[r.Step]; ok {
			s.cpu += r.Value
			s.window += r.At - from[0]
			s.played = append(s.played, timeSpan{ofSeconds(from[0]), ofSeconds(r.At)})
		}
	}
}
