package reports

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"synclab/bench"
	"synclab/proxier/runner"
	"synclab/reports/model"
	"synclab/scenarios"
	"synclab/sim/twin"
)

// settingsOf a subject's node in a cell; false for proxiers whose loop nobody knows.
func settingsOf(about bench.Subject, p scenarios.Proxy, cost twin.Cost) (set twin.Settings, known bool) {
	switch about.Proxier {
	case bench.Synclab:
		set = twin.Synclab(cost, false)
		set.Runner.Policy, set.Runner.Burst = cmp.Or(runner.Policy(p.Policy), about.Policy), p.Burst
	case bench.KubeProxy:
		set = twin.KubeProxy(cost, false)
	default:
		return set, false
	}
	set.Runner.MinInterval = cmp.Or(p.MinSyncPeriod, set.Runner.MinInterval)
	set.Runner.RetryInterval = max(cmp.Or(p.SyncPeriod, set.Runner.RetryInterval), set.Runner.MinInterval)
	if about.Proxier == bench.KubeProxy {
		set.Runner.FirstRetry = set.Runner.RetryInterval
	}
	return set, true
}

// ownCost draws from what a repetition's own syncs took at about the same time: an oracle, which leaves nothing of an error
// to the cost model. It is of one replay, as it is told how time passes.
type ownCost struct {
	partial, full []pastSync
	// byServices: the syncs say how many Services they took. Otherwise changes were counted.
	byServices bool
	now        time.Duration // the end of the last sync
}

// A sync is drawn from those of the run at about that time: a machine has slower and faster times. Of the run's next sync
// and some around it, it is one of the alike, which took about as many changes.
const (
	around = 2
	alike  = 3
)

func newOwnCost(s *stream, about bench.Subject) *ownCost {
	c := &ownCost{byServices: about.Proxier == bench.Synclab}
	for _, p := range slices.Concat(s.before, s.syncs) {
		if p.kind == twin.Full {
			c.full = append(c.full, p)
		}
	}
	for _, p := range s.syncs {
		if p.kind == twin.Partial {
			c.partial = append(c.partial, p)
		}
	}
	return c
}

// Sync implements twin.Cost.
func (c *ownCost) Sync(kind twin.SyncKind, services, changes int, rng *rand.Rand) time.Duration {
	pool := c.full
	if kind == twin.Partial {
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

// like are the syncs to draw the next one from.
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

// beginning is a Cost that gives the syncs before the first change what they took, and what found nothing to write
// nothing. It is of one replay.
type beginning struct {
	twin.Cost
	before []pastSync
	next   int
	// idle: a sync of changes that lead no packet elsewhere ends at once. kube-proxy's does all its work for it.
	idle bool
}

// Sync implements twin.Cost.
func (c *beginning) Sync(kind twin.SyncKind, services, changes int, rng *rand.Rand) time.Duration {
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

// cpuTime is the CPU time of a sync; nil: not known.
type cpuTime func(kind twin.SyncKind, changed int) float64

// replayed is what the twin says of a stream.
type replayed struct {
	latencies []float64 // s, of the changes that were seen in the run
	syncs     int       // from the first change on, without those that found nothing to write
	cpu       float64   // s, of syncs that began while the run measured it
}

// forWays is what generators of ways to the node are for: they share no numbers with the twin's.
const forWays = 0x77617973

// beforeDirect is how long before kube-proxy's first sync its runner ran, in vain, as its informers were not there yet: they
// look every 100 ms. That first sync is not the runner's, so that the wait for the next one counts from the run in vain.
const beforeDirect = 100 * time.Millisecond

// heldUp is how near changes are due that take the same way: what holds up one holds up the next.
const heldUp = 50 * time.Millisecond

// arrivals are a stream's events as they come to the proxier, sorted: each as much later, or earlier, than it is due as its
// way is longer than the median. None overtakes another. For those that were seen, due has when each was due, by when it
// arrives.
func (s *stream) arrivals(way *model.Way, rng *rand.Rand) (events []twin.Event, due map[time.Duration]time.Duration) {
	events, due = slices.Clone(s.events), map[time.Duration]time.Duration{}
	var drawn, last time.Duration
	for i := range events {
		e := &events[i]
		was := e.Due
		if way != nil && (i == 0 || was > s.events[i-1].Due+heldUp) {
			drawn = ofSeconds(way.Draw(rng) - way.Median)
		}
		e.Due = max(was+drawn, last+1) // due together they would not be told apart
		last = e.Due
		if _, seen := s.seen[was]; seen {
			due[e.Due] = was
		}
	}
	return events, due
}

// replay takes a stream through the twin, born with the syncs that there were before the first change. To each latency
// comes a way to the node; nil: none is known.
func (s *stream) replay(set twin.Settings, about bench.Subject, way *model.Way, cpu cpuTime) (replayed, error) {
	var out replayed
	idle, direct := about.Proxier == bench.Synclab, about.Proxier == bench.KubeProxy
	own, _ := set.Cost.(*ownCost)
	rng := rand.New(rand.NewPCG(set.Seed, forWays))
	cost := &beginning{Cost: set.Cost, before: s.before, idle: idle}
	set.Cost = cost
	events, dues := s.arrivals(way, rng)
	// Changes come to the proxier by the way later than they are due. The twin's clock is slow by that instead: whatever is
	// no change happens so much earlier, and a latency is so much longer.
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
		var asked []twin.Event // for the syncs after the first, whoever did
		for _, p := range s.before[1:] {
			asked = append(asked, twin.Event{Due: max(set.Born, p.at-p.took-slow), Service: math.MaxInt32})
		}
		events = append(asked, events...)
		slices.SortStableFunc(events, func(a, b twin.Event) int { return cmp.Compare(a.Due, b.Due) })
	}
	first, last := s.events[0].Due, events[len(events)-1].Due
	const settle = time.Hour
	_, err := twin.Run(set, twin.List(events), twin.Options{
		Span: twin.Span{Length: last + 1, Settle: settle},
		OnSync: func(y twin.Sync) {
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
