package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"synclab/bench"
	"synclab/bench/subject"
	"synclab/proxier/backend"
	"synclab/proxier/runner"
)

// hour is the time over which the SLO of latency is judged, in seconds.
const hour = 3600.0

// Rules of kube-proxy that decide when it syncs, and how much. Synclab's proxier has the first two, too.
const (
	// fullPeriod: after that time a sync writes everything (pkg/proxy/util, FullSyncPeriod; 1.31 to 1.37). Not in the iptables
	// modes above backend.LargeCluster endpoints (pkg/proxy/iptables, largeClusterMode).
	fullPeriod = time.Hour
	// usualSyncPeriod: a failed sync is repeated after syncPeriod, as a full one (pkg/proxy/iptables and nftables,
	// syncProxyRules).
	usualSyncPeriod = 30 * time.Second
	// lockWait is how long the check of the canary chain waits for the xtables lock (-w 5), every syncPeriod. A check that
	// fails counts as a flush: everything is written again (pkg/util/iptables, Monitor; 1.29 to 1.37).
	lockWait = 5.0
)

func (q *Question) syncPeriod() time.Duration { return cmp.Or(q.SyncPeriod, usualSyncPeriod) }

// setting returns that of a cell: the one that it confirms, else the one in use.
func (q *Question) setting(confirms string) bench.Setting {
	s := q.today()
	period, policy, _ := strings.Cut(confirms, " ")
	if d, err := time.ParseDuration(period); err == nil {
		s = bench.Setting{MinSyncPeriod: d, Policy: runner.Policy(policy)}
	}
	return s
}

// options returns those of a subject's runner.
func (q *Question) options(about subject.Spec, s bench.Setting) runner.Options {
	period := s.MinSyncPeriod
	o := runner.Options{Policy: cmp.Or(s.Policy, about.Policy, runner.CompletionToStart), MinInterval: period, MaxInterval: max(fullPeriod, period), RetryInterval: max(q.syncPeriod(), period)}
	if !about.Own {
		o.FirstRetry = o.RetryInterval
	}
	return o
}

// Played is the result of a loop.
type Played struct {
	P50     float64 `json:"p50"` // s, of network programming latency
	P99     float64 `json:"p99"`
	CPU     float64 `json:"cpu"` // CPUs
	Changes int     `json:"changes"`
	// Beyond is how many times the changes of its largest sync exceed those that were measured; 0: they do not.
	Beyond float64 `json:"beyond,omitempty"`
}

// play composes an hour from the measured syncs: the changes of the cluster, with one full sync if the subject writes everything
// each hour. Each family has a loop. A node loss, which is rarer, is played by itself, and its changes count by their share of
// the hour.
func play(q *Question, name string, c *Cluster, families []costs, s bench.Setting) (Played, error) {
	const warm = 300.0 // s; the hour begins in the middle of the time between two full syncs
	var groups []weighted
	var out Played
	for i := range families {
		measured := &families[i]
		if len(measured.partial) == 0 {
			continue
		}
		rng := rand.New(rand.NewPCG(q.Seed, uint64(i)))
		l, err := newLoop(q, name, c, measured, s, rng)
		if err != nil {
			return Played{}, err
		}
		l.lastFull = warm + hour/2 - fullPeriod.Seconds()
		events := c.events(warm+hour, rng)
		l.each = max(1, int(math.Round(c.expected(warm+hour)/float64(max(1, len(events))))))
		base := l.run(events, warm, warm+hour)
		groups = append(groups, weighted{values: base.latencies, weight: float64(l.each)})
		out.CPU += base.busyFull/hour + base.busy*measured.cpuShare/hour
		out.Changes += len(base.latencies)
		beyond := l.beyond
		if c.Churn.NodeLosses > 0 {
			if l, err = newLoop(q, name, c, measured, s, rng); err != nil {
				return Played{}, err
			}
			lost := l.run(c.loss(warm), 0, math.Inf(1))
			groups = append(groups, weighted{values: lost.latencies, weight: c.Churn.NodeLosses / 24})
			out.CPU += lost.busy * measured.cpuShare / hour * c.Churn.NodeLosses / 24
			out.Changes += len(lost.latencies)
			beyond = max(beyond, l.beyond)
		}
		if beyond > 1 {
			out.Beyond = max(out.Beyond, beyond)
		}
	}
	out.P50, out.P99 = quantileOf(0.5, groups...), quantileOf(0.99, groups...)
	return out, nil
}

// loss returns the changes of one lost node: each pod is not ready, and removed five minutes later. The controller writes some
// thousand a second.
func (c *Cluster) loss(at float64) (events []float64) {
	pods := c.PodsPerNode()
	for i := range pods {
		events = append(events, at+float64(i)/1000)
	}
	for i := range pods {
		events = append(events, at+max(300, float64(pods)/1000)+float64(i)/1000)
	}
	return events
}

// playChurn plays the seconds of evenly spaced changes that a cell measures.
func playChurn(q *Question, name string, c *Cluster, families []costs, s bench.Setting) (out Played, err error) {
	var latencies []float64
	rate := c.Churn.Endpoints + c.Churn.Services
	const times = 20
	for i := range families {
		busy := 0.0
		for k := range times {
			l, err := newLoop(q, name, c, &families[i], s, rand.New(rand.NewPCG(q.Seed, uint64(k))))
			if err != nil {
				return Played{}, err
			}
			var events []float64
			for k := range int(math.Round(ChurnSeconds * rate)) {
				events = append(events, 10+float64(k)/rate)
			}
			one := l.run(events, 0, math.Inf(1))
			latencies, busy = append(latencies, one.latencies...), busy+one.busy
		}
		out.CPU += busy / times * families[i].cpuShare / ChurnSeconds
	}
	if out.Changes = len(latencies); out.Changes > 0 {
		out.P50, out.P99 = quantile(latencies, 0.5), quantile(latencies, 0.99)
	}
	return out, nil
}

// mostEvents bounds the changes that are played. Of more, each stands for several.
const mostEvents = 1 << 18

// expected is the number of changes until a time, without node losses.
func (c *Cluster) expected(until float64) float64 {
	if n := len(c.Churn.Trace); n > 0 {
		return float64(n) * until / max(1e-9, c.span())
	}
	return c.Rate() * until
}

// span is the time after which a trace repeats: a mean gap after its last change.
func (c *Cluster) span() float64 {
	n := len(c.Churn.Trace)
	return c.Churn.Trace[n-1] * float64(n) / float64(max(1, n-1))
}

// events returns the times of changes, in seconds, sorted.
func (c *Cluster) events(until float64, rng *rand.Rand) []float64 {
	var out []float64
	kept := min(1, mostEvents/max(1, c.expected(until)))
	add := func(at float64) {
		if kept == 1 || rng.Float64() < kept {
			out = append(out, at)
		}
	}
	if len(c.Churn.Trace) > 0 {
		for turn, span := 0.0, c.span(); span > 0 && turn < until; turn += span {
			for _, at := range c.Churn.Trace {
				if turn+at < until {
					add(turn + at)
				}
			}
		}
		return out
	}
	highest := kept * (c.Churn.Endpoints + c.Churn.Services) * (1 + c.Churn.Swing)
	for at := 0.0; highest > 0; {
		if at += rng.ExpFloat64() / highest; at >= until {
			break
		}
		// A day's swing is compressed into the hour.
		if rng.Float64()*(1+c.Churn.Swing) < 1+c.Churn.Swing*math.Cos(2*math.Pi*at/hour) {
			out = append(out, at)
		}
	}
	rollouts := int(math.Round(c.Churn.Rollouts * until / hour))
	for i := range rollouts {
		begins := (float64(i) + rng.Float64()) / float64(rollouts) * until
		for k := range c.perRollout() {
			add(begins + float64(k)*waveTime/3)
		}
	}
	slices.Sort(out)
	return out
}

// loop is the sync loop of one node.
type loop struct {
	schedule *runner.Schedule
	costs    *costs
	rng      *rand.Rand
	hourly   bool
	canary   bool
	fullNext bool    // the next sync writes everything
	lastFull float64 // s
	each     int     // changes that one event stands for
	services float64 // of the cluster, if a sync counts changed Services; 0: it counts changes
	period   float64 // s, between checks of the canary chain
	beyond   float64
	pools    map[int][]float64 // times of syncs, by changes
}

// epoch is time 0 of a Schedule, for which the zero time means "never".
var epoch = time.Unix(0, 0)

func nanoseconds(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

func newLoop(q *Question, name string, c *Cluster, measured *costs, s bench.Setting, rng *rand.Rand) (*loop, error) {
	about := subject.Named(name)
	schedule, err := runner.NewSchedule(q.options(about, s), epoch)
	if err != nil {
		return nil, fmt.Errorf("plan: %s: %w", name, err)
	}
	hourly := about.FullSyncHourly || float64(c.Services)*c.Endpoints <= backend.LargeCluster
	l := &loop{schedule: schedule, costs: measured, rng: rng, hourly: hourly, canary: about.CanaryLocks, each: 1, period: q.syncPeriod().Seconds(), pools: map[int][]float64{}}
	if about.Own {
		l.services = float64(c.Services)
	}
	return l, nil
}

// ran is what a loop did.
type ran struct {
	latencies      []float64 // s, of the changes that count
	busy, busyFull float64   // s in partial syncs, and CPU seconds of full ones, while they count
}

var errFailed = errors.New("the sync failed")

// run plays changes that are due at sorted times. Those from counted to end count. It ends when all are written. Inside, times
// are whole nanoseconds, as those of the schedule: a start that is rounded down would miss the change that it is for.
func (l *loop) run(events []float64, counted, end float64) (out ran) {
	due := make([]time.Duration, len(events))
	for i, at := range events {
		due[i] = nanoseconds(at)
	}
	asked, installed, now := 0, 0, time.Duration(0)
	for installed < len(due) {
		next, ok := l.schedule.Next()
		start := max(now, next.Sub(epoch))
		if asked < len(due) && (!ok || due[asked] <= start) {
			l.schedule.Request(epoch.Add(due[asked]))
			asked++
			continue
		}
		if !ok {
			break
		}
		taken := installed
		for taken < len(due) && due[taken] <= start {
			taken++
		}
		asked = max(asked, taken)
		took, full, failed := l.sync(start.Seconds(), l.counted(taken-installed))
		l.schedule.Started(epoch.Add(start))
		for now = start + nanoseconds(took); asked < len(due) && due[asked] <= now; asked++ {
			l.schedule.Request(epoch.Add(due[asked]))
		}
		if at := start.Seconds(); at >= counted && at < end {
			if full {
				out.busyFull += l.costs.fullCPU
			} else {
				out.busy += took
			}
		}
		if l.canary && l.checked(start.Seconds(), now.Seconds()) {
			l.fullNext = true
			l.schedule.Request(epoch.Add(now))
		}
		if failed {
			l.schedule.Finished(epoch.Add(now), errFailed)
			continue
		}
		l.schedule.Finished(epoch.Add(now), nil)
		for ; installed < taken; installed++ {
			if at := events[installed]; at >= counted && at < end {
				out.latencies = append(out.latencies, (now-due[installed]).Seconds()+l.costs.deliver)
			}
		}
	}
	return out
}

// checked reports whether a check of the canary chain waits for the lock in vain while a sync holds it.
func (l *loop) checked(start, end float64) bool {
	first := math.Ceil(start/l.period) * l.period
	return end-first > lockWait
}

// counted returns what a sync of so many events counts: changes, or the different Services that they hit.
func (l *loop) counted(events int) int {
	changes := float64(events * l.each)
	if l.services > 0 {
		changes = l.services * -math.Expm1(-changes/l.services)
	}
	return max(min(1, events), int(math.Round(changes)))
}

// sync draws the duration of a sync.
func (l *loop) sync(start float64, changes int) (took float64, full, failed bool) {
	full = (l.fullNext || l.hourly && start-l.lastFull >= fullPeriod.Seconds()) && len(l.costs.full) > 0
	if n := l.costs.failed; n > 0 {
		failed = l.rng.IntN(n+len(l.costs.partial)) < n
	}
	if full {
		took = l.costs.full[l.rng.IntN(len(l.costs.full))]
	} else if changes > 0 {
		took = l.partial(changes)
	}
	l.fullNext = failed
	if full && !failed {
		l.lastFull = start
	}
	return took, full, failed
}

// alike is how many of the most similar syncs one is drawn from.
const alike = 5

// partial draws a measured sync of about as many changes. Beyond the largest one, its time grows in proportion.
func (l *loop) partial(changes int) float64 {
	pool := l.pools[changes]
	if pool == nil {
		pool = l.costs.like(changes)
		l.pools[changes] = pool
	}
	l.beyond = max(l.beyond, float64(changes)/float64(l.costs.mostChanges()))
	return pool[l.rng.IntN(len(pool))]
}

func (c *costs) mostChanges() int {
	return slices.MaxFunc(c.partial, func(a, b oneSync) int { return a.changes - b.changes }).changes
}

// like returns the times of the syncs with the most similar numbers of changes.
func (c *costs) like(changes int) (took []float64) {
	far := func(s oneSync) float64 { return math.Abs(math.Log(float64(s.changes) / float64(changes))) }
	nearest, most := slices.Clone(c.partial), c.mostChanges()
	slices.SortStableFunc(nearest, func(a, b oneSync) int { return cmp.Compare(far(a), far(b)) })
	for _, s := range nearest[:min(alike, len(nearest))] {
		if far(s) > far(nearest[0])+math.Log(1.5) {
			break
		}
		more := 1.0
		if changes > most {
			more = float64(changes) / float64(s.changes)
		}
		took = append(took, s.took*more)
	}
	return took
}

// weighted are values that count a number of times each.
type weighted struct {
	values []float64
	weight float64
}

func quantileOf(q float64, groups ...weighted) float64 {
	type one struct{ value, weight float64 }
	var all []one
	total := 0.0
	for _, g := range groups {
		for _, v := range g.values {
			all = append(all, one{v, g.weight})
			total += g.weight
		}
	}
	slices.SortFunc(all, func(a, b one) int { return cmp.Compare(a.value, b.value) })
	passed := 0.0
	for _, o := range all {
		if passed += o.weight; passed >= q*total*(1-1e-12) {
			return o.value
		}
	}
	return 0
}
