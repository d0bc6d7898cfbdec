package tracker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Requeued events of failed syncs are merged with newer ones. No event is lost, and the first time and all triggers
// remain.
func TestPendingGivenBack(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	var p pending
	key := func(n int) types.NamespacedName { return types.NamespacedName{Name: fmt.Sprint(n)} }
	mark := func(n, s int) {
		e := p.Mark(key(n), at(s))
		e.Slices++
		e.Triggers = append(e.Triggers, at(s))
	}
	mark(1, 10)
	mark(2, 11)
	mark(1, 12)
	taken := p.Take()
	if len(taken) != 2 || p.Len() != 0 {
		t.Fatalf("%d keys taken, %d left", len(taken), p.Len())
	}
	mark(1, 13)
	mark(3, 14)
	p.Requeue(taken)
	if services, slices := p.Events(); services != 0 || slices != 5 || p.Len() != 3 {
		t.Errorf("%d and %d events on %d keys, want 0 and 5 on 3", services, slices, p.Len())
	}
	taken = p.Take()
	if e := taken[key(1)]; e.Queued != at(10) || !e.Requeued || !slices.Equal(e.Triggers, []time.Time{at(10), at(12), at(13)}) {
		t.Errorf("a key that was given back: %+v", e)
	}
	if e := taken[key(3)]; e.Queued != at(14) || e.Requeued {
		t.Errorf("a key that came meanwhile: %+v", e)
	}
	if p.Take() != nil {
		t.Error("something is pending after all was taken")
	}
}
