package sim

import (
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// maxBehind is how many events a watcher may be behind before writes wait.
	maxBehind = 256
	// history is how many past events a journal keeps at least, for watches that
	// start from an older version: an informer lists, then watches from the
	// list's version. Older ones get 410 Gone and list again, as with the API
	// server's watch cache.
	history = 1024
)

// entry is one event with the version at which it happened.
type entry struct {
	version int64
	event   watch.Event
}

// journal is the sequence of events of one resource, and those who read it. All
// of it is guarded by the Cluster's lock, on which the condition is built.
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
}

func newJournal(lock sync.Locker) *journal {
	return &journal{wake: sync.NewCond(lock), readers: map[*reader]struct{}{}}
}

func (j *journal) end() int64 { return j.first + int64(len(j.entries)) }

// append adds an event and wakes the readers.
func (j *journal) append(version int64, event watch.Event) {
	j.entries = append(j.entries, entry{version, event})
	j.last = version
	j.trim()
	j.wake.Broadcast()
}

// behind is how many events the slowest reader has not taken yet.
func (j *journal) behind() int64 {
	slowest := j.end()
	for r := range j.readers {
		slowest = min(slowest, r.position)
	}
	return j.end() - slowest
}

// trim drops entries that no reader needs, but for the history. It moves the
// rest once in a while only, so that an append stays cheap.
func (j *journal) trim() {
	spare := int64(len(j.entries)) - max(j.behind(), history)
	if spare < history {
		return
	}
	j.forgotten = j.entries[spare-1].version
	j.entries = append([]entry(nil), j.entries[spare:]...)
	j.first += spare
}

// positionAfter finds the first entry that is newer than a version.
func (j *journal) positionAfter(version int64) int64 {
	position := j.end()
	for position > j.first && j.entries[position-1-j.first].version > version {
		position--
	}
	return position
}

// reader is a watch: it hands the journal's entries to one consumer, in order,
// each when the consumer takes it. Nothing is dropped and nothing panics,
// however slow the consumer is; see client-go's testing.ObjectTracker, whose
// watch panics when 100 events wait.
type reader struct {
	journal   *journal
	position  int64
	namespace string // "" for all
	labels    labels.Selector
	initial   []runtime.Object // delivered as Added before anything else
	stopped   bool
	results   chan watch.Event
	quit      chan struct{}
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
	for _, o := range r.initial {
		if r.matches(o) && !r.deliver(watch.Event{Type: watch.Added, Object: o}) {
			return
		}
	}
	r.initial = nil
	for {
		event, ok := r.next()
		if !ok || r.matches(event.Object) && !r.deliver(event) {
			return
		}
		r.taken()
	}
}

func (r *reader) deliver(event watch.Event) bool {
	select {
	case r.results <- event:
		return true
	case <-r.quit:
		return false
	}
}

// next waits for the entry at the reader's position.
func (r *reader) next() (watch.Event, bool) {
	j := r.journal
	j.wake.L.Lock()
	defer j.wake.L.Unlock()
	for !r.stopped && r.position == j.end() {
		j.wake.Wait()
	}
	if r.stopped {
		return watch.Event{}, false
	}
	return j.entries[r.position-j.first].event, true
}

// taken moves on, and wakes a write that waits for this reader.
func (r *reader) taken() {
	j := r.journal
	j.wake.L.Lock()
	defer j.wake.L.Unlock()
	r.position++
	if j.end()-r.position == maxBehind-1 {
		j.wake.Broadcast()
	}
}

// matches applies the namespace and the label selector of the watch. An object
// whose labels cease to match is not reported as deleted: the simulation never
// changes labels.
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
