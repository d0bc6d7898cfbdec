package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrStopped is what WaitIdle wraps when the loop ended with work pending.
var ErrStopped = errors.New("stopped with a sync pending")

// Runner calls a sync function when its Schedule says so. All syncs run in the
// goroutine that called Run, one at a time.
type Runner struct {
	name  string
	clock clock.WithTicker
	sync  func(ctx context.Context) error

	// wake tells the waiting loop that Next may have changed. One waiting
	// token is enough: the loop asks the schedule again, however many came.
	wake chan struct{}

	mu       sync.Mutex
	schedule *Schedule
	started  bool
	stopped  bool
	runs     int
	lastErr  error
	changed  chan struct{} // closed and replaced whenever the state changes
}

// State is what a Runner is doing, at one moment.
type State struct {
	// Running says that a sync is running; Current then describes it.
	Running bool
	// Current is the running sync's start, or the last one's; zero before the
	// first.
	Current Start
	// Next is when the next sync is to start; zero while one runs and when
	// nothing is due.
	Next time.Time
	// Idle says that nothing is pending: see Schedule.Idle.
	Idle bool
	// Runs counts the syncs that ended, failed ones included.
	Runs int
	// Failures counts the retries that failed in a row, the first failed sync
	// included.
	Failures int
	// LastErr is the error of the last sync that ended.
	LastErr error
}

// New returns a runner of sync; nothing happens before Run. The context that
// sync receives is Run's.
func New(opts Options, sync func(ctx context.Context) error) (*Runner, error) {
	opts = opts.withDefaults()
	schedule, err := NewSchedule(opts, opts.Clock.Now())
	if err != nil {
		return nil, err
	}
	if sync == nil {
		return nil, fmt.Errorf("runner %q: no sync function", opts.Name)
	}
	return &Runner{
		name:     opts.Name,
		clock:    opts.Clock,
		sync:     sync,
		wake:     make(chan struct{}, 1),
		schedule: schedule,
		changed:  make(chan struct{}),
	}, nil
}

// Trigger asks for a sync and returns at once. It may be called from anywhere,
// the sync function included, before, while and after Run runs.
func (r *Runner) Trigger() {
	r.mu.Lock()
	r.schedule.Request(r.clock.Now())
	r.notify()
	r.mu.Unlock()

	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Run calls the sync function whenever it is due, until ctx ends; it then
// returns ctx's error. A running sync is not abandoned: Run waits for it, and
// it sees the end of ctx itself. A panic in the sync function is not caught. A
// runner runs once.
func (r *Runner) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.started {
		r.mu.Unlock()
		return fmt.Errorf("runner %q: run a second time", r.name)
	}
	r.started = true
	r.mu.Unlock()
	defer r.stop() // also on a panic, so that nobody waits for an idle that never comes

	for ctx.Err() == nil {
		wait, due := r.untilNext()
		if due && wait <= 0 {
			r.runOnce(ctx)
			continue
		}
		r.sleep(ctx, wait, due)
	}
	return ctx.Err()
}

// State is what the runner is doing now.
func (r *Runner) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, _ := r.schedule.Next()
	return State{
		Running:  r.schedule.Running(),
		Current:  r.schedule.start,
		Next:     next,
		Idle:     r.schedule.Idle(),
		Runs:     r.runs,
		Failures: r.schedule.Failures(),
		LastErr:  r.lastErr,
	}
}

// Next is when the next sync is to start, and whether one is due at all.
func (r *Runner) Next() (time.Time, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.schedule.Next()
}

// WaitIdle returns when no sync runs or is requested and the last one
// succeeded. A runner that was never triggered is idle. It returns ctx's error
// with the last sync's if ctx ends first, and ErrStopped if the loop has ended
// with something pending.
func (r *Runner) WaitIdle(ctx context.Context) error {
	for {
		r.mu.Lock()
		idle, stopped, lastErr, changed := r.schedule.Idle(), r.stopped, r.lastErr, r.changed
		r.mu.Unlock()
		switch {
		case idle:
			return nil
		case stopped:
			return fmt.Errorf("runner %q: %w", r.name, errors.Join(ErrStopped, lastErr))
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("runner %q: wait for idle: %w", r.name, errors.Join(ctx.Err(), lastErr))
		}
	}
}

// runOnce runs the sync function and tells the schedule.
func (r *Runner) runOnce(ctx context.Context) {
	r.mu.Lock()
	r.schedule.Started(r.clock.Now())
	r.notify()
	r.mu.Unlock()

	err := r.sync(ctx)

	r.mu.Lock()
	r.schedule.Finished(r.clock.Now(), err)
	r.runs++
	r.lastErr = err
	r.notify()
	r.mu.Unlock()
}

// untilNext is how long to wait for the next sync; false: until woken.
func (r *Runner) untilNext() (time.Duration, bool) {
	at, due := r.Next()
	if !due {
		return 0, false
	}
	return at.Sub(r.clock.Now()), true
}

// sleep waits until the given time has passed (if timed), until woken, or until
// ctx ends.
func (r *Runner) sleep(ctx context.Context, wait time.Duration, timed bool) {
	var expired <-chan time.Time
	if timed {
		timer := r.clock.NewTimer(wait)
		defer timer.Stop()
		expired = timer.C()
	}
	select {
	case <-ctx.Done():
	case <-r.wake:
	case <-expired:
	}
}

// stop marks the end of the loop.
func (r *Runner) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.notify()
}

// notify tells those in WaitIdle that the state changed; r.mu is held.
func (r *Runner) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}
