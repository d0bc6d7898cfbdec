package runner

import (
	"fmt"
	"time"

	"golang.org/x/time/rate"
)

// Policy names the rule that spaces syncs.
type Policy string

const (
	// TokenBucket lets Burst syncs start back to back and then one per MinInterval, counted between starts. A sync
	// longer than MinInterval may be followed by the next one at once.
	TokenBucket Policy = "token-bucket"

	// CompletionToStart leaves at least MinInterval between the end of a sync and the start of the next, as kube-proxy
	// 1.36 does. There is no burst.
	CompletionToStart Policy = "completion-to-start"
)

// Policies lists all policies, in the order for a list of choices.
func Policies() []Policy { return []Policy{TokenBucket, CompletionToStart} }

// Schedule is the state machine that decides when syncs start. It has no clock and starts nothing: the caller reports
// each event with its time and calls Next. Times must not go backwards. It is not safe for concurrent use.
type Schedule struct {
	opts Options

	// bucket is nil under CompletionToStart and with MinInterval 0.
	bucket *rate.Limiter

	running bool
	started time.Time // the current or the last sync

	requestedAt time.Time // oldest request without a sync; zero: none
	retryAt     time.Time // zero: the last sync succeeded
	failures    int       // retries that failed in a row, plus the first failure
	intervalAt  time.Time // MaxInterval after the last end, or after NewSchedule; zero: off

	// earliest is when the policy allows the next start. TokenBucket sets it when a sync starts, CompletionToStart when
	// a sync ends.
	earliest time.Time
}

// NewSchedule returns a Schedule. MaxInterval counts from now until the first sync has ended. opts.Clock is not used.
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

// Request requests a sync. Requests that no sync has taken yet become one. During a sync, it requests another sync.
func (s *Schedule) Request(now time.Time) {
	if s.requestedAt.IsZero() {
		s.requestedAt = now
	}
}

// Started reports that a sync starts now. The caller may start earlier than Next allows (a test, or a forced sync); the
// policy then counts that start too. It panics if a sync is running, which is a programming error.
func (s *Schedule) Started(now time.Time) {
	if s.running {
		panic(fmt.Sprintf("runner %q: Started was called while a sync runs", s.opts.Name))
	}
	s.running, s.started = true, now
	s.requestedAt = time.Time{}
	s.takeToken(now)
}

// Finished reports that the running sync ended now, with err. It panics if no sync is running, which is a programming
// error.
func (s *Schedule) Finished(now time.Time, err error) {
	if !s.running {
		panic(fmt.Sprintf("runner %q: Finished was called without a running sync", s.opts.Name))
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
	// A requested sync that ran before the retry does not change the retry and its back-off. Only the retry itself
	// does.
	if s.retryAt.IsZero() || !s.started.Before(s.retryAt) {
		s.failures++
		s.retryAt = now.Add(s.opts.backOff(s.failures))
	}
}

// Next returns when the next sync should start. That time may be past, and only the other calls change it. It returns
// false while a sync runs, and without a request, a retry or a MaxInterval.
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

// Idle reports whether nothing is pending: no sync runs or is requested, and the last one succeeded. A sync that is due
// only by MaxInterval is not pending.
func (s *Schedule) Idle() bool {
	return !s.running && s.requestedAt.IsZero() && s.retryAt.IsZero()
}

// rest starts the MaxInterval.
func (s *Schedule) rest(now time.Time) {
	if s.opts.MaxInterval > 0 {
		s.intervalAt = now.Add(s.opts.MaxInterval)
	}
}

// takeToken spends one token for a start at now and computes when the next token is available. It uses ReserveN, not
// AllowN: a start counts even if rounding left the bucket a nanosecond short of a whole token.
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
