package fault

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/subject/visible"
	"synclab/bench/verify/invariants"
	"synclab/scenarios"
	"synclab/sim"
)

// state is how far a fault has got. It never goes back, and may skip states.
type state int

const (
	planned state = iota // it has broken nothing yet
	active               // it breaks something
	ended                // it breaks nothing more, but what it broke or delayed is not repaired
	arrived              // also, the changes that it could delay are visible
	closed               // it is repaired, or was not in time, or affected nothing
)

// activeFault is one fault, from its step until what it broke is repaired.
type activeFault struct {
	*scenarios.Fault
	kind   *Kind
	name   string // as in Record.Fault
	step   string
	random *rand.Rand // the fault's stream of random numbers
	began  time.Time
	// stillMissing returns what is still missing, of a kind that shows objectsBack or entriesGone.
	stillMissing func() (string, error)
	asks         sync.Mutex     // guards stillMissing, which caches what it read; the follower and waiters call it
	stops        []func() error // end what it does, the last one first
	early        func()         // ends the wait of hold
	over         chan error     // gets the result of the end that hold makes
	pending      bool           // earlier changes were not visible when it started
	changed      time.Time      // the first change after its start, under Faults.mu

	mu       sync.Mutex
	state    state
	at       [closed + 1]time.Time     // when it got into a state; zero: it did not
	beyond   [closed + 1]chan struct{} // closed when it is in a state, or beyond
	detected bool
	synced   bool          // a sync or writing command succeeded that began after the fault
	left     int           // how many calls it must still affect
	struck   time.Time     // end of the last call that it affected
	follows  time.Time     // since when follow checks whether it is repaired
	awaited  time.Time     // of the first change after it that the kernel's watcher awaits
	longest  time.Duration // longest delay of a change that it could delay; see eachVisible
	shown    time.Time     // when the last of these became visible
}

// enter brings a fault into a state, if it is not beyond. The caller holds mu.
func (d *activeFault) enter(to state, at time.Time) {
	if d.state >= to {
		return
	}
	for d.state < to {
		d.state++
		close(d.beyond[d.state])
	}
	d.at[to] = at
}

// move is enter for callers that do not hold mu.
func (d *activeFault) move(to state, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.enter(to, at)
}

// is reports whether a fault is in a state or beyond.
func (d *activeFault) is(s state) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state >= s
}

// closedAt returns when a fault was closed; zero: it is open.
func (d *activeFault) closedAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.at[closed]
}

// await waits until a fault is in a state or beyond; false: ctx ended before.
func (d *activeFault) await(ctx context.Context, s state) bool {
	select {
	case <-d.beyond[s]:
		return true
	case <-ctx.Done():
		return false
	}
}

// Faults are the faults of a repetition: it injects them, and follows each until it is repaired.
type Faults struct {
	*pass.Env
	Host  *host.Host
	Tools toolFaults
	// Play makes changes of the world, as a step does.
	Play func(ctx context.Context, name string, plan func() (sim.Trace, error)) error
	// TableEmptied reports that a fault emptied a table, or all, so that rules of other programs in it are gone too.
	TableEmptied func(ctx context.Context, table string) error
	// Report records the results of invariants.
	Report func([]invariants.Result)

	// Only the goroutine of the steps uses these.
	count    int            // faults so far
	awaiting []*activeFault // those of the API that came before the subject, and begin with it
	ofAPI    *rand.Rand     // random numbers of faults of the API
	watching bool           // watchAnswers has begun

	flushes atomic.Int64 // how often tables were emptied

	mu sync.Mutex
	// meets gets each change before it is made, from the goroutine of the steps; nil: no fault waits for one.
	meets   func(runtime.Object)
	touched map[types.NamespacedName]time.Time // when each Service last changed, or its endpoints did
	changed time.Time                          // the last of these times
	all     []*activeFault
	holds   []*activeFault // that hold ends
	wait    sync.WaitGroup
	// following is the context of all followers, and cancel ends it.
	following context.Context
	cancel    context.CancelFunc
}

// list returns all faults so far.
func (r *Faults) list() []*activeFault {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.all)
}

// repairLook is the interval of checks for repairs, and the largest error of their recorded times.
const repairLook = 10 * time.Millisecond

// newFault makes a fault that has broken nothing yet.
func newFault(f *scenarios.Fault, step string) *activeFault {
	d := &activeFault{Fault: f, kind: Of(f.Kind), name: step + " " + f.Kind, step: step}
	for _, part := range []string{f.Object, f.Table} {
		if part != "" {
			d.name += " " + part
		}
	}
	if d.kind.lasts == forCalls {
		d.left = f.Times
	}
	for s := range d.beyond {
		d.beyond[s] = make(chan struct{})
	}
	return d
}

// start records that a fault breaks something from now on, or since began.
func (r *Faults) start(d *activeFault) {
	if d.began.IsZero() {
		d.began = r.Clock.Now()
	}
	d.pending = r.Host.Harness != nil && r.Host.Harness.Watcher.PendingSince(d.began) > 0
	r.RecordAs(raw.Record{At: d.began.Sub(r.Started).Seconds(), Step: d.step, Fault: d.name}, raw.FaultDuration, d.For.Seconds())
	d.move(active, d.began)
	r.mu.Lock()
	r.all = append(r.all, d)
	r.mu.Unlock()
}

// follow checks a fault until it is repaired.
func (r *Faults) follow(d *activeFault) {
	if !d.follows.IsZero() {
		return
	}
	ctx := r.Context()
	d.mu.Lock()
	d.follows = r.Clock.Now()
	d.mu.Unlock()
	r.wait.Go(func() {
		ticker := r.Clock.NewTicker(repairLook)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.beyond[closed]:
				return
			case <-ticker.C():
			}
			r.look(d)
		}
	})
}

// look checks once whether a fault has ended, whether its changes have arrived, and whether it is repaired.
func (r *Faults) look(d *activeFault) {
	now := r.Clock.Now()
	if d.kind.lasts == forChanges && r.apiSide().Disturbs() == 0 {
		d.move(ended, now)
	}
	d.mu.Lock()
	upTo := d.upTo()
	d.mu.Unlock()
	// Later changes do not count: under continuous churn, some are always pending.
	if upTo.IsZero() || r.Host.Harness != nil && r.Host.Harness.Watcher.PendingSince(upTo) > 0 {
		return
	}
	d.move(arrived, now)
	if !d.kind.shows.asked() {
		return
	}
	if stillMissing, err := d.missing(); stillMissing == "" && err == nil {
		r.repair(d, now)
	}
}

// upTo is the time of the last change that the fault could delay; zero: not known yet. The caller holds mu.
func (d *activeFault) upTo() time.Time {
	switch d.kind.shows {
	case objectsBack, entriesGone:
		return d.follows // the watcher rechecks the subject's rules from then on
	case nextVisible:
		return d.awaited
	}
	return d.at[ended]
}

// from is the earliest time at which a repair could begin. The caller holds mu.
func (d *activeFault) from() time.Time {
	switch {
	case d.kind.shows.asked():
	case d.kind.shows == nextVisible && !d.awaited.IsZero():
		return d.awaited
	case !d.at[ended].IsZero():
		return d.at[ended]
	}
	return d.began
}

// Changing notes that a Service or its endpoints change, and lets a fault that waits for a change affect it.
func (r *Faults) Changing(c mirror.Change) {
	r.touch(c.Object, r.Clock.Now())
	if r.meets != nil {
		r.meets(c.Object)
	}
}

func (r *Faults) touch(object runtime.Object, at time.Time) {
	name := mirror.ServiceOf(object)
	if name.Name == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.touched == nil {
		r.touched = map[types.NamespacedName]time.Time{}
	}
	r.touched[name], r.changed = at, latest(r.changed, at)
	for _, d := range r.all {
		if d.changed.IsZero() && at.After(d.began) {
			d.changed = at
		}
	}
}

// changedBefore reports whether a sync that began at a moment may be for a change, and not for a fault.
func (r *Faults) changedBefore(d *activeFault, moment time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return d.pending || !d.changed.IsZero() && d.changed.Before(moment)
}

// touchedSince reports whether a Service or its endpoints changed at or after a moment.
func (r *Faults) touchedSince(name types.NamespacedName, moment time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, changed := r.touched[name]
	return changed && !at.Before(moment)
}

// Awaited records the time of a change that the kernel's watcher awaits.
func (r *Faults) Awaited() {
	now := r.Clock.Now()
	for _, d := range r.open() {
		d.mu.Lock()
		if d.awaited.IsZero() {
			d.awaited = now
		}
		d.mu.Unlock()
	}
}

// Visible records how long a change took that became visible.
func (r *Faults) Visible(s visible.VisibleChange) {
	for _, d := range r.open() {
		d.mu.Lock()
		if d.kind.shows == eachVisible && s.Due.After(d.began) && (d.at[ended].IsZero() || !s.Due.After(d.at[ended])) {
			d.longest = max(d.longest, s.Visible.Sub(s.Due))
			d.shown = s.Visible
		}
		d.mu.Unlock()
	}
}

func (d *activeFault) missing() (string, error) {
	if d.stillMissing == nil {
		return "", nil
	}
	d.asks.Lock()
	defer d.asks.Unlock()
	return d.stillMissing()
}

// repair records that a fault is repaired, as of a time.
func (r *Faults) repair(d *activeFault, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == closed {
		return
	}
	d.enter(closed, at)
	took := at.Sub(d.from())
	if d.kind.shows == eachVisible {
		took = d.longest
	}
	r.RecordAs(raw.Record{At: at.Sub(r.Started).Seconds(), Step: d.step, Fault: d.name}, raw.FaultRepaired, max(0, took.Seconds()))
}

// withoutEffect closes a fault that affected nothing.
func (r *Faults) withoutEffect(d *activeFault) {
	d.move(closed, r.Clock.Now())
	r.note(d, "it affected nothing")
}

// endStruck ends a fault of a number of calls at the last call that it affected. It still affects the remaining calls.
// false: it affected none.
func (d *activeFault) endStruck() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.left > 0 && !d.struck.IsZero() {
		d.enter(ended, d.struck)
	}
	return !d.struck.IsZero()
}

// open returns the faults that are not repaired.
func (r *Faults) open() []*activeFault {
	return slices.DeleteFunc(r.list(), func(d *activeFault) bool { return d.is(closed) })
}

// Context returns the context of all followers; End ends it.
func (r *Faults) Context() context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.following == nil {
		r.following, r.cancel = context.WithCancel(context.Background())
	}
	return r.following
}

// AwaitRepairs waits until removed objects are back, and until faults have ended that end by themselves before ctx.
func (r *Faults) AwaitRepairs(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	for _, d := range r.open() {
		if d.kind.lasts == forTime && d.began.Add(d.For).Before(deadline) && !d.await(ctx, ended) {
			return fmt.Errorf("%s is still active: %w", d.name, context.Cause(ctx))
		}
		if d.kind.shows.asked() && !d.await(ctx, closed) {
			return fmt.Errorf("%s: %w", d.still(), context.Cause(ctx))
		}
	}
	return nil
}

// still says what is still missing after a fault.
func (d *activeFault) still() string {
	stillMissing, err := d.missing()
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", d.name, err)
	case stillMissing != "":
		return d.name + ": " + stillMissing
	}
	return d.name + ": the changes that it delayed are not visible yet"
}

// Settled records the repair of faults that show in changes: all these changes have arrived by now.
func (r *Faults) Settled() {
	for _, d := range r.open() {
		d.endStruck()
		r.look(d)
		d.mu.Lock()
		at, effect := d.visible()
		goesOn := d.kind.shows.asked() || d.state < ended && d.kind.shows != eachVisible
		d.mu.Unlock()
		switch {
		case goesOn:
		case effect:
			r.repair(d, at)
		default:
			r.withoutEffect(d)
		}
	}
}

// visible returns when the last change became visible that shows the repair; false: the fault affected nothing. The
// caller holds mu.
func (d *activeFault) visible() (at time.Time, effect bool) {
	at, effect = d.at[arrived], true
	switch {
	case d.kind.Planted != "":
		effect = !d.struck.IsZero()
	case d.kind.shows == eachVisible:
		at, effect = d.shown, !d.shown.IsZero()
	case d.kind.shows == nextVisible:
		effect = !d.awaited.IsZero()
	}
	return latest(at, d.from()), effect
}

// RulesMissing reports whether rules may have been missing at a moment.
func (r *Faults) RulesMissing(at time.Time) bool {
	return slices.ContainsFunc(r.list(), func(d *activeFault) bool {
		done := d.closedAt()
		return d.kind.removesRules && !at.Before(d.began) && (done.IsZero() || !at.After(done))
	})
}

// SubjectEnded returns the beginning of the first fault that may have ended the subject's process, and was open at some
// time between from and to; zero: there was none.
func (r *Faults) SubjectEnded(from, to time.Time) (began time.Time) {
	for _, d := range r.list() {
		done := d.closedAt()
		if d.kind.endsSubject && d.began.Before(to) && (done.IsZero() || done.After(from)) && (began.IsZero() || d.began.Before(began)) {
			began = d.began
		}
	}
	return began
}

// knownWithin is the time after which a subject knows of a change. Restores that start later include it.
const knownWithin = time.Second

// UnchangedSince returns the time from which the subject's restores were for the current desired state, without external
// writes. Later, there was no change that the subject might not know, and no fault except those that make restores fail.
// known is false while a fault is active.
func (r *Faults) UnchangedSince() (time.Time, bool) {
	r.mu.Lock()
	all, since := slices.Clone(r.all), r.changed
	r.mu.Unlock()
	for _, d := range all {
		done := d.closedAt()
		if done.IsZero() {
			return time.Time{}, false
		}
		if !d.kind.FailsRestores {
			since = latest(since, done)
		}
	}
	return since.Add(knownWithin), true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Follower runs do until the repetition's faults end.
func (r *Faults) Follower(do func(context.Context)) {
	ctx := r.Context()
	r.wait.Go(func() { do(ctx) })
}
