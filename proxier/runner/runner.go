package runner

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrStopped is wrapped by WaitIdle's error when the loop ended with work pending.
var ErrStopped = errors.New("stopped with a sync pending")

// Runner calls a sync function when its Schedule allows it. All syncs run one at a time in the goroutine that called
// Run.
type Runner struct {
	name  string
	clock clock.WithTicker
	sync  func(ctx context.Context) error

	// wake wakes the loop because Next may have changed. One token is enough, because the loop reads the schedule
	// again.
	wake chan struct{}

	mu       sync.Mutex
	schedule *Schedule
	started  bool
	stopped  bool
	lastErr  error
	changed  chan struct{} // closed and replaced whenever the state changes
}

// New returns a Runner. Nothing happens before Run. sync receives Run's context.
func New(opts Options, sync func(ctx context.Context) error) (*Runner, error) {
	opts = opts.withDefaults()
	schedule, err := NewSchedule(opts, opts.Clock.Now())
	if err != nil {
		return nil, err
	}
	if sync == nil {
		return nil, fmt.Errorf("runner %q: the sync function is nil", opts.Name)
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

// Trigger requests a sync and returns at once. It is safe for concurrent use, before, during and after Run, and also
// from the sync function.
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

// Run calls the sync function whenever a sync is due, until ctx ends, and returns ctx's error. It waits for a running
// sync, whose context is ctx. It does not catch a panic in the sync function. Run may be called only once.
func (r *Runner) Run(ctx context.Context) error {
	r.mu.Lock()
	if r.started {
		r.mu.Unlock()
		return fmt.Errorf("runner %q: Run was called twice", r.name)
	}
	r.started = true
	r.mu.Unlock()
	defer r.stop() // also on a panic, so that WaitIdle returns

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

// WaitIdle returns when no sync runs or is requested and the last one succeeded. A runner that was never triggered is
// idle. If ctx ends first, it returns ctx's error joined with the last sync's. If the loop has ended with work pending,
// it returns ErrStopped.
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

// runOnce runs the sync function and reports it to the schedule.
func (r *Runner) runOnce(ctx context.Context) {
	r.mu.Lock()
	r.schedule.Started(r.clock.Now())
	r.notify()
	r.mu.Unlock()

	err := r.sync(ctx)

	r.mu.Lock()
	r.schedule.Finished(r.clock.Now(), err)
	r.lastErr = err
	r.notify()
	r.mu.Unlock()
}

// untilNext returns how long to wait for the next sync; false: until woken.
func (r *Runner) untilNext() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, due := r.schedule.Next()
	return at.Sub(r.clock.Now()), due
}

// sleep waits until the given time has passed (if timed), until woken, or until ctx ends.
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

// notify wakes all callers of WaitIdle. The caller holds r.mu.
func (r *Runner) notify() {
	close(r.changed)
	r.changed = make(chan struct{})
}
