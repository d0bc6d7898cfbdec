package visible

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/sim"
)

// want is what a port should dispatch to. A port that is not there, or has no endpoints, wants nothing.
type want struct{ cluster, local []*tracker.Endpoint }

func (w want) empty() bool { return len(w.cluster) == 0 && len(w.local) == 0 }

func (w want) equal(v want) bool {
	return sameTexts(w.cluster, v.cluster) && sameTexts(w.local, v.local)
}

func sameTexts(a, b []*tracker.Endpoint) bool {
	return slices.EqualFunc(a, b, func(x, y *tracker.Endpoint) bool { return x == y || x.Text == y.Text })
}

// mirror is the cluster as one family's plan.
type mirror struct {
	family  corev1.IPFamily
	node    string
	tracker *tracker.Tracker
	plan    *plan.Plan
	placed  placed // nil: nobody needs to know where packets come in
}

func newMirror(family corev1.IPFamily, node plan.Node) *mirror {
	return &mirror{family: family, node: node.Name, tracker: tracker.New(tracker.Options{Family: family, NodeName: node.Name}), plan: plan.New(node)}
}

// changed gives what ports want from now on: those of the object's Service, or all when the node moved to another zone.
func (m *mirror) changed(op sim.Op, object runtime.Object, moved *discoveryv1.EndpointSlice, now time.Time) map[tracker.ServicePortName]want {
	switch o := object.(type) {
	case *corev1.Node:
		if o.Name == m.node && op != sim.Delete {
			return m.moved(o)
		}
	case *corev1.Service:
		if op == sim.Delete {
			m.tracker.DeleteService(o, now)
		} else {
			m.tracker.SetService(o, now)
		}
	case *discoveryv1.EndpointSlice:
		if moved != nil {
			m.tracker.DeleteSlice(moved, now)
		}
		if op == sim.Delete {
			m.tracker.DeleteSlice(o, now)
		} else {
			m.tracker.SetSlice(o, now)
		}
	}
	if m.tracker.Pending() == 0 {
		return nil
	}
	changes := m.tracker.Take()
	m.tracker.Commit(changes)
	delta := m.plan.Update(changes.Services)
	wants := make(map[tracker.ServicePortName]want, len(delta.Changed)+len(delta.Removed))
	for _, name := range delta.Removed {
		wants[name] = want{}
	}
	for _, port := range delta.Changed {
		if m.placed != nil {
			m.placed.place(m.family, port)
		}
		wants[port.Name] = want{port.Cluster, port.Local}
	}
	return wants
}

// moved takes the node's zone.
func (m *mirror) moved(node *corev1.Node) map[tracker.ServicePortName]want {
	if !m.plan.SetNode(plan.Node{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone]}) {
		return nil
	}
	wants := make(map[tracker.ServicePortName]want, len(m.plan.Ports()))
	for _, port := range m.plan.Ports() {
		wants[port.Name] = want{port.Cluster, port.Local}
	}
	return wants
}

// movedSlice gives a slice as it was, if it held another Service's endpoints then: that has to lose them.
func (w *Watcher) movedSlice(op sim.Op, object runtime.Object) *discoveryv1.EndpointSlice {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	old := w.slices[name]
	if op == sim.Delete {
		delete(w.slices, name)
	} else {
		w.slices[name] = slice
	}
	if old == nil || sliceOwner(old) == sliceOwner(slice) {
		return nil
	}
	return old
}

// owner is what decides whose endpoints an EndpointSlice holds.
type owner struct {
	service  string
	headless bool
	family   discoveryv1.AddressType
}

func sliceOwner(s *discoveryv1.EndpointSlice) owner {
	_, headless := s.Labels[tracker.LabelHeadless]
	return owner{s.Labels[discoveryv1.LabelServiceName], headless, s.AddressType}
}

// serviceOf names the Service that an object is, or belongs to.
func serviceOf(object runtime.Object) types.NamespacedName {
	switch o := object.(type) {
	case *corev1.Service:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	}
	return types.NamespacedName{}
}
