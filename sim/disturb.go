package sim

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Disturbance is what goes wrong between the objects and those who watch them. A
// Cluster has one for its own watches, a front for those of its clients. It
// knows no time: what is begun holds until it is ended, or has hit as often as
// it was told to. The zero value disturbs nothing; it may be used from several
// goroutines.
//
// Whoever has one asks it for the Mark of each write and keeps the Mark with the
// event, so that every watch that tells the event does so in the same way, and
// asks before it tells anything whether watches are held.
//
// No disturbance loses an event for good, with two exceptions that the API
// knows, too: who is overtaken by the history, or finds it forgotten, is told
// 410 Gone and lists again.
type Disturbance struct {
	mu sync.Mutex
	// changed wakes the owner's watches. It is called without the lock.
	changed      func()
	stalled      bool
	servicesHeld bool
	repeat, swap int
	// late has, for each resource, the event that is told after the next one of
	// another object, which has not come yet.
	late map[schema.GroupVersionResource]lateEvent
	// released is the version up to which no event waits for another any more;
	// marked is the last one that was late.
	released, marked int64
}

type lateEvent struct {
	key     string
	version int64
}

// Mark is how watches tell of one write.
type Mark struct {
	// Twice: the event is told twice in a row, the second time as a modification
	// unless it is a deletion. The API server does not do this; informers have to
	// cope with it all the same, because a watch that begins again may repeat.
	Twice bool
	// Late: the event is told after the next one of another object, together with
	// what else happens to its own object until then.
	Late bool
	// Since is set for an event that is told before older ones. A watch that
	// begins at exactly its version cannot know of those: it begins at Since.
	Since int64
}

// OnChange sets what is called, without any lock of the Disturbance, whenever
// watches should look again. It comes before everything else.
func (d *Disturbance) OnChange(changed func()) { d.changed = changed }

// Stall holds all watches, or lets them go: they stay open and tell nothing.
// Lists, and what stands for one at the beginning of a watch, are answered.
func (d *Disturbance) Stall(on bool) { d.set(func() { d.stalled = on }) }

// HoldServices holds the watches of Services, or lets them go, so that all else
// is told before the Services it belongs to.
func (d *Disturbance) HoldServices(on bool) { d.set(func() { d.servicesHeld = on }) }

// Repeat has the next writes told twice.
func (d *Disturbance) Repeat(writes int) { d.set(func() { d.repeat = writes }) }

// Swap has the next writes change places with the one after them to another
// object of the same resource, as often as it says. The order of what happens to
// one object stays. A write waits for the next one until Settle, or Heal.
func (d *Disturbance) Swap(times int) { d.set(func() { d.swap = times }) }

// Settle ends the waiting of those writes that still wait for another to change
// places with, if they are not newer than a version; the next ones go on changing
// places.
func (d *Disturbance) Settle(version int64) {
	d.set(func() {
		d.released = max(d.released, version)
		for resource, e := range d.late {
			if e.version <= version {
				delete(d.late, resource)
			}
		}
	})
}

// Waits is the version of the last write that changes places, if one waits for
// another now; 0 otherwise.
func (d *Disturbance) Waits() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.late) == 0 {
		return 0
	}
	return d.marked
}

// Disturbs is how many writes are still to be told twice or to change places,
// those that wait for another one included.
func (d *Disturbance) Disturbs() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.repeat + d.swap + len(d.late)
}

// Heal ends all of it. What was held is told.
func (d *Disturbance) Heal() {
	d.set(func() {
		d.stalled, d.servicesHeld, d.repeat, d.swap = false, false, 0, 0
		d.released, d.late = max(d.released, d.marked), nil
	})
}

func (d *Disturbance) set(what func()) {
	d.mu.Lock()
	what()
	d.mu.Unlock()
	if d.changed != nil {
		d.changed()
	}
}

// Holds says whether the watches of a resource have to wait.
func (d *Disturbance) Holds(resource schema.GroupVersionResource) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stalled || d.servicesHeld && resource == servicesResource
}

// MarkOf is how to tell of a write to an object, whose key is unique in its
// resource. Each write asks once, in the order of versions.
func (d *Disturbance) MarkOf(resource schema.GroupVersionResource, key string, version int64) Mark {
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

func (d *Disturbance) waitsStill(version int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return version > d.released
}

// Told is an event of a watch.
type Told interface {
	// Told gives the event's object, the version of the write, and its Mark.
	Told() (key string, version int64, m Mark)
}

// Sequence is the order in which one watch tells its events: that of the
// versions, but for those that are marked. One goroutine uses it.
type Sequence[E Told] struct {
	disturbance *Disturbance
	late        []E // of one object
	key         string
	version     int64 // of the first of them
}

// NewSequence makes the sequence of one watch.
func NewSequence[E Told](d *Disturbance) Sequence[E] { return Sequence[E]{disturbance: d} }

// Append takes the next event, in the order of versions, and appends what is to
// be told now. Events that the watch does not show pass through it, too:
// otherwise what changes places with them could be lost when the watch ends.
func (s *Sequence[E]) Append(told []E, e E) []E {
	key, version, m := e.Told()
	switch {
	case len(s.late) > 0 && key == s.key:
		s.late = append(s.late, e)
	case len(s.late) > 0:
		told = append(append(told, e), s.late...)
		s.late = s.late[:0]
	case m.Late && s.disturbance.waitsStill(version):
		s.late, s.key, s.version = append(s.late, e), key, version
	default:
		told = append(told, e)
	}
	return told
}

// AppendReleased appends what need not wait any more. It comes before the next
// event is taken.
func (s *Sequence[E]) AppendReleased(told []E) []E {
	if len(s.late) > 0 && !s.disturbance.waitsStill(s.version) {
		told = append(told, s.late...)
		s.late = s.late[:0]
	}
	return told
}

// Waiting says whether something is told later than its version.
func (s *Sequence[E]) Waiting() bool { return len(s.late) > 0 }
