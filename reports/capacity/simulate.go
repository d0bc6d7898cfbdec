package capacity

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"synclab/bench/subject"
	"synclab/proxier/runner"
	"synclab/reports/model"
	"synclab/sim/simulator"
)

// The amount of simulation for one evaluation: enough for a 99th percentile from 200 changes and 40 syncs. More would
// take too long, since an answer has hundreds of evaluations. Equal nodes see the same events. They differ only by the
// random durations of their syncs, so a few represent thousands.
const (
	wantedChanges = 20_000
	wantedSyncs   = 4_000 // on all nodes
	mostChanges   = 60_000
	mostSyncs     = 16_000
	mostNodes     = 8
	leastCycles   = 60
	longest       = 100 * 24 * time.Hour
	// Rare causes with many changes (rollouts, node losses) happen at least leastCauses times if their share of all
	// changes exceeds causesMatter: such a share affects a 99th percentile.
	leastCauses, causesMatter = 10, 0.002
)

// simulated is the result of the simulator for a subject in one cluster with one policy.
type simulated struct {
	p50, p90, p99, slowest float64 // s
	cpu, busy, syncs       float64 // CPUs; share of time; per second
	together               float64 // changed Services in a partial sync, on average
	changes                int64
	nodes                  int
}

// settings returns the simulator's settings of a subject's proxier with a policy. Unknown programs get those of
// kube-proxy.
func settings(name string, c Cluster, p Policy, cost simulator.Cost) simulator.Settings {
	s := simulator.KubeProxy(cost, hourly(name, c))
	if strings.HasPrefix(name, subject.Synclab+"/") {
		s = simulator.Synclab(cost, hourly(name, c))
	}
	s.Runner.Policy, s.Runner.MinInterval, s.Runner.Burst = p.Runner, p.MinSyncPeriod, p.Burst
	s.Runner.MaxInterval = max(s.Runner.MaxInterval, p.MinSyncPeriod)
	return s
}

// defaultPolicy is a subject's own policy, with minSyncPeriod 1 s, the default of all subjects.
func defaultPolicy(name string) Policy {
	if about, err := subject.Parse(name); err == nil {
		return Policy{Runner: about.Policy, MinSyncPeriod: time.Second}
	}
	return Policy{Runner: runner.CompletionToStart, MinSyncPeriod: time.Second}
}

// together returns the usual number of changed Services in a sync: those that change until the next one. cycle is the
// time between two syncs, in seconds.
func together(s *model.Subject, c Cluster, p Policy) (services int, cycle float64, err error) {
	rate, all := c.rate(), float64(c.Services)
	services = 1
	for range 12 {
		took, err := s.Predict(model.Query{Kind: model.Partial, Services: c.Services, Endpoints: c.Endpoints, Changed: services})
		if err != nil {
			return 0, 0, err
		}
		cycle = max(took.Median+p.MinSyncPeriod.Seconds(), 1e-4)
		if p.Runner == runner.TokenBucket {
			cycle = max(took.Median, p.MinSyncPeriod.Seconds(), 1e-4)
		}
		next := max(1, int(math.Round(all*-math.Expm1(-rate*cycle/all)))) // changes hit random Services
		if next == services {
			break
		}
		services = next
	}
	return services, cycle, nil
}

// extent has the number of simulated nodes, and the durations of a simulation's parts.
type extent struct {
	nodes   int
	counted time.Duration // changes in it count
	warm    time.Duration // warm-up before it: changes happen, but do not count
}

func extentOf(c Cluster, cycle float64, hourly bool, length time.Duration) extent {
	rate := c.rate()
	syncs := min(rate, 1/cycle) + 1.0/3600
	e := extent{nodes: min(c.Nodes, mostNodes)}
	counted := max(wantedChanges/rate, wantedSyncs/float64(e.nodes)/syncs, leastCycles*cycle)
	if hourly {
		counted = max(counted, 3600)
	}
	for _, causes := range []struct{ perSecond, changes float64 }{
		{c.Churn.Rollouts / 3600, c.perRollout()}, {c.Churn.NodeLosses / 86400, 2 * float64(c.pods())},
	} {
		if len(c.Churn.Trace) == 0 && causes.perSecond*causes.changes > causesMatter*rate {
			counted = max(counted, leastCauses/causes.perSecond)
		}
	}
	if len(c.Churn.Trace) > 0 {
		counted = max(counted, c.Churn.traceSpan().Seconds()/cmp.Or(c.Churn.faster, 1))
	}
	counted = min(counted, max(mostChanges/rate, leastCycles*cycle), longest.Seconds())
	if length > 0 {
		counted = length.Seconds()
	}
	for e.nodes > 1 && syncs*counted*float64(e.nodes) > mostSyncs {
		e.nodes--
	}
	e.counted = time.Duration(counted * float64(time.Second))
	e.warm = time.Duration(5 * cycle * float64(time.Second))
	return e
}

// simulate runs a subject's proxier on the nodes of a cluster.
func simulate(ctx context.Context, s *model.Subject, c Cluster, ready *prepared, p Policy, which side, q *Question) (*simulated, error) {
	changed, cycle, err := together(s, c, p)
	if err != nil {
		return nil, err
	}
	cost, err := costOf(s, c, ready, changed, which)
	if err != nil {
		return nil, err
	}
	node := settings(s.Name, c, p, cost)
	// The duration of a full sync, at the start and periodically.
	full := time.Duration(cost.Median(model.Full, 0) * cost.factors[model.Full] * float64(time.Second))
	if c.rate() == 0 {
		return idle(node, cost, again(s)), nil
	}
	e := extentOf(c, cycle, node.FullInterval > 0, q.Length)
	lives := make([]life, e.nodes)
	var classes []simulator.Class
	for i := range lives {
		one := node
		lives[i] = life{cost: cost, again: again(s)}
		one.Cost, one.CPU = &lives[i], lives[i].count
		one.Born = time.Duration((float64(i) + 0.5) / float64(e.nodes) * float64(node.FullInterval)) // spreads the full syncs of the nodes
		classes = append(classes, simulator.Class{Name: s.Name, Nodes: 1, Settings: one})
	}
	from := node.FullInterval + 2*full + time.Second
	span := simulator.Span{Since: from + e.warm}
	span.Length = span.Since + e.counted
	span.Settle = 10*full + 20*time.Duration(cycle*float64(time.Second)) + time.Minute
	source, err := c.events(q.Seed, from, span.Length-from)
	if err != nil {
		return nil, err
	}
	result, err := simulator.RunFleet(ctx, classes, source, simulator.FleetOptions{Span: span, Seed: q.Seed, Workers: 1,
		Window: max(5*time.Minute, (span.Length+span.Settle)/100)})
	if err != nil {
		return nil, fmt.Errorf("%s with %d Services: %w", s.Name, c.Services, err)
	}
	return sum(result, lives, span.Length-from, watchDelayOf(s, q)), nil
}

// idle is a cluster without changes. Its only syncs are hourly full ones, if there are any.
func idle(node simulator.Settings, cost *cost, kind string) *simulated {
	out := &simulated{nodes: 1}
	if node.FullInterval > 0 {
		every, took := node.FullInterval.Seconds(), cost.Median(kind, 0)*cost.factors[kind]
		out.cpu, out.busy, out.syncs = cost.cpu(kind, 0, seconds(took)).Seconds()/every, took/every, 1/every
	}
	return out
}

// life has the cost of one node's syncs, and their sums after the first. The simulator runs the syncs of a node one by
// one. For each, it calls Sync before count.
type life struct {
	*cost
	again          string // kind of full syncs after the first
	begun          bool
	used, busy     time.Duration
	syncs, partial int64
	services       int64
}

func (l *life) kind(kind string) string {
	if kind == simulator.Full && l.begun {
		return l.again
	}
	return kind
}

// Sync implements simulator.Cost. Each node needs its own, since only its first full sync has empty tables.
func (l *life) Sync(kind string, services, changes int, rng *rand.Rand) time.Duration {
	return l.cost.Sync(l.kind(kind), services, changes, rng)
}

// count adds up the syncs after the first one, which belongs to the start. It returns the CPU time of the sync.
func (l *life) count(kind string, services, changes int, took time.Duration) time.Duration {
	used := l.cpu(l.kind(kind), services, took)
	if !l.begun {
		l.begun = true
		return used
	}
	l.used, l.busy, l.syncs = l.used+used, l.busy+took, l.syncs+1
	if kind == simulator.Partial && services > 0 {
		l.partial, l.services = l.partial+1, l.services+int64(services)
	}
	return used
}

func sum(r *simulator.FleetResult, lives []life, counted, way time.Duration) *simulated {
	out := &simulated{changes: r.Latency.Count, nodes: len(lives)}
	var all life
	for _, l := range lives {
		all.used, all.busy, all.syncs = all.used+l.used, all.busy+l.busy, all.syncs+l.syncs
		all.partial, all.services = all.partial+l.partial, all.services+l.services
	}
	lived := counted.Seconds() * float64(len(lives))
	out.cpu, out.busy, out.syncs = all.used.Seconds()/lived, min(1, all.busy.Seconds()/lived), float64(all.syncs)/lived
	if all.partial > 0 {
		out.together = float64(all.services) / float64(all.partial)
	}
	after := func(h *simulator.Histogram, q float64) float64 { return max(0, way.Seconds()+quantile(h, q)) }
	out.p50, out.p90, out.p99 = after(&r.Latency, 0.5), after(&r.Latency, 0.9), after(&r.Latency, 0.99)
	for i := range r.Nodes {
		out.slowest = max(out.slowest, after(&r.Nodes[i].Latency, 0.99))
	}
	return out
}

// watchDelayOf is the watch delay: as in the question, or as the calibration measured it, from the due time of a change to the
// proxier's handlers. The measurement subtracts the work of a sync after its rules are in the kernel, so it may be
// negative.
func watchDelayOf(s *model.Subject, q *Question) time.Duration {
	if q.WatchDelay == 0 && s.ToNode != nil {
		return seconds(s.ToNode.Median)
	}
	return q.WatchDelay
}

// quantile returns a quantile of a histogram in seconds. Values are spread evenly within a bin, so that small changes
// of the simulation make small changes of the quantile.
func quantile(h *simulator.Histogram, q float64) float64 {
	rank := q * float64(h.Count)
	for b := range h.Bins() {
		if n := float64(b.Count); rank <= n {
			return min(b.From.Seconds()+rank/n*(b.To-b.From).Seconds(), h.Max.Seconds())
		} else {
			rank -= n
		}
	}
	return h.Max.Seconds()
}

// supports reports whether a subject has a policy. kube-proxy has only its own; the lab's proxier has all.
func supports(name string, p runner.Policy) bool {
	return strings.HasPrefix(name, subject.Synclab+"/") && slices.Contains(runner.Policies(), p) || p == runner.CompletionToStart
}
