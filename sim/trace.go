package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// shallowCopy copies an object's own fields; what they point to stays shared.
func shallowCopy(o runtime.Object) (runtime.Object, error) {
	switch o := o.(type) {
	case *corev1.Service:
		next := *o
		return &next, nil
	case *discoveryv1.EndpointSlice:
		next := *o
		return &next, nil
	case *corev1.Node:
		next := *o
		return &next, nil
	default:
		return nil, fmt.Errorf("a %T is no Service, EndpointSlice or Node", o)
	}
}

// The resources a Service proxy watches.
var (
	servicesResource = corev1.SchemeGroupVersion.WithResource("services")
	slicesResource   = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	nodesResource    = corev1.SchemeGroupVersion.WithResource("nodes")
)

func resourceOf(o runtime.Object) schema.GroupVersionResource {
	switch o.(type) {
	case *corev1.Service:
		return servicesResource
	case *discoveryv1.EndpointSlice:
		return slicesResource
	case *corev1.Node:
		return nodesResource
	default:
		return schema.GroupVersionResource{}
	}
}

// kindAndName names an object in errors: "service ns/name".
func kindAndName(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	kind := "object"
	switch o.(type) {
	case *corev1.Service:
		kind = "service"
	case *discoveryv1.EndpointSlice:
		kind = "endpointslice"
	case *corev1.Node:
		kind = "node"
	}
	return nameOf(kind, m.GetNamespace(), m.GetName())
}
