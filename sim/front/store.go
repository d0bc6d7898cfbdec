package front

import (
	"cmp"
	"slices"
	"sort"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"synclab/sim/api"
)

// store is one resource: its objects, and the ring of its past events. The Front's lock guards all of it. Slices of
// items and events that lists and watches take out of it are immutable: they are encoded and written without the lock.
type store struct {
	resource *resource
	// sorted holds the present objects by key. Once a list has borrowed it, it is copied before the next write.
	sorted []*item
	lent   bool
	// version is that of the last write known to this store, also to other resources of the cluster. forgotten is the
	// version of the newest event that is no longer in the ring.
	version, forgotten int64
	// ring holds the events of the positions [first, next), each at its position
	// modulo history. Positions only grow.
	ring        []event
	history     int
	first, next int64
	// changed is closed at the next event, if a watch waits for it (awaited).
	changed chan struct{}
	awaited bool
	// mark belongs to the next event.
	mark api.Mark
}

// event is one change of one object.
type event struct {
	version int64
	kind    watch.EventType
	object  *item // the new state; of a deleted object the last one, with the version of its deletion
	before  *item // nil for Added
	mark    api.Mark
}

// Written returns what the Sequence of a watch needs.
func (e event) Written() (string, int64, api.Mark) { return e.object.key, e.version, e.mark }

func newStore(r *resource, history int) *store {
	return &store{resource: r, history: history, changed: make(chan struct{})}
}

// load sets the initial objects. The store knows nothing before version.
func (s *store) load(version int64, items []*item) {
	slices.SortFunc(items, func(a, b *item) int { return strings.Compare(a.key, b.key) })
	s.sorted, s.version, s.forgotten = items, version, version
}

func (s *store) find(key string) (int, bool) {
	return slices.BinarySearchFunc(s.sorted, key, func(it *item, key string) int { return cmp.Compare(it.key, key) })
}

// own makes sorted writable.
func (s *store) own() {
	if s.lent {
		s.sorted, s.lent = slices.Clone(s.sorted), false
	}
}

// put adds or replaces an object.
func (s *store) put(version int64, it *item) {
	s.own()
	i, found := s.find(it.key)
	if found {
		before := s.sorted[i]
		s.sorted[i] = it
		s.append(event{version: version, kind: watch.Modified, object: it, before: before})
		return
	}
	s.sorted = slices.Insert(s.sorted, i, it)
	s.append(event{version: version, kind: watch.Added, object: it})
}

// remove deletes an object. last is its last state, with the version of its deletion. It does nothing when the object
// does not exist.
func (s *store) remove(version int64, last *item) {
	i, found := s.find(last.key)
	if !found {
		return
	}
	s.own()
	before := s.sorted[i]
	s.sorted = slices.Delete(s.sorted, i, i+1)
	s.append(event{version: version, kind: watch.Deleted, object: last, before: before})
}

func (s *store) append(e event) {
	s.version = e.version
	e.mark, s.mark = s.mark, api.Mark{}
	if len(s.ring) < s.history {
		s.ring = append(s.ring, e)
	} else {
		at := &s.ring[s.next%int64(s.history)]
		if s.next-s.first == int64(s.history) {
			s.forgotten = at.version
			s.first++
		}
		*at = e
	}
	s.next++
	s.wake()
}

// wake makes all watches check again.
func (s *store) wake() {
	if s.awaited {
		close(s.changed)
		s.changed, s.awaited = make(chan struct{}), false
	}
}

func (s *store) at(position int64) *event { return &s.ring[position%int64(s.history)] }

// forget drops the past events.
func (s *store) forget() {
	clear(s.ring)
	s.first, s.forgotten = s.next, s.version
	s.wake()
}

// snapshot lends the present objects.
func (s *store) snapshot() []*item {
	s.lent = true
	return s.sorted
}

// since returns the events that are newer than a version. The version must not be forgotten.
func (s *store) since(version int64) []event {
	from := s.positionAfter(version)
	events := make([]event, 0, s.next-from)
	for p := from; p < s.next; p++ {
		events = append(events, *s.at(p))
	}
	return events
}

// undo returns sorted items as they were before some events.
func undo(items []*item, events []event) []*item {
	if len(events) == 0 {
		return items
	}
	before := map[string]*item{} // of the objects that have changed; nil where there was none before
	for i := len(events) - 1; i >= 0; i-- {
		before[events[i].object.key] = events[i].before
	}
	was := make([]*item, 0, len(items)+len(before))
	for _, it := range items {
		if _, changed := before[it.key]; !changed {
			was = append(was, it)
		}
	}
	for _, it := range before {
		if it != nil {
			was = append(was, it)
		}
	}
	slices.SortFunc(was, func(a, b *item) int { return strings.Compare(a.key, b.key) })
	return was
}

// positionAfter returns where the first event newer than a version is, or will be.
func (s *store) positionAfter(version int64) int64 {
	return s.first + int64(sort.Search(int(s.next-s.first), func(i int) bool { return s.at(s.first+int64(i)).version > version }))
}

// resume returns the version after which a watch begins that has seen everything up to version. It is older if the
// event of that version was swapped with older events: the watch may have missed those.
func (s *store) resume(version int64) int64 {
	if p := s.positionAfter(version) - 1; p >= s.first {
		if last := s.at(p); last.version == version && last.mark.Since > 0 {
			return last.mark.Since
		}
	}
	return version
}

// keyOf returns an object's sort key: as in etcd, namespace, then name.
func keyOf(m metav1.Object) string { return objectKey(m.GetNamespace(), m.GetName()) }

func objectKey(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}

// within returns the part of sorted items that is in a namespace.
func within(items []*item, namespace string) []*item {
	if namespace == "" {
		return items
	}
	from := func(key string) int {
		i, _ := slices.BinarySearchFunc(items, key, func(it *item, key string) int { return strings.Compare(it.key, key) })
		return i
	}
	// '0' is the character after '/'.
	return items[from(namespace+"/"):from(namespace+"0")]
}
