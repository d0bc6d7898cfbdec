package front

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/watch"
)

// TestUndoGivesTheStateOfAnyVersionInTheRing compares with recorded states.
func TestUndoGivesTheStateOfAnyVersionInTheRing(t *testing.T) {
	const seed = 7
	random := rand.New(rand.NewPCG(seed, 0))
	const history = 50
	s := newStore(services, history)
	s.load(0, nil)
	states := map[int64][]*item{0: nil}
	for version := int64(1); version <= 400; version++ {
		it := newItem(service(fmt.Sprintf("ns-%d", random.IntN(3)), fmt.Sprintf("s-%d", random.IntN(12)), nil))
		if _, found := s.find(it.key); found && random.IntN(3) == 0 {
			s.remove(version, it)
		} else {
			s.put(version, it)
		}
		states[version] = slices.Clone(s.sorted)
		if want := max(0, version-history); s.forgotten != want {
			t.Fatalf("at version %d, %d is forgotten, want %d", version, s.forgotten, want)
		}
		for then := s.forgotten; then <= version; then++ {
			lent := s.snapshot()
			if got := undo(lent, s.since(then)); !slices.Equal(got, states[then]) {
				t.Fatalf("seed %d: at version %d, version %d has %d items, want %d", seed, version, then, len(got), len(states[then]))
			}
		}
	}
}

func TestALentSnapshotDoesNotChange(t *testing.T) {
	s := newStore(services, 8)
	a, b := newItem(service("n", "a", nil)), newItem(service("n", "b", nil))
	s.load(1, []*item{b, a})
	lent := s.snapshot()
	s.put(2, newItem(service("n", "a", nil)))
	s.put(3, newItem(service("n", "aa", nil)))
	s.remove(4, b)
	if !slices.Equal(lent, []*item{a, b}) {
		t.Errorf("the snapshot has changed to %d items", len(lent))
	}
}

func TestRingWrapsAndForgets(t *testing.T) {
	s := newStore(services, 4)
	s.load(10, nil)
	for version := int64(11); version <= 17; version++ {
		s.put(version, newItem(service("n", "a", nil)))
	}
	if s.forgotten != 13 || s.next-s.first != 4 {
		t.Errorf("%d events, forgotten %d; want 4, 13", s.next-s.first, s.forgotten)
	}
	if p := s.positionAfter(15); s.at(p).version != 16 {
		t.Errorf("after 15 comes %d, want 16", s.at(p).version)
	}
	s.forget()
	if s.forgotten != 17 || s.first != s.next || s.positionAfter(17) != s.next {
		t.Errorf("after forget: forgotten %d, positions %d to %d", s.forgotten, s.first, s.next)
	}
	s.remove(18, newItem(service("n", "a", nil)))
	if e := s.at(s.positionAfter(17)); e.kind != watch.Deleted || e.version != 18 {
		t.Errorf("the event after forget is %s of version %d", e.kind, e.version)
	}
}

func TestWithinANamespace(t *testing.T) {
	var items []*item
	for _, key := range []string{"a/x", "a-b/x", "a0/x", "b/x"} {
		items = append(items, &item{key: key})
	}
	s := newStore(services, 4)
	s.load(1, items)
	for namespace, want := range map[string][]string{"a": {"a/x"}, "a-b": {"a-b/x"}, "b": {"b/x"}, "c": nil, "": {"a-b/x", "a/x", "a0/x", "b/x"}} {
		var got []string
		for _, it := range within(s.sorted, namespace) {
			got = append(got, it.key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("within %q: %q, want %q", namespace, got, want)
		}
	}
}
