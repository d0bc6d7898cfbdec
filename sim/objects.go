package sim

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
