package pass

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/mirror"
	"synclab/bench/subject/visible"
	"synclab/proxier"
	"synclab/sim"
)

// Events connect the parts of a repetition. A part that causes an event does not know its listeners. They are called in
// the order of the lists, by the goroutine that causes the event, without a lock. step.New fills all lists, so the
// order can be read in one place.
type Events struct {
	// Changing: a change of the cluster is about to be made.
	Changing []func(mirror.Change)
	// Awaited: the kernel's watcher waits for the change that is about to be made.
	Awaited []func()
	// Visible: the kernel shows a change.
	Visible []func(visible.VisibleChange)
	// Synced: the lab's own proxier reported a sync.
	Synced []func(proxier.Sync)
	// Stepping: a step begins.
	Stepping []func(name string, at time.Time)
	// Starting: the subject is about to start.
	Starting []func(context.Context) error
	// Opened: everything that the first subject process needs is ready.
	Opened []func(context.Context) error
	// Restarting: the subject is about to be stopped and started again.
	Restarting []func(context.Context)

	last mirror.Change
}

// Change reports a change that is about to be made. due is its planned time.
func (e *Events) Change(op sim.Op, object runtime.Object, due time.Time) {
	number := e.last.Number
	if !due.Equal(e.last.Due) {
		number++
	}
	e.last = mirror.Change{Number: number, Due: due, Op: op, Object: object}
	for _, listen := range e.Changing {
		listen(e.last)
	}
}
