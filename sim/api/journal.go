package api

import (
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxBehind is how many events a reader may be behind before writes wait.
	maxBehind = 256
	// history is how many past events a journal keeps at least, for watches that start from an older version: an
	// informer lists, then watches from the list's version. Older watches get 410 Gone and list again, as with the API
	// server's watch cache.
	history = 1024
)

// entry is one event with the version at which it happened.
type entry struct {
	version int64
	event   watch.Event
	key     string
	mark    Mark
	// before is set if labels changed: the object before the event, with the version of this event.
	before runtime.Object
}

// of returns the event that a watch shows, as the API server does. An object whose labels cease to match is shown as
// deleted, in its last visible state; one whose labels begin to match is added. A deleted object matches by its old
// labels.
func (e *entry) of(matches func(runtime.Object) bool) (event watch.Event, shown bool) {
	now := matches(e.event.Object)
	if e.before == nil {
		return e.event, now
	}
	event = e.event
	was := matches(e.before)
	switch {
	case e.event.Type == watch.Deleted:
		event.Object, now = e.before, was
	case was && !now:
		event = watch.Event{Type: watch.Deleted, Object: e.before}
	case !was:
		event.Type = watch.Added
	}
	return event, was || now
}

// Written returns what the Sequence of a watch needs.
func (e entry) Written() (string, int64, Mark) { return e.key, e.version, e.mark }

// journal is the sequence of events of one resource, with its readers. The Cluster's lock guards all of it; the
// condition is built on that lock.
type journal struct {
	wake *sync.Cond
	// entries[i] has the position first+i. Positions only grow.
	first   int64
	entries []entry
	// forgotten is the version of the last entry that was dropped.
	forgotten int64
	last      int64 // version of the last write
	readers   map[*reader]struct{}
	listed    bool
	// held reports whether readers have to wait. away is set during an outage: readers get no answer at all.
	held func() bool
	away bool
}

func newJournal(lock sync.Locker, held func() bool) *journal {
	return &journal{wake: sync.NewCond(lock), readers: map[*reader]struct{}{}, held: held}
}

func (j *journal) end() int64 { return j.first + int64(len(j.entries)) }

// append adds an event and wakes the readers.
func (j *journal) append(e entry) {
	j.entries = append(j.entries, e)
	j.last = e.version
	j.trim()
	j.wake.Broadcast()
}

// behind returns how many events the slowest reader has not taken yet.
func (j *journal) behind() int64 {
	slowest := j.end()
	for r := range j.readers {
		slowest = min(slowest, r.position)
	}
	return j.end() - slowest
}

// full reports whether writes have to wait for a reader. Writes do not wait for held readers: these cannot read, and
// find all events later.
func (j *journal) full() bool { return !j.away && !j.held() && j.behind() >= maxBehind }

// forget drops all entries, at the cluster's version. Readers that have not read them expire, as do those that began
// during the outage with an older version.
func (j *journal) forget(version int64) {
	j.first, j.entries, j.forgotten = j.end(), nil, version
	for r := range j.readers {
		if r.taking { // is delivered all the same
			r.position, r.taking = r.position+1, false
		}
		r.expired = r.expired || r.came && r.since < version || r.position < j.first
	}
	j.wake.Broadcast()
}

// trim drops entries that no reader needs, except the history. It moves the rest only once in a while, so that an
// append stays cheap.
func (j *journal) trim() {
	spare := int64(len(j.entries)) - max(j.behind(), history)
	if spare < history {
		return
	}
	j.forgotten = j.entries[spare-1].version
	j.entries = append([]entry(nil), j.entries[spare:]...)
	j.first += spare
}

// positionAfter returns the position of the first entry that is newer than a version.
func (j *journal) positionAfter(version int64) int64 {
	position := j.end()
	for position > j.first && j.entries[position-1-j.first].version > version {
		position--
	}
	return position
}

// resume returns the version after which a watch begins that has seen everything up to version. It is older if the
// entry of that version was swapped with older entries: the watch may have missed those.
func (j *journal) resume(version int64) int64 {
	if position := j.positionAfter(version); position > j.first {
		if last := j.entries[position-1-j.first]; last.version == version && last.mark.Since > 0 {
			return last.mark.Since
		}
	}
	return version
}

// reader is a watch: it hands the journal's entries to one consumer, in order, each when the consumer takes it. It
// drops nothing and does not panic, however slow the consumer is. In contrast, the watch of client-go's
// testing.ObjectTracker panics when 100 events wait.
type reader struct {
	journal   *journal
	position  int64
	namespace string // "" for all
	labels    labels.Selector
	initial   []runtime.Object // delivered as Added before anything else
	// came is set for a watch that began during an outage. since is the version at which the watch began.
	came    bool
	since   int64
	expired bool // the entries to read are forgotten
	taking  bool // the entry at position is being delivered
	order   Sequence[entry]
	ready   []entry
	stopped bool
	results chan watch.Event
	quit    chan struct{}
}

// ResultChan is closed after Stop.
func (r *reader) ResultChan() <-chan watch.Event { return r.results }

// Stop ends the watch. It may be called more than once.
func (r *reader) Stop() {
	r.journal.wake.L.Lock()
	defer r.journal.wake.L.Unlock()
	r.stop()
}

func (r *reader) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	close(r.quit)
	delete(r.journal.readers, r)
	r.journal.wake.Broadcast()
}

// run delivers until Stop.
func (r *reader) run() {
	defer close(r.results)
	if !r.answered() {
		return
	}
	for _, o := range r.initial {
		if r.matches(o) && !r.deliver(watch.Event{Type: watch.Added, Object: o}) {
			return
		}
	}
	r.initial = nil
	for {
		entries, ok := r.next()
		if !ok {
			return
		}
		for _, e := range entries {
			if !r.tell(e) {
				return
			}
		}
	}
}

// tell delivers an entry, twice if it is marked so.
func (r *reader) tell(e entry) bool {
	event, shown := e.of(r.matches)
	if !shown {
		return true
	}
	again := event
	if again.Type == watch.Added {
		again.Type = watch.Modified
	}
	return r.deliver(event) && (!e.mark.Twice || r.deliver(again))
}

func (r *reader) deliver(event watch.Event) bool {
	select {
	case r.results <- event:
		return true
	case <-r.quit:
		return false
	}
}

// answered waits for the end of an outage, and expires a watch that cannot resume where it was. It returns whether the
// watch goes on.
func (r *reader) answered() bool {
	j := r.journal
	j.wake.L.Lock()
	for !r.stopped && j.away {
		j.wake.Wait()
	}
	stopped, expired := r.stopped, r.expired
	j.wake.L.Unlock()
	if expired && !stopped {
		r.expire()
	}
	return !stopped && !expired
}

// expire ends the watch as the API server does: with an error event in its stream.
func (r *reader) expire() {
	status := apierrors.NewResourceExpired("too old resource version").Status()
	r.deliver(watch.Event{Type: watch.Error, Object: &status})
	r.Stop()
}

// next waits for entries to deliver. A call of next means that the entries it returned before have been taken.
func (r *reader) next() ([]entry, bool) {
	j := r.journal
	j.wake.L.Lock()
	defer j.wake.L.Unlock()
	r.moveOn()
	for !r.stopped {
		switch {
		case j.held():
		case r.expired:
			j.wake.L.Unlock()
			r.expire()
			j.wake.L.Lock()
			return nil, false
		default:
			ready := r.order.AppendReleased(r.ready[:0])
			if len(ready) == 0 && r.position < j.end() {
				r.taking = true
				if ready = r.order.Append(ready, j.entries[r.position-j.first]); len(ready) == 0 {
					r.moveOn()
					continue
				}
			}
			if len(ready) > 0 {
				r.ready = ready
				return ready, true
			}
		}
		j.wake.Wait()
	}
	return nil, false
}

// moveOn advances past the entry that was taken, and wakes a write that waits for this reader.
func (r *reader) moveOn() {
	if !r.taking {
		return
	}
	r.position, r.taking = r.position+1, false
	j := r.journal
	if j.end()-r.position == maxBehind-1 {
		j.wake.Broadcast()
	}
}

// matches applies the namespace and the label selector of the watch.
func (r *reader) matches(o runtime.Object) bool {
	m, err := meta.Accessor(o)
	if err != nil {
		return false
	}
	if r.namespace != metav1.NamespaceAll && r.namespace != m.GetNamespace() {
		return false
	}
	return r.labels == nil || r.labels.Empty() || r.labels.Matches(labels.Set(m.GetLabels()))
}
