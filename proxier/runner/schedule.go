package runner

import (
	"fmt"
	"strings"
	"time"

	"golang.org/x/time/rate"
)

// Policy names the rule that spaces syncs.
type Policy string

const (
	// TokenBucket lets Burst syncs start back to back and then one per
	// MinInterval, counted between starts. A sync that takes longer than
	// MinInterval may be followed by the next one at once.
	TokenBucket Policy = "token-bucket"

	// CompletionToStart leaves at least MinInterval between the end of a sync
	// and the start of the next, as kube-proxy 1.36 does. There is no burst.
	CompletionToStart Policy = "completion-to-start"
)

// Policies lists the policies there are, in the order in which a list of
// choices shows them.
func Policies() []Policy { return []Policy{TokenBucket, CompletionToStart} }

// Cause says why a sync started. A sync may have several causes at once.
type Cause uint8

const (
	// Requested: someone asked for it.
	Requested Cause = 1 << iota
	// Retry: the last sync failed and its back-off is over.
	Retry
	// Interval: MaxInterval has passed since the last sync ended.
	Interval
)

// String names the causes, joined by "+": "requested+retry".
func (c Cause) String() string {
	var names []string
	for _, n := range []struct {
		bit  Cause
		name string
	}{{Requested, "requested"}, {Retry, "retry"}, {Interval, "interval"}} {
		if c&n.bit != 0 {
			names = append(names, n.name)
		}
	}
	return strings.Join(names, "+")
}

// Start describes one sync at its start.
type Start struct {
	// At is the time at which the sync started.
	At time.Time
	// Queued is when the oldest request that this sync serves came in. It is
	// zero when nothing requested it (a pure retry or interval sync).
	Queued time.Time
	// Cause is why it started.
	Cause Cause
	// Failures counts the retries that failed in a row before this sync, the
	// first failed sync included: 0 when all is well.
	Failures int
}

// Schedule is the state machine that decides when syncs start. It holds no
// clock and starts nothing: the caller tells it what happened and when, and
// asks Next. Times must not go backwards. It is not safe for use by several
// goroutines at once.
type Schedule struct {
	opts Options

	// bucket is nil under CompletionToStart and with MinInterval 0.
	bucket *rate.Limiter

	running bool
	start   Start // of the current or the last sync

	requestedAt time.Time // oldest request that no sync has served; zero: none
	retryAt     time.Time // zero: the last sync succeeded
	failures    int       // retries that failed in a row, the first failure included
	intervalAt  time.Time // MaxInterval after the last end, or the birth; zero: off

	// earliest is when the policy allows the next start. Under TokenBucket it
	// is known as soon as a sync has started; under CompletionToStart when it
	// has ended.
	earliest time.Time
}

// NewSchedule returns a schedule born at now: MaxInterval counts from then
// until the first sync has ended. Options' clock is not used.
func NewSchedule(opts Options, now time.Time) (*Schedule, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	s := &Schedule{opts: opts}
	s.rest(now)
	if opts.Policy == TokenBucket && opts.MinInterval > 0 {
		s.bucket = rate.NewLimiter(rate.Every(opts.MinInterval), opts.Burst)
	}
	return s, nil
}

// Request asks for a sync. It coalesces with other requests that no sync has
// picked up yet; during a sync it asks for another one after it.
func (s *Schedule) Request(now time.Time) {
	if s.requestedAt.IsZero() {
		s.requestedAt = now
	}
}

// Started says that a sync starts now. The caller may start earlier than Next
// allows (a test, or a forced sync): the policy then counts that start as well.
// It panics when a sync is already running, which is a programming error.
func (s *Schedule) Started(now time.Time) Start {
	if s.running {
		panic(fmt.Sprintf("runner %q: a sync starts while another one runs", s.opts.Name))
	}
	s.running = true
	s.start = Start{At: now, Queued: s.requestedAt, Cause: s.causes(now), Failures: s.failures}
	s.requestedAt = time.Time{}
	s.takeToken(now)
	return s.start
}

// Finished says that the running sync ended now, with err. It panics when no
// sync is running, which is a programming error.
func (s *Schedule) Finished(now time.Time, err error) {
	if !s.running {
		panic(fmt.Sprintf("runner %q: a sync ends that never started", s.opts.Name))
	}
	s.running = false
	s.rest(now)
	if s.opts.Policy == CompletionToStart {
		s.earliest = now.Add(s.opts.MinInterval)
	}
	if err == nil {
		s.retryAt, s.failures = time.Time{}, 0
		return
	}
	// A sync that ran ahead of the retry, because someone asked for it, leaves
	// the retry and its back-off alone. Only the retry itself moves them.
	if s.retryAt.IsZero() || !s.start.At.Before(s.retryAt) {
		s.failures++
		s.retryAt = now.Add(s.opts.backOff(s.failures))
	}
}

// Next is when the next sync is to start. It is a fixed point in time, possibly
// past, that only the other calls change. It reports false while a sync runs
// and when nothing is due: no request, no retry and no MaxInterval.
func (s *Schedule) Next() (time.Time, bool) {
	if s.running {
		return time.Time{}, false
	}
	var due time.Time
	for _, t := range []time.Time{s.requestedAt, s.retryAt, s.intervalAt} {
		if !t.IsZero() && (due.IsZero() || t.Before(due)) {
			due = t
		}
	}
	if due.IsZero() {
		return time.Time{}, false
	}
	if due.Before(s.earliest) {
		return s.earliest, true
	}
	return due, true
}

// Idle reports whether nothing is pending: no sync runs, none is requested, and
// the last one succeeded. A sync due by MaxInterval alone is not pending.
func (s *Schedule) Idle() bool {
	return !s.running && s.requestedAt.IsZero() && s.retryAt.IsZero()
}

// Running reports whether a sync is running.
func (s *Schedule) Running() bool { return s.running }

// Failures counts the retries that failed in a row, the first failure included.
func (s *Schedule) Failures() int { return s.failures }

// causes tells which reasons to sync are due at now.
func (s *Schedule) causes(now time.Time) Cause {
	var c Cause
	if !s.requestedAt.IsZero() {
		c |= Requested
	}
	if !s.retryAt.IsZero() && !now.Before(s.retryAt) {
		c |= Retry
	}
	if !s.intervalAt.IsZero() && !now.Before(s.intervalAt) {
		c |= Interval
	}
	return c
}

// rest begins a time without a sync, which MaxInterval limits.
func (s *Schedule) rest(now time.Time) {
	if s.opts.MaxInterval > 0 {
		s.intervalAt = now.Add(s.opts.MaxInterval)
	}
}

// takeToken spends one token for a start at now and finds out when the next
// token is there. ReserveN and not AllowN: a start is a fact, so it counts even
// when rounding left the bucket a nanosecond short of a whole token.
func (s *Schedule) takeToken(now time.Time) {
	if s.bucket == nil {
		return
	}
	s.bucket.ReserveN(now, 1)
	s.earliest = now
	if short := 1 - s.bucket.TokensAt(now); short > 0 {
		wait := time.Duration(short * float64(s.opts.MinInterval))
		s.earliest = now.Add(wait.Round(time.Microsecond))
	}
}
