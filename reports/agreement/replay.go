package agreement

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"synclab/bench/subject"
	"synclab/proxier/runner"
	"synclab/reports/model"
	"synclab/scenarios"
	"synclab/sim/simulator"
)

// settingsOf returns the simulator's settings of a subject in a cell; false for proxiers with an unknown sync loop.
func settingsOf(about subject.Spec, p scenarios.Proxy, cost simulator.Cost) (set simulator.Settings, known bool) {
	switch about.Proxier {
	case subject.Synclab:
		set = simulator.Synclab(cost, true)
		set.Runner.Policy, set.Runner.Burst = cmp.Or(runner.Policy(p.Policy), about.Policy), p.Burst
	case subject.KubeProxy:
		set = simulator.KubeProxy(cost, true)
	default:
		return set, false
	}
	set.Runner.MinInterval = cmp.Or(p.MinSyncPeriod, set.Runner.MinInterval)
	set.Runner.RetryInterval = max(cmp.Or(p.SyncPeriod, set.Runner.RetryInterval), set.Runner.MinInterval)
	if about.Proxier == subject.KubeProxy {
		set.Runner.FirstRetry = set.Runner.RetryInterval
	}
	return set, true
}

// ownCost returns durations of the repetition's own syncs at about the same time, so that the cost has no model error.
// One replay uses it, since OnSync sets now.
type ownCost struct {
	partial, full []pastSync
	// byServices: changed counts the Services of a sync. Otherwise it counts changes.
	byServices bool
	now        time.Duration // the end of the last sync
}

// A sync's duration comes from a sync of the run at about the same time, since machines have slower and faster times.
// The candidates are the run's next sync, and around syncs on either side. The alike candidates with the most similar
// changed remain.
const (
	around = 2
	alike  = 3
)

func newOwnCost(s *stream, about subject.Spec) *ownCost {
	c := &ownCost{byServices: about.Proxier == subject.Synclab}
	for _, p := range slices.Concat(s.before, s.syncs) {
		if p.kind == simulator.Full {
			c.full = append(c.full, p)
		}
	}
	for _, p := range s.syncs {
		if p.kind == simulator.Partial {
			c.partial = append(c.partial, p)
		}
	}
	return c
}

// Sync implements simulator.Cost.
func (c *ownCost) Sync(kind simulator.SyncKind, services, changes int, rng *rand.Rand) time.Duration {
	pool := c.full
	if kind == simulator.Partial {
		want := changes
		if c.byServices {
			want = services
		}
		pool = c.like(want)
	}
	if len(pool) == 0 {
		return 0
	}
	return pool[rng.IntN(len(pool))].took
}

// like returns the syncs to choose the next duration from.
func (c *ownCost) like(changed int) []pastSync {
	n := len(c.partial)
	middle := max(0, min(slices.IndexFunc(c.partial, func(p pastSync) bool { return p.at > c.now }), n-1))
	if n > 0 && c.partial[n-1].at <= c.now {
		middle = n - 1
	}
	pool := slices.Clone(c.partial[max(0, middle-around):min(n, middle+around+1)])
	far := func(p pastSync) float64 { return math.Abs(math.Log(float64(p.changed+1) / float64(changed+1))) }
	slices.SortStableFunc(pool, func(a, b pastSync) int { return cmp.Compare(far(a), far(b)) })
	return pool[:min(alike, len(pool))]
}

// beginning is a Cost for one replay. Syncs before the first change take their recorded durations. Syncs with nothing
// to write take no time if idle is set.
type beginning struct {
	simulator.Cost
	before []pastSync
	next   int
	// idle: a sync of changes without effect on packets ends at once. kube-proxy does a whole sync for such changes.
	idle bool
}

// Sync implements simulator.Cost.
func (c *beginning) Sync(kind simulator.SyncKind, services, changes int, rng *rand.Rand) time.Duration {
	switch {
	case changes > 0:
		c.next = len(c.before)
	case c.next < len(c.before):
		c.next++
		return c.before[c.next-1].took
	case c.idle:
		return 0
	}
	return c.Cost.Sync(kind, services, changes, rng)
}

// cpuTime is the CPU time of a sync; nil: unknown.
type cpuTime func(kind simulator.SyncKind, changed int) float64

// replayed is the simulator's result for a stream.
type replayed struct {
	latencies []float64 // s, of the changes that were visible in the run
	syncs     int       // from the first change on, without syncs that had nothing to write
	cpu       float64   // s, of syncs that started while the run measured CPU time
}

// forWays seeds the generators of watch delays, so that they share no numbers with the simulator's generator.
const forWays = 0x77617973

// beforeDirect is the time from a run of kube-proxy's runner without effect to kube-proxy's first sync. At that run its
// informers, which it polls every 100 ms, were not synced yet. The runner did not start the first sync, so the next
// wait counts from the earlier run.
const beforeDirect = 100 * time.Millisecond

// heldUp is the maximum distance of changes that share a watch delay: the cause of one delay also delays the next
// change.
const heldUp = 50 * time.Millisecond

// arrivals returns a stream's events with their arrival times at the proxier, sorted: due time plus the difference of
// their watch delay from the median. No event overtakes another. due maps arrival times of visible events to due
// times.
func (s *stream) arrivals(way *model.WatchDelay, rng *rand.Rand) (events []simulator.Event, due map[time.Duration]time.Duration) {
	events, due = slices.Clone(s.events), map[time.Duration]time.Duration{}
	var drawn, last time.Duration
	for i := range events {
		e := &events[i]
		was := e.Due
		if way != nil && (i == 0 || was > s.events[i-1].Due+heldUp) {
			drawn = ofSeconds(way.Draw(rng) - way.Median)
		}
		e.Due = max(was+drawn, last+1) // equal times would not be distinguishable
		last = e.Due
		if _, seen := s.seen[was]; seen {
			due[e.Due] = was
		}
	}
	return events, due
}

// replay runs a stream through the simulator, starting with the syncs before the first change. It adds a watch delay
// to each latency; nil: unknown.
func (s *stream) replay(set simulator.Settings, about subject.Spec, way *model.WatchDelay, cpu cpuTime) (replayed, error) {
	var out replayed
	idle, direct := about.Proxier == subject.Synclab, about.Proxier == subject.KubeProxy
	own, _ := set.Cost.(*ownCost)
	rng := rand.New(rand.NewPCG(set.Seed, forWays))
	cost := &beginning{Cost: set.Cost, before: s.before, idle: idle}
	set.Cost = cost
	events, dues := s.arrivals(way, rng)
	// The watch delay shifts all changes. Instead of the changes, the simulator shifts everything else by the median
	// delay: it happens earlier, and latencies are longer by the same amount.
	slow := time.Duration(0)
	if way != nil {
		slow = ofSeconds(way.Median)
	}
	if len(s.before) > 0 {
		set.Born = max(0, s.before[0].at-s.before[0].took-slow)
		if direct {
			set.Born = max(0, set.Born-beforeDirect)
			cost.before = slices.Clone(s.before)
			cost.before[0].took = 0
		}
		var asked []simulator.Event // requests for the syncs after the first, from any cause
		for _, p := range s.before[1:] {
			asked = append(asked, simulator.Event{Due: max(set.Born, p.at-p.took-slow), Service: math.MaxInt32})
		}
		events = append(asked, events...)
		slices.SortStableFunc(events, func(a, b simulator.Event) int { return cmp.Compare(a.Due, b.Due) })
	}
	first, last := s.events[0].Due, events[len(events)-1].Due
	const settle = time.Hour
	_, err := simulator.Run(set, simulator.List(events), simulator.Options{
		Span: simulator.Span{Length: last + 1, Settle: settle},
		OnSync: func(y simulator.Sync) {
			if own != nil {
				own.now = y.End
			}
			if y.Start < first-slow || y.Services == 0 || idle && y.Changes == 0 {
				return
			}
			out.syncs++
			if cpu != nil && s.measuredCPU(y.Start+slow) {
				out.cpu += cpu(y.Kind, y.Services)
			}
		},
		OnChange: func(arrival, latency time.Duration) {
			if due, counted := dues[arrival]; counted {
				out.latencies = append(out.latencies, (arrival + latency - due + slow).Seconds())
			}
		},
	})
	return out, err
}
