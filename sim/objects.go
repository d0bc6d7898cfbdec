package sim

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects is everything a Service proxy watches: one state of the cluster.
// Each list is sorted by namespace, then by name, whoever made it (the
// generator, a dump, manifests, a World), so that two equal states are equal
// byte for byte.
type Objects struct {
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Nodes    []*corev1.Node
}

// sort puts every list into the order the type promises.
func (o *Objects) sort() {
	sortByName(o.Services)
	sortByName(o.Slices)
	sortByName(o.Nodes)
}

func sortByName[T metav1.Object](objects []T) {
	slices.SortStableFunc(objects, func(a, b T) int {
		return cmp.Or(
			cmp.Compare(a.GetNamespace(), b.GetNamespace()),
			cmp.Compare(a.GetName(), b.GetName()),
		)
	})
}
