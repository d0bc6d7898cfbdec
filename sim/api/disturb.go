package api

import (
	"sync"
	"synclab/sim"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// WatchFaults is a set of watch faults. A Cluster has one for its own watches, a fake API server (sim/front) one for
// those of its clients. It knows no time: a fault is active until it is ended, or until it has hit the requested number
// of times. The zero value disturbs nothing. It is safe for concurrent use.
//
// The owner calls MarkOf for each write and keeps the Mark with the event, so that every watch delivers the event in
// the same way. Before a watch delivers anything, it checks Holds.
//
// No disturbance loses an event for good, with two exceptions that the API knows, too. A watch that the history has
// overtaken, or whose history is forgotten, gets 410 Gone, and its client lists again.
type WatchFaults struct {
	mu sync.Mutex
	// changed wakes the owner's watches. It is called without the lock.
	changed      func()
	stalled      bool
	servicesHeld bool
	repeat, swap int
	// late holds, for each resource, the event to deliver after the next one of another object, which has not come
	// yet.
	late map[schema.GroupVersionResource]lateEvent
	// released is the version up to which no event waits for another any more. marked is the version of the last late
	// event.
	released, marked int64
}

type lateEvent struct {
	key     string
	version int64
}

// Mark says how watches deliver the event of one write.
type Mark struct {
	// Twice: the event is delivered twice in a row, the second time as a modification unless it is a deletion. The API
	// server does not do this. Informers must handle it anyway, because a watch that begins again may repeat.
	Twice bool
	// Late: the event is delivered after the next one of another object, together with all events of its own object
	// until then.
	Late bool
	// Since is set for an event that is delivered before older ones. A watch that begins at exactly its version may
	// have missed those: it begins at Since.
	Since int64
}

// OnChange sets the function to call whenever watches should check again. It is called without any lock of the
// WatchFaults. OnChange must be called before all other methods.
func (d *WatchFaults) OnChange(changed func()) { d.changed = changed }

// Stall stops or resumes delivery on all watches; they stay open. Lists, and initial objects in place of a list at the
// beginning of a watch, are delivered.
func (d *WatchFaults) Stall(on bool) { d.set(func() { d.stalled = on }) }

// HoldServices stops or resumes delivery on the watches of Services, so that all other objects are delivered before
// the Services they belong to.
func (d *WatchFaults) HoldServices(on bool) { d.set(func() { d.servicesHeld = on }) }

// Repeat makes watches deliver the next writes twice.
func (d *WatchFaults) Repeat(writes int) { d.set(func() { d.repeat = writes }) }

// Swap swaps each of the next writes, times of them, with the next write to another object of the same resource. The
// order of writes to one object stays. A write waits for its partner until Settle, or Heal.
func (d *WatchFaults) Swap(times int) { d.set(func() { d.swap = times }) }

// Settle releases the writes that still wait for a partner, if they are not newer than version. Later writes are still
// swapped.
func (d *WatchFaults) Settle(version int64) {
	d.set(func() {
		d.released = max(d.released, version)
		for resource, e := range d.late {
			if e.version <= version {
				delete(d.late, resource)
			}
		}
	})
}

// Waits returns the version of the last write to be swapped, if one waits for its partner now; 0 otherwise.
func (d *WatchFaults) Waits() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.late) == 0 {
		return 0
	}
	return d.marked
}

// Disturbs returns how many writes are still to be repeated or swapped, including those that wait for a partner.
func (d *WatchFaults) Disturbs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repeat + d.swap + len(d.late)
}

// Heal ends all disturbances. Events that were held are delivered.
func (d *WatchFaults) Heal() {
	d.set(func() {
		d.stalled, d.servicesHeld, d.repeat, d.swap = false, false, 0, 0
		d.released, d.late = max(d.released, d.marked), nil
	})
}

func (d *WatchFaults) set(what func()) {
	d.mu.Lock()
	what()
	d.mu.Unlock()
	if d.changed != nil {
		d.changed()
	}
}

// Holds reports whether the watches of a resource have to wait.
func (d *WatchFaults) Holds(resource schema.GroupVersionResource) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalled || d.servicesHeld && resource == sim.ServicesResource
}

// MarkOf returns the Mark of a write to an object, whose key is unique in its resource. Call it once for each write,
// in the order of versions.
func (d *WatchFaults) MarkOf(resource schema.GroupVersionResource, key string, version int64) Mark {
	d.mu.Lock()
	defer d.mu.Unlock()
	var m Mark
	if d.repeat > 0 {
		d.repeat--
		m.Twice = true
	}
	waiting, waits := d.late[resource]
	switch {
	case waits && waiting.key != key:
		m.Since = waiting.version - 1
		delete(d.late, resource)
	case !waits && d.swap > 0:
		d.swap--
		m.Late = true
		d.marked = version
		if d.late == nil {
			d.late = map[schema.GroupVersionResource]lateEvent{}
		}
		d.late[resource] = lateEvent{key, version}
	}
	return m
}

func (d *WatchFaults) waitsStill(version int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return version > d.released
}

// WatchEvent is an event of a watch.
type WatchEvent interface {
	// Written returns the key of the event's object, the version of the write, and its Mark.
	Written() (key string, version int64, m Mark)
}

// Sequence is the order in which one watch delivers its events: version order, except for marked events. One goroutine
// uses it.
type Sequence[E WatchEvent] struct {
	disturbance *WatchFaults
	late        []E // of one object
	key         string
	version     int64 // of the first late event
}

// NewSequence returns the sequence of one watch.
func NewSequence[E WatchEvent](d *WatchFaults) Sequence[E] { return Sequence[E]{disturbance: d} }

// Append takes the next event, in the order of versions, and appends the events to deliver now to ready. Events that
// the watch filters out must pass through it, too: a late event that waits for them could be lost when the watch ends.
func (s *Sequence[E]) Append(ready []E, e E) []E {
	key, version, m := e.Written()
	switch {
	case len(s.late) > 0 && key == s.key:
		s.late = append(s.late, e)
	case len(s.late) > 0:
		ready = append(append(ready, e), s.late...)
		s.late = s.late[:0]
	case m.Late && s.disturbance.waitsStill(version):
		s.late, s.key, s.version = append(s.late, e), key, version
	default:
		ready = append(ready, e)
	}
	return ready
}

// AppendReleased appends late events that need not wait any more. Call it before the next event is taken.
func (s *Sequence[E]) AppendReleased(ready []E) []E {
	if len(s.late) > 0 && !s.disturbance.waitsStill(s.version) {
		ready = append(ready, s.late...)
		s.late = s.late[:0]
	}
	return ready
}

// Waiting reports whether late events wait.
func (s *Sequence[E]) Waiting() bool { return len(s.late) > 0 }
