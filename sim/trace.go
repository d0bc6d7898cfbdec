package sim

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Op is what a Change does to its object.
type Op string

// The three operations of a watch.
const (
	Add    Op = "Add"
	Update Op = "Update"
	Delete Op = "Delete"
)

// Change is one change of one object.
type Change struct {
	// Due is when it is meant to happen, from the start of its Trace.
	Due time.Duration
	Op  Op
	// Object is a *Service, *EndpointSlice or *Node: its new state, or its last
	// one on Delete. Nobody may write to it.
	Object runtime.Object
}

// Trace is what happens to a cluster, sorted by Due. Changes with equal Due
// happen in the order they stand.
type Trace []Change

// add appends a change.
func (t *Trace) add(due time.Duration, op Op, object runtime.Object) {
	*t = append(*t, Change{Due: due, Op: op, Object: object})
}

// addSlices appends what an edit did to slices.
func (t *Trace) addSlices(due time.Duration, changes []sliceChange) {
	for _, c := range changes {
		t.add(due, c.op, c.slice)
	}
}

// finish sorts a planned trace and stamps the resource versions, which follow
// the order in which things happen. Every object of the trace is new, so this
// writes to nothing that was handed out.
func (w *World) finish(t Trace) Trace {
	slices.SortStableFunc(t, func(a, b Change) int { return cmp.Compare(a.Due, b.Due) })
	for _, c := range t {
		w.version++
		c.Object.(metav1.Object).SetResourceVersion(strconv.FormatInt(w.version, 10))
	}
	w.releaseLeaving()
	return t
}

// versionOf reads a resource version; 0 when there is none.
func versionOf(o metav1.Object) int64 {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
