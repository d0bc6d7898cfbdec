package sim

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Op is the operation of a Change on its object.
type Op string

// The three operations of a watch.
const (
	Add    Op = "Add"
	Update Op = "Update"
	Delete Op = "Delete"
)

// Change is one change of one object.
type Change struct {
	// Due is the planned time, from the start of its Trace.
	Due time.Duration
	Op  Op
	// Object is a *Service, *EndpointSlice or *Node: its new state, or its last one on Delete. It must not be written
	// to.
	Object runtime.Object
}

// Trace is a list of changes to a cluster, sorted by Due. Changes with equal Due happen in the order of the list.
type Trace []Change

// Add appends a change.
func (t *Trace) Add(due time.Duration, op Op, object runtime.Object) {
	*t = append(*t, Change{Due: due, Op: op, Object: object})
}

// VersionOf returns an object's resource version; 0 when there is none.
func VersionOf(o metav1.Object) int64 {
	v, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return 0
	}
	return v
}

// ShallowCopy copies an object's own fields; what they point to stays shared.
func ShallowCopy(o runtime.Object) (runtime.Object, error) {
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
		return nil, fmt.Errorf("%T is not a Service, EndpointSlice or Node", o)
	}
}

// The resources a Service proxy watches.
var (
	ServicesResource = corev1.SchemeGroupVersion.WithResource("services")
	SlicesResource   = discoveryv1.SchemeGroupVersion.WithResource("endpointslices")
	NodesResource    = corev1.SchemeGroupVersion.WithResource("nodes")
)

func ResourceOf(o runtime.Object) schema.GroupVersionResource {
	switch o.(type) {
	case *corev1.Service:
		return ServicesResource
	case *discoveryv1.EndpointSlice:
		return SlicesResource
	case *corev1.Node:
		return NodesResource
	default:
		return schema.GroupVersionResource{}
	}
}

// KindAndName names an object in errors: "service ns/name".
func KindAndName(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return fmt.Sprintf("%T", o)
	}
	kind := cmp.Or(strings.TrimSuffix(ResourceOf(o).Resource, "s"), "object")
	return NameOf(kind, m.GetNamespace(), m.GetName())
}
