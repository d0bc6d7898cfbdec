package capture

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"synclab/sim"
)

// PageSize is the number of objects in one request of kubectl.
const PageSize = 500

// Take lists all Services, EndpointSlices and Nodes, stripped, in pages of so many objects. It only reads. Slices come
// last: endpoints without a Service, when one was added meanwhile, are harmless; a Service without endpoints would be an outage.
func Take(ctx context.Context, client kubernetes.Interface, pageSize int64) (*sim.Objects, error) {
	var objects sim.Objects
	list := func(what string, page pager.ListPageFunc) error {
		lister := pager.New(page)
		lister.PageSize = pageSize
		err := lister.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			objects.Add(Strip(object))
			return nil
		})
		if err != nil {
			return fmt.Errorf("list %s: %w", what, err)
		}
		return nil
	}
	core, discovery := client.CoreV1(), client.DiscoveryV1()
	err := list("nodes", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return core.Nodes().List(ctx, options)
	})
	if err != nil {
		return nil, err
	}
	err = list("services", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return core.Services(metav1.NamespaceAll).List(ctx, options)
	})
	if err != nil {
		return nil, err
	}
	err = list("endpointslices", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return discovery.EndpointSlices(metav1.NamespaceAll).List(ctx, options)
	})
	if err != nil {
		return nil, err
	}
	objects.Sort()
	return &objects, nil
}
