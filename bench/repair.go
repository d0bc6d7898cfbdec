package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/visible"
	"synclab/scenarios"
)

// damage is one fault from its moment on, until what it broke is as it should be.
type damage struct {
	fault string // as in Record.Fault
	step  string
	kind  string
	began time.Time
	// lacks says what is not back yet; nil: the fault took nothing away, and shows in how changes arrive.
	lacks func() (string, error)
	asks  sync.Mutex // held while lacks answers, which remembers what it read: who follows and who waits both ask
	// planted is what the shim calls the fault of a call; empty: none is planted.
	planted string
	left    int       // how many calls it has still to hit
	until   time.Time // when it ends by itself; zero: it does not, or by what the subject does

	mu       sync.Mutex
	noticed  bool
	hit      bool          // a planted fault has hit a call
	struck   time.Time     // end of the last call that it hit
	wrote    time.Time     // end of the first sync, or command that wrote, that began after it and succeeded
	last     time.Time     // the same of the last one
	follows  time.Time     // since when somebody looks whether it is repaired
	tells    time.Time     // when the first change was made after it
	arrived  time.Time     // since when all changes have arrived that it could be in the way of
	longest  time.Duration // that one of these changes waited; of faults that meet each by itself
	shown    time.Time     // when the last of them was visible
	over     chan struct{}
	ended    time.Time // when it stopped breaking things; zero: it holds
	repaired chan struct{}
	closed   bool
	done     time.Time // when it was closed
}

// damages are those of a repetition.
type damages struct {
	mu      sync.Mutex
	count   int          // of faults so far
	flushed atomic.Int64 // how often tables were emptied
	// meets is called with each change before it is made, from the goroutine of the steps; nil: nobody waits for one.
	meets   func(runtime.Object)
	touched map[types.NamespacedName]time.Time // when each Service last changed, or its endpoints did
	all     []*damage
	holds   []*hold
	watched bool // answers are taken in
	wait    sync.WaitGroup
	// following is the context of all who follow, and cancel ends it.
	following context.Context
	cancel    context.CancelFunc
}

// repairLook is how often is looked whether a damage is repaired: records of repairs are late by so much at most.
const repairLook = 10 * time.Millisecond

// describe is a fault as records name it.
func describe(name string, f *scenarios.Fault) string {
	text := name + " " + f.Kind
	if f.Object != "" {
		text += " " + f.Object
	}
	if f.Table != "" {
		text += " " + f.Table
	}
	return text
}

// wound begins a damage: the fault is done, or holds from now on. For faults that hold it has to be ended (over).
func (r *repetition) wound(ctx context.Context, f *scenarios.Fault, name string, d *damage) (*damage, error) {
	d.fault, d.step, d.kind = describe(name, f), name, f.Kind
	d.over, d.repaired = make(chan struct{}), make(chan struct{})
	if d.began.IsZero() {
		d.began = r.clock.Now()
	}
	if f.Holds() {
		d.until = d.began.Add(f.For)
	}
	r.recordAs(Record{At: d.began.Sub(r.started).Seconds(), Unit: "s", Step: d.step, Fault: d.fault}, FaultBegun, f.For.Seconds())
	if err := r.watchAnswers(ctx); err != nil {
		return nil, err
	}
	r.damages.mu.Lock()
	r.damages.all = append(r.damages.all, d)
	r.damages.mu.Unlock()
	return d, nil
}

// follow looks after a damage until it is repaired.
func (r *repetition) follow(d *damage) {
	ctx := r.damages.context()
	d.mu.Lock()
	d.follows = r.clock.Now()
	d.mu.Unlock()
	r.damages.wait.Go(func() {
		ticker := r.clock.NewTicker(repairLook)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-d.repaired:
				return
			case <-ticker.C():
			}
			r.look(d)
		}
	})
}

// look asks once whether a damage is repaired.
func (r *repetition) look(d *damage) {
	now := r.clock.Now()
	if d.counted() && r.apiSide().Disturbs() == 0 {
		d.end(now)
	}
	d.mu.Lock()
	upTo := d.upTo()
	d.mu.Unlock()
	// Changes that come later tell nothing of it: where some come all the time, some are always on their way.
	if upTo.IsZero() || r.tunnel != nil && r.tunnel.visible.PendingSince(upTo) > 0 {
		return
	}
	d.mu.Lock()
	if d.arrived.IsZero() {
		d.arrived = now
	}
	synced := d.kind != scenarios.FaultKilled || !d.wrote.IsZero()
	d.mu.Unlock()
	if d.showsInChanges() || !synced {
		return
	}
	if lacks, err := d.missing(); lacks == "" && err == nil {
		r.repair(d, now)
	}
}

// showsInChanges says that nothing was taken away that would have to come back.
func (d *damage) showsInChanges() bool { return d.lacks == nil && d.kind != scenarios.FaultKilled }

// upTo is when the last change was made that it could be in the way of; zero: not known yet. The caller holds mu.
func (d *damage) upTo() time.Time {
	switch {
	case !d.showsInChanges():
		return d.follows // the subject's rules are looked up anew as of then
	case d.kind == scenarios.FaultWatchDropped:
		return d.tells
	}
	return d.ended
}

// touch notes that a Service changes, or its endpoints do.
func (d *damages) touch(object runtime.Object, at time.Time) {
	var name types.NamespacedName
	switch o := object.(type) {
	case *corev1.Service:
		name = types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		name = types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	default:
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.touched == nil {
		d.touched = map[types.NamespacedName]time.Time{}
	}
	d.touched[name] = at
}

// touchedSince says whether a Service has changed since a moment.
func (d *damages) touchedSince(name types.NamespacedName, moment time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, changed := d.touched[name]
	return changed && !at.Before(moment)
}

// changed notes that a change is made that is waited for.
func (r *repetition) changed() {
	now := r.clock.Now()
	for _, d := range r.open() {
		d.mu.Lock()
		if d.tells.IsZero() {
			d.tells = now
		}
		d.mu.Unlock()
	}
}

// waited notes how long a change took that has become visible.
func (r *repetition) waited(s visible.Sight) {
	for _, d := range r.open() {
		d.mu.Lock()
		if d.meetsEach() && s.Due.After(d.began) && (d.ended.IsZero() || !s.Due.After(d.ended)) {
			d.longest = max(d.longest, s.Visible.Sub(s.Due))
			d.shown = s.Visible
		}
		d.mu.Unlock()
	}
}

func (d *damage) missing() (string, error) {
	if d.lacks == nil {
		return "", nil
	}
	d.asks.Lock()
	defer d.asks.Unlock()
	return d.lacks()
}

// repair records that a damage is repaired, as of a moment.
func (r *repetition) repair(d *damage, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	d.close(at)
	took := at.Sub(d.from())
	if d.meetsEach() {
		took = d.longest
	}
	r.recordAs(Record{At: at.Sub(r.started).Seconds(), Unit: "s", Step: d.step, Fault: d.fault}, FaultRepaired, max(0, took.Seconds()))
}

// close says that nothing is waited for any more. The caller holds mu.
func (d *damage) close(at time.Time) {
	d.closed, d.done = true, at
	close(d.repaired)
}

// from is when repairing could begin.
func (d *damage) from() time.Time {
	switch {
	case !d.showsInChanges():
	case d.kind == scenarios.FaultWatchDropped && !d.tells.IsZero():
		return d.tells
	case !d.ended.IsZero():
		return d.ended
	}
	return d.began
}

// end says that a fault breaks nothing more.
func (d *damage) end(at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended.IsZero() {
		d.ended = at
		close(d.over)
	}
}

// endStruck ends a fault that hits a number of calls with the last one that it hit: what it has still to hit is another
// matter.
func (d *damage) endStruck() {
	d.mu.Lock()
	at, ends := d.struck, d.left > 0 && d.hit
	d.mu.Unlock()
	if ends {
		d.end(at)
	}
}

// open are the damages that are not repaired.
func (r *repetition) open() []*damage {
	r.damages.mu.Lock()
	defer r.damages.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.damages.all), func(d *damage) bool {
		select {
		case <-d.repaired:
			return true
		default:
			return false
		}
	})
}

// context is that of all who follow damages; it ends with endFaults.
func (d *damages) context() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.following == nil {
		d.following, d.cancel = context.WithCancel(context.Background())
	}
	return d.following
}

// awaitRepairs waits until what faults took away is back, and those that end by themselves before ctx does have ended.
func (r *repetition) awaitRepairs(ctx context.Context) error {
	deadline, _ := ctx.Deadline()
	for _, d := range r.open() {
		if !d.until.IsZero() && d.until.Before(deadline) {
			select {
			case <-d.over:
			case <-ctx.Done():
				return fmt.Errorf("%s still holds: %w", d.fault, context.Cause(ctx))
			}
		}
		if d.showsInChanges() {
			continue
		}
		select {
		case <-d.repaired:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", d.still(), context.Cause(ctx))
		}
	}
	return nil
}

// still says what a damage lacks.
func (d *damage) still() string {
	lacks, err := d.missing()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", d.fault, err)
	case lacks != "":
		return d.fault + ": " + lacks
	case d.kind == scenarios.FaultKilled && d.wrote.IsZero():
		return d.fault + ": no sync since"
	}
	return d.fault + ": its changes have not arrived"
}

// settledFaults records the repair of faults that show in changes: all of these have arrived by now.
func (r *repetition) settledFaults() {
	for _, d := range r.open() {
		d.endStruck()
		r.look(d)
		d.mu.Lock()
		at, ready := d.arrived, d.showsInChanges() && (!d.ended.IsZero() || d.meetsEach())
		idle := d.planted != "" && !d.hit
		idle = idle || d.meetsEach() && d.shown.IsZero() || d.kind == scenarios.FaultWatchDropped && d.tells.IsZero()
		if d.meetsEach() {
			at = d.shown
		}
		if at.Before(d.from()) {
			at = d.from()
		}
		if ready && idle && !d.closed {
			d.close(r.clock.Now())
		}
		d.mu.Unlock()
		switch {
		case ready && idle:
			r.note(d, "it hit nothing")
		case ready:
			r.repair(d, at)
		}
	}
}

// meetsEach says that a fault meets changes one by one: what it costs is how long one of them waited at most.
func (d *damage) meetsEach() bool { return d.kind == scenarios.FaultReference || d.counted() }

// counted says that a fault of the API ends when it has met as many changes as it shall.
func (d *damage) counted() bool {
	return d.kind == scenarios.FaultEventsRepeated || d.kind == scenarios.FaultEventsSwapped
}
