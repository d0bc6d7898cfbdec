package capture

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"synclab/sim"
)

// TakeOptions are the options of Take.
type TakeOptions struct {
	// PageSize is the number of objects in one request. Default 500, as kubectl.
	PageSize int64
	// Progress, if set, is called with the number of objects so far.
	Progress func(objects int)
}

// Take lists all Services, EndpointSlices and Nodes, stripped. It only reads. Slices come last: endpoints without a
// Service, when one was added meanwhile, are harmless; a Service without endpoints would be an outage.
func Take(ctx context.Context, client kubernetes.Interface, o TakeOptions) (*sim.Objects, error) {
	if o.PageSize == 0 {
		o.PageSize = 500
	}
	if o.Progress == nil {
		o.Progress = func(int) {}
	}
	var objects sim.Objects
	count := 0
	list := func(what string, page pager.ListPageFunc, add func(runtime.Object)) error {
		lister := pager.New(page)
		lister.PageSize = o.PageSize
		err := lister.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			add(Strip(object))
			if count++; count%int(o.PageSize) == 0 {
				o.Progress(count)
			}
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
	}, func(object runtime.Object) { objects.Nodes = append(objects.Nodes, object.(*corev1.Node)) })
	if err != nil {
		return nil, err
	}
	err = list("services", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return core.Services(metav1.NamespaceAll).List(ctx, options)
	}, func(object runtime.Object) { objects.Services = append(objects.Services, object.(*corev1.Service)) })
	if err != nil {
		return nil, err
	}
	err = list("endpointslices", func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return discovery.EndpointSlices(metav1.NamespaceAll).List(ctx, options)
	}, func(object runtime.Object) {
		objects.Slices = append(objects.Slices, object.(*discoveryv1.EndpointSlice))
	})
	if err != nil {
		return nil, err
	}
	sortObjects(&objects)
	o.Progress(count)
	return &objects, nil
}

// sortObjects sorts the lists as sim.Objects requires.
func sortObjects(o *sim.Objects) {
	slices.SortFunc(o.Nodes, func(a, b *corev1.Node) int { return byName(a, b) })
	slices.SortFunc(o.Services, func(a, b *corev1.Service) int { return byName(a, b) })
	slices.SortFunc(o.Slices, func(a, b *discoveryv1.EndpointSlice) int { return byName(a, b) })
}

func byName(a, b metav1.Object) int {
	if c := strings.Compare(a.GetNamespace(), b.GetNamespace()); c != 0 {
		return c
	}
	return strings.Compare(a.GetName(), b.GetName())
}
