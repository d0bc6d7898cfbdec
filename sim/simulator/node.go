package simulator

import (
	"errors"
	"math/rand/v2"
	"time"

	"synclab/proxier/runner"
)

// epoch is time 0 of a Schedule. It must not be the zero time, which means "never" there.
var epoch = time.Unix(0, 0).UTC()

// errFailed is the error of a failed sync that a Schedule gets.
var errFailed = errors.New("simulator: sync failed")

// Sync is one sync of a node.
type Sync struct {
	Kind       SyncKind
	Start, End time.Duration
	// Services that changed and Changes of them, including those of failed syncs before.
	Services, Changes int
	Cause             runner.Cause
	Failed            bool
}

// node is one proxier: the real schedule, a cost, and the kind of the next sync, decided as in the real engine. loop
// and follower differ only in how they find what a sync takes.
type node struct {
	Settings
	span     Span
	schedule *runner.Schedule
	random   rand.PCG
	rng      *rand.Rand
	// now is the end of the last sync, or the start of the node.
	now time.Duration
	// full: the next sync must be full. lastFull is the start of the last successful full sync.
	full     bool
	lastFull time.Duration
	sync     Sync // the last one, or the one under way
	// covered is the time up to which missing changes have been counted.
	covered time.Duration
	result  Result
}

// init makes a new node, which requests its first sync. The node must not be moved afterwards.
func (n *node) init(s Settings, span Span) error {
	if err := s.validate(); err != nil {
		return err
	}
	if s.Factor == 0 {
		s.Factor = 1
	}
	schedule, err := runner.NewSchedule(s.Runner, epoch.Add(s.Born))
	if err != nil {
		return err
	}
	schedule.Request(epoch.Add(s.Born))
	*n = node{Settings: s, span: span, schedule: schedule, full: true, now: s.Born, covered: s.Born}
	n.random.Seed(s.Seed, forNode)
	n.rng = rand.New(&n.random)
	return nil
}

// next returns when the next sync starts, unless an earlier one is requested. It returns false if there is none.
func (n *node) next() (at time.Duration, ok bool) {
	due, ok := n.schedule.Next()
	if !ok {
		return 0, false
	}
	return max(due.Sub(epoch), n.now), true
}

// over reports whether a sync does not start at a time because the span ends before. During Settle, no sync starts by
// the interval alone.
func (n *node) over(at time.Duration) bool {
	return at >= n.span.end() || at >= n.span.Length && n.schedule.Idle()
}

// request requests a sync because of a change.
func (n *node) request(due time.Duration) { n.schedule.Request(epoch.Add(due)) }

// start starts a sync of changes in so many Services, the first of them due at oldest. It draws the end of the sync,
// and counts everything but latencies.
func (n *node) start(at time.Duration, services, changes int, oldest time.Duration) {
	kind := Partial
	if n.full || n.FullInterval > 0 && at-n.lastFull >= n.FullInterval {
		kind = Full
	}
	started := n.schedule.Started(epoch.Add(at))
	took := max(0, n.Cost.Sync(kind, services, changes, n.rng))
	if n.Factor != 1 {
		took = time.Duration(float64(took) * n.Factor)
	}
	failed := n.FailProbability > 0 && n.rng.Float64() < n.FailProbability
	n.sync = Sync{Kind: kind, Start: at, End: at + took, Services: services, Changes: changes, Cause: started.Cause, Failed: failed}

	r := &n.result
	r.Busy += took
	if n.CPU == nil {
		r.CPU += took
	} else {
		r.CPU += n.CPU(kind, services, changes, took)
	}
	r.Backlog += int64(changes)
	r.MaxBacklog = max(r.MaxBacklog, changes)
	switch {
	case failed:
		r.Failed++
		n.full = kind == Full || n.FullAfterFailure
		return
	case kind == Full:
		r.FullSyncs++
		n.full, n.lastFull = false, at
	default:
		r.PartialSyncs++
	}
	if services > 0 {
		n.missing(oldest, n.sync.End)
	}
}

// missing counts the time up to end in which the oldest change was missing. It leaves out time that was counted for an
// older change.
func (n *node) missing(oldest, end time.Duration) {
	r := &n.result
	from := max(oldest, n.covered)
	if from >= end {
		return
	}
	n.covered = end
	r.Stale += end - from
	r.MaxStale = max(r.MaxStale, end-oldest)
	before, after := (from - oldest).Seconds(), (end - oldest).Seconds()
	r.StaleAge += (after*after - before*before) / 2
}

// finish ends the sync under way.
func (n *node) finish() {
	var err error
	if n.sync.Failed {
		err = errFailed
	}
	n.schedule.Finished(epoch.Add(n.sync.End), err)
	n.now = n.sync.End
}

// close ends the node with a number of waiting changes, the first of them due at oldest.
func (n *node) close(waiting int64, oldest time.Duration) {
	end := max(n.span.Length, n.now)
	n.result.Waiting = waiting
	if waiting > 0 {
		n.missing(oldest, end)
	}
	n.result.Lived = end - n.Born
}
