package sim

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Objects is one state of the cluster: everything that a Service proxy watches. Each list is sorted by namespace, then
// by name, whatever made it (the generator, a dump, manifests, a World), but for the first Node: proxies run on it. So equal
// states are equal byte for byte.
type Objects struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Nodes    []*corev1.Node
}

// Sort puts every list into the documented order.
func (o *Objects) Sort() {
	SortByName(o.Nodes)
	o.SortOthers()
}

// SortOthers sorts all but the first Node, on which proxies run.
func (o *Objects) SortOthers() {
	SortByName(o.Services)
	SortByName(o.Slices)
	SortByName(o.Nodes[min(1, len(o.Nodes)):])
}

// All returns every object: the Nodes, the Services, and the slices.
func (o *Objects) All() []runtime.Object {
	all := make([]runtime.Object, 0, len(o.Nodes)+len(o.Services)+len(o.Slices))
	for _, node := range o.Nodes {
		all = append(all, node)
	}
	for _, service := range o.Services {
		all = append(all, service)
	}
	for _, slice := range o.Slices {
		all = append(all, slice)
	}
	return all
}

// Add appends an object to the list of its kind. Other kinds are left out.
func (o *Objects) Add(object runtime.Object) {
	switch object := object.(type) {
	case *corev1.Node:
		o.Nodes = append(o.Nodes, object)
	case *corev1.Service:
		o.Services = append(o.Services, object)
	case *discoveryv1.EndpointSlice:
		o.Slices = append(o.Slices, object)
	}
}

func SortByName[T metav1.Object](objects []T) {
	slices.SortStableFunc(objects, func(a, b T) int {
		return cmp.Or(
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}

// ObjectName names an object as messages do: "service default/ngx-svc".
func ObjectName(kind string, object metav1.Object) string {
	return NameOf(kind, object.GetNamespace(), object.GetName())
}

func NameOf(kind, namespace, name string) string {
	name = strings.TrimPrefix(namespace+"/"+name, "/")
	return strings.ToLower(kind) + " " + name
}
