package mirror

import (
	"maps"
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

// Mirror has the plans of a cluster, one for each family. It is not safe for concurrent use.
type Mirror struct {
	node     string
	families []*family
	slices   map[types.NamespacedName]*discoveryv1.EndpointSlice
}

// family has the tracker and the plan of one family.
type family struct {
	name    corev1.IPFamily
	tracker *tracker.Tracker
	plan    *plan.Plan
}

// Change is one change of one object of the cluster.
type Change struct {
	// Number counts the moments of changes in a repetition, from 1, the load: changes that are due at one time share it.
	Number int
	Due    time.Time // planned
	Op     sim.Op
	Object runtime.Object // its new state, or its last one on Delete
}

// Port is a Service port that a change affects. Before or After is nil if the port does not exist then. The ports that
// they point to never change.
type Port struct {
	Family        corev1.IPFamily
	Name          tracker.ServicePortName
	Before, After *plan.ServicePort
}

// New returns a mirror of an empty cluster, as seen from a node.
func New(node plan.Node, families ...corev1.IPFamily) *Mirror {
	m := &Mirror{node: node.Name, slices: map[types.NamespacedName]*discoveryv1.EndpointSlice{}}
	for _, name := range families {
		m.families = append(m.families, &family{
			name: name, tracker: tracker.New(tracker.Options{Family: name, NodeName: node.Name}), plan: plan.New(node),
		})
	}
	return m
}

// Of returns the plan of a family. It changes with the mirror.
func (m *Mirror) Of(name corev1.IPFamily) *plan.Plan {
	for _, f := range m.families {
		if f.name == name {
			return f.plan
		}
	}
	return nil
}

// Load adds the objects of an existing cluster.
func (m *Mirror) Load(services []*corev1.Service, endpoints []*discoveryv1.EndpointSlice, now time.Time) {
	for _, slice := range endpoints {
		m.takenFrom(sim.Add, slice)
	}
	for _, f := range m.families {
		for _, svc := range services {
			f.take(sim.Add, svc, now)
		}
		for _, slice := range endpoints {
			f.take(sim.Add, slice, now)
		}
		f.update()
	}
}

// Changed applies a change and returns the affected ports of each family, sorted by name. These are the Service's
// ports, or all ports if the Node has moved to another zone. Some of them may be unchanged. The caller must not modify
// object.
func (m *Mirror) Changed(op sim.Op, object runtime.Object, now time.Time) []Port {
	if node, ok := object.(*corev1.Node); ok {
		if node.Name != m.node || op == sim.Delete {
			return nil
		}
		var all []Port
		for _, f := range m.families {
			all = append(all, f.moved(plan.Node{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone]})...)
		}
		return all
	}
	taken := m.takenFrom(op, object)
	var all []Port
	for _, f := range m.families {
		if taken != nil {
			f.tracker.DeleteSlice(taken, now)
		}
		f.take(op, object, now)
		all = append(all, f.update()...)
	}
	return all
}

// take passes a change to the tracker.
func (f *family) take(op sim.Op, object runtime.Object, now time.Time) {
	switch o := object.(type) {
	case *corev1.Service:
		if op == sim.Delete {
			f.tracker.DeleteService(o, now)
		} else {
			f.tracker.SetService(o, now)
		}
	case *discoveryv1.EndpointSlice:
		if op == sim.Delete {
			f.tracker.DeleteSlice(o, now)
		} else {
			f.tracker.SetSlice(o, now)
		}
	}
}

// update plans the pending changes.
func (f *family) update() []Port {
	if f.tracker.Pending() == 0 {
		return nil
	}
	changes := f.tracker.Take()
	f.tracker.Commit(changes)
	before := map[tracker.ServicePortName]*plan.ServicePort{}
	for _, change := range changes.Services {
		for _, svc := range []*tracker.Service{change.Old, change.New} {
			if svc == nil {
				continue
			}
			for _, port := range svc.Ports {
				before[port.Name] = f.plan.Port(port.Name)
			}
		}
	}
	f.plan.Update(changes.Services)
	return f.since(before)
}

// moved plans all ports again after the node moved to another zone.
func (f *family) moved(node plan.Node) []Port {
	before := map[tracker.ServicePortName]*plan.ServicePort{}
	for _, port := range f.plan.Ports() {
		before[port.Name] = port
	}
	if !f.plan.SetNode(node) {
		return nil
	}
	return f.since(before)
}

// since returns the ports before and after a change, sorted by name.
func (f *family) since(before map[tracker.ServicePortName]*plan.ServicePort) []Port {
	ports := make([]Port, 0, len(before))
	for _, name := range slices.SortedFunc(maps.Keys(before), plan.CompareNames) {
		ports = append(ports, Port{f.name, name, before[name], f.plan.Port(name)})
	}
	return ports
}

// takenFrom returns the old version of a slice that now belongs to another Service, so that the old Service loses its
// endpoints.
func (m *Mirror) takenFrom(op sim.Op, object runtime.Object) *discoveryv1.EndpointSlice {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return nil
	}
	name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Name}
	old := m.slices[name]
	if op == sim.Delete {
		delete(m.slices, name)
	} else {
		m.slices[name] = slice
	}
	if old == nil || OwnerOf(old) == OwnerOf(slice) {
		return nil
	}
	return old
}

// Owner identifies the Service of an EndpointSlice.
type Owner struct {
	service  string
	headless bool
	family   discoveryv1.AddressType
}

// OwnerOf returns the owner of an EndpointSlice.
func OwnerOf(s *discoveryv1.EndpointSlice) Owner {
	_, headless := s.Labels[tracker.LabelHeadless]
	return Owner{s.Labels[discoveryv1.LabelServiceName], headless, s.AddressType}
}

// ServiceOf returns the name of the Service that an object is, or belongs to; empty for a Node.
func ServiceOf(object runtime.Object) types.NamespacedName {
	switch o := object.(type) {
	case *corev1.Service:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	}
	return types.NamespacedName{}
}
