package proxier

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Watch registers the proxier's handlers with the informers, starts the informers and waits until every handler has
// seen the first list. Run may write rules only after that: a sync that knows half the cluster would remove the other
// half's rules (k/k#126532).
func (p *Proxier) Watch(ctx context.Context, factory informers.SharedInformerFactory) error {
	watched := []struct {
		what     string
		informer cache.SharedIndexInformer
		handler  cache.ResourceEventHandler
	}{
		{"Services", factory.Core().V1().Services().Informer(), p.serviceHandler()},
		{"EndpointSlices", factory.Discovery().V1().EndpointSlices().Informer(), p.sliceHandler()},
		{"Nodes", factory.Core().V1().Nodes().Informer(), p.nodeHandler()},
	}
	synced := make([]cache.DoneChecker, 0, len(watched)) // channels: cache.WaitForCacheSync polls ten times a second
	for _, w := range watched {
		registration, err := w.informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watch %s: %w", w.what, err)
		}
		synced = append(synced, registration.HasSyncedChecker())
	}
	factory.Start(ctx.Done())
	if !cache.WaitFor(ctx, "", synced...) {
		return fmt.Errorf("wait for the informers: %w", context.Cause(ctx))
	}
	// The handlers have seen the list up to its version, even if the last change before it was a deletion.
	p.services.reached(watched[0].informer.LastSyncResourceVersion())
	p.slices.reached(watched[1].informer.LastSyncResourceVersion())
	return nil
}

func (p *Proxier) serviceHandler() cache.ResourceEventHandler {
	return handler(p.services, func(_, obj any) {
		if svc, ok := p.digest(obj).(*tracker.ServiceDigest); ok {
			p.each(func(e *engine, now time.Time) bool { return e.tracker.PutService(svc, now) })
		}
	}, func(obj any) {
		if svc, ok := p.digest(obj).(*tracker.ServiceDigest); ok {
			p.each(func(e *engine, now time.Time) bool { return e.tracker.DropService(svc, now) })
		}
	})
}

func (p *Proxier) sliceHandler() cache.ResourceEventHandler {
	gone := func(obj any) {
		if slice, ok := p.digest(obj).(*tracker.SliceDigest); ok {
			p.each(func(e *engine, now time.Time) bool { return e.tracker.DropSlice(slice, now) })
		}
	}
	return handler(p.slices, func(old, obj any) {
		if moved(old, obj) {
			gone(old)
		}
		if slice, ok := p.digest(obj).(*tracker.SliceDigest); ok {
			p.each(func(e *engine, now time.Time) bool { return e.tracker.PutSlice(slice, now) })
		}
	}, gone)
}

// digest converts an object into its digest for the trackers. Informers may store digests (tracker.Digester) or
// objects.
func (p *Proxier) digest(obj any) any {
	digest, _ := p.opts.Digester().Transform(obj) // never fails
	return digest
}

func (p *Proxier) nodeHandler() cache.ResourceEventHandler {
	return handler(newSeen(), func(_, obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok || node.Name != p.opts.NodeName {
			return
		}
		p.postSync.health.SyncNode(node)
		for _, e := range p.engines {
			e.setNode(plan.Node{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone]})
		}
	}, func(obj any) {
		if node, ok := obj.(*corev1.Node); ok && node.Name == p.opts.NodeName {
			p.postSync.health.SyncNode(nil)
		}
	})
}

// handler calls set for an added object (old is nil) or an updated one, and gone for a deleted one. Tombstones of
// missed deletions count as deletions.
func handler(s *seen, set func(old, obj any), gone func(any)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { set(nil, obj); s.object(obj) },
		UpdateFunc: func(old, obj any) { set(old, obj); s.object(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			gone(obj)
			s.object(obj)
		},
	}
}

// moved reports whether a change of labels moved an EndpointSlice to another Service, or to none.
func moved(old, obj any) bool {
	switch before := old.(type) {
	case *tracker.SliceDigest:
		after, both := obj.(*tracker.SliceDigest)
		return both && after.Moved(before)
	case *discoveryv1.EndpointSlice:
		after, both := obj.(*discoveryv1.EndpointSlice)
		if !both {
			return false
		}
		_, wasHeadless := before.Labels[tracker.LabelHeadless]
		_, headless := after.Labels[tracker.LabelHeadless]
		return before.Labels[discoveryv1.LabelServiceName] != after.Labels[discoveryv1.LabelServiceName] ||
			wasHeadless != headless || before.AddressType != after.AddressType
	}
	return false
}

func (p *Proxier) each(event func(*engine, time.Time) bool) {
	now := p.opts.Clock.Now()
	for _, e := range p.engines {
		e.trigger(event(e, now))
	}
}
