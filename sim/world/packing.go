package world

import (
	"cmp"
	"slices"
	"strconv"
	"synclab/sim"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// maxEndpointsPerSlice is kube-controller-manager's default.
const maxEndpointsPerSlice = 100

// controllerName is the EndpointSlice controller's value of the managed-by label.
const controllerName = "endpointslice-controller.k8s.io"

// workload is a Service and the EndpointSlices behind it.
type workload struct {
	service *corev1.Service
	// like is the generator's index for which the Service was drawn: its own, or that of the Service that it replaces.
	// It is -1 for Services from elsewhere.
	like   int
	at     int // index in World.live
	groups []sliceGroup
	hints  bool
	// nameless: its endpoints have no TargetRef, as those that other controllers and people make.
	nameless bool
	// revision counts rollouts. It is part of pod names, as a ReplicaSet's hash is.
	revision int
	hash     string // of the revision; "" until a pod needs it
	pods     int    // pods ever made, for their names
	sliced   int    // slices ever made, for their names
	// shared are the pods that other Services of the namespace have, too; nil: its pods are its own. places are its own of them.
	shared *sharedPods
	places []int
}

// sliceGroup is a Service's slices of one family, in the order they were made.
type sliceGroup struct {
	family discoveryv1.AddressType
	slices []*discoveryv1.EndpointSlice
}

// proxied reports whether proxies serve the Service, so that its endpoints matter to them.
func (l *workload) proxied() bool {
	return l.service.Spec.Type != corev1.ServiceTypeExternalName &&
		l.service.Spec.ClusterIP != corev1.ClusterIPNone && len(l.groups) > 0
}

// size returns the number of endpoints (of the first family).
func (l *workload) size() int {
	if len(l.groups) == 0 {
		return 0
	}
	n := 0
	for _, s := range l.groups[0].slices {
		n += len(s.Endpoints)
	}
	return n
}

// pod is a new endpoint, with an address of each family.
type pod struct {
	name       string
	uid        types.UID
	host       *host
	addresses  map[discoveryv1.AddressType]string
	conditions discoveryv1.EndpointConditions
}

// edit is a set of changes to a Service's endpoints at one moment.
type edit struct {
	drop map[string]bool // by podKey
	set  map[string]discoveryv1.EndpointConditions
	add  []pod
}

// podKey names the pod behind an endpoint. The name is the same in both families if the endpoint has a TargetRef with a name,
// or was generated without one.
func (w *World) podKey(e *discoveryv1.Endpoint) string {
	if e.TargetRef != nil && e.TargetRef.Name != "" {
		return e.TargetRef.Name
	}
	return cmp.Or(w.nameless[e.Addresses[0]], e.Addresses[0])
}

// sliceChange is the effect of an edit on one slice.
type sliceChange struct {
	op    sim.Op
	slice *discoveryv1.EndpointSlice
}

// pack applies an edit by the rules of the EndpointSlice controller (k8s.io/endpointslice, reconcileByPortMapping and
// finalize). See docs/design/simulated-cluster.md.
func (w *World) pack(l *workload, e edit) []sliceChange {
	var changes []sliceChange
	for i := range l.groups {
		changes = append(changes, w.packGroup(l, &l.groups[i], e)...)
	}
	return changes
}

func (w *World) packGroup(l *workload, g *sliceGroup, e edit) []sliceChange {
	var changed, unchanged, emptied []*discoveryv1.EndpointSlice
	for _, old := range g.slices {
		endpoints, touched := w.edited(old.Endpoints, e)
		for i := range old.Endpoints {
			if touched && l.shared == nil && e.drop[w.podKey(&old.Endpoints[i])] {
				w.leaving = append(w.leaving, &old.Endpoints[i])
			}
		}
		switch {
		case len(endpoints) == 0:
			emptied = append(emptied, old)
		case touched:
			changed = append(changed, withEndpoints(old, endpoints))
		default:
			unchanged = append(unchanged, old)
		}
	}
	add := w.endpointsOf(l, g.family, e.add)
	slices.SortStableFunc(changed, func(a, b *discoveryv1.EndpointSlice) int {
		return cmp.Compare(len(b.Endpoints), len(a.Endpoints))
	})
	for _, s := range changed {
		n := min(len(add), maxEndpointsPerSlice-len(s.Endpoints))
		s.Endpoints = append(s.Endpoints, add[:n]...)
		add = add[n:]
	}
	var created []*discoveryv1.EndpointSlice
	for len(add) > 0 {
		if k := bestFit(unchanged, len(add)); k >= 0 {
			s := unchanged[k]
			changed = append(changed, withEndpoints(s, slices.Concat(s.Endpoints, add)))
			break
		}
		n := min(len(add), maxEndpointsPerSlice)
		created = append(created, w.newSlice(l, g.family, add[:n:n]))
		add = add[n:]
	}
	if len(changed)+len(unchanged)+len(created) == 0 {
		if len(emptied) == 1 && len(emptied[0].Endpoints) == 0 {
			return nil // the empty slice stays
		}
		created = append(created, w.newSlice(l, g.family, nil))
	}
	return g.settle(created, changed, emptied)
}

// settle turns pairs of a deleted and a created slice into one update, and puts the new state into the group. It
// returns the changes: creates, updates, deletes.
func (g *sliceGroup) settle(created, changed, emptied []*discoveryv1.EndpointSlice) []sliceChange {
	for len(created) > 0 && len(emptied) > 0 {
		next := created[len(created)-1]
		reused := withEndpoints(emptied[0], next.Endpoints)
		reused.Ports = next.Ports
		changed = append(changed, reused)
		created, emptied = created[:len(created)-1], emptied[1:]
	}
	now := map[string]*discoveryv1.EndpointSlice{} // by name: the slices of a group share their namespace
	for _, s := range changed {
		now[s.Name] = s
	}
	for _, s := range emptied {
		now[s.Name] = nil
	}
	kept := g.slices[:0]
	for _, s := range g.slices {
		replaced, ok := now[s.Name]
		if !ok {
			replaced = s
		}
		if replaced != nil {
			kept = append(kept, replaced)
		}
	}
	clear(g.slices[len(kept):])
	g.slices = append(kept, created...)

	var changes []sliceChange
	for _, s := range created {
		changes = append(changes, sliceChange{sim.Add, s})
	}
	for _, s := range changed {
		changes = append(changes, sliceChange{sim.Update, s})
	}
	for _, s := range emptied {
		gone := *s
		changes = append(changes, sliceChange{sim.Delete, &gone})
	}
	return changes
}

// edited returns the endpoints after an edit's drops and condition changes, and whether there were any. It does not
// change the old endpoints.
func (w *World) edited(old []discoveryv1.Endpoint, e edit) ([]discoveryv1.Endpoint, bool) {
	if len(e.drop) == 0 && len(e.set) == 0 {
		return old, false
	}
	first := slices.IndexFunc(old, func(p discoveryv1.Endpoint) bool {
		_, set := e.set[w.podKey(&p)]
		return set || e.drop[w.podKey(&p)]
	})
	if first < 0 {
		return old, false
	}
	endpoints := make([]discoveryv1.Endpoint, first, len(old))
	copy(endpoints, old)
	for _, p := range old[first:] {
		key := w.podKey(&p)
		if e.drop[key] {
			continue
		}
		if conditions, ok := e.set[key]; ok {
			p.Conditions = conditions
			if !*conditions.Ready {
				p.Hints = nil
			}
		}
		endpoints = append(endpoints, p)
	}
	return endpoints, true
}

// bestFit returns the slice that n more endpoints fill closest to its limit, or -1 when none has room.
func bestFit(group []*discoveryv1.EndpointSlice, n int) int {
	best, room := -1, maxEndpointsPerSlice
	for i, s := range group {
		if left := maxEndpointsPerSlice - len(s.Endpoints) - n; left >= 0 && left < room {
			best, room = i, left
		}
	}
	return best
}

// withEndpoints returns a new state of a slice. It shares all but the endpoints with the old state.
func withEndpoints(old *discoveryv1.EndpointSlice, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	s := *old
	s.Endpoints = endpoints
	s.Generation++
	return &s
}

// newSlice makes the next slice of a Service. A slice without endpoints has no ports either.
func (w *World) newSlice(l *workload, family discoveryv1.AddressType, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	svc := l.service
	name := w.sliceName(l)
	yes := true
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			GenerateName:      svc.Name + "-",
			Namespace:         svc.Namespace,
			UID:               UIDOf(w.seed, "slice/"+svc.Namespace+"/"+name),
			Generation:        1,
			CreationTimestamp: svc.CreationTimestamp,
			Labels:            sliceLabels(svc),
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "Service", Name: svc.Name, UID: svc.UID,
				Controller: &yes, BlockOwnerDeletion: &yes,
			}},
		},
		AddressType: family,
		Endpoints:   endpoints,
		Ports:       []discoveryv1.EndpointPort{},
	}
	if len(endpoints) == 0 {
		s.Endpoints = []discoveryv1.Endpoint{}
		return s
	}
	for i := range svc.Spec.Ports {
		port := svc.Spec.Ports[i]
		target := port.TargetPort.IntVal
		if target == 0 { // a named port: only pods know its number
			target = port.Port
		}
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &port.Name, Protocol: &port.Protocol, Port: &target, AppProtocol: port.AppProtocol})
	}
	return s
}

// sliceName returns the next free name for a slice of a Service.
func (w *World) sliceName(l *workload) string {
	for {
		name := l.service.Name + "-" + nameSuffix(w.seed, l.service.Namespace+"/"+l.service.Name, l.sliced)
		l.sliced++
		used := func(s *discoveryv1.EndpointSlice) bool { return s.Name == name }
		if !slices.ContainsFunc(l.groups, func(g sliceGroup) bool { return slices.ContainsFunc(g.slices, used) }) {
			return name
		}
	}
}

// sliceLabels returns the Service's labels and the three that the controller sets.
func sliceLabels(svc *corev1.Service) map[string]string {
	labels := make(map[string]string, len(svc.Labels)+3)
	for k, v := range svc.Labels {
		labels[k] = v
	}
	labels[discoveryv1.LabelServiceName] = svc.Name
	labels[discoveryv1.LabelManagedBy] = controllerName
	delete(labels, corev1.IsHeadlessService)
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		labels[corev1.IsHeadlessService] = ""
	}
	return labels
}

// newPod makes a Service's next pod, on the next Node in turn.
func (w *World) newPod(l *workload, conditions discoveryv1.EndpointConditions) (pod, error) {
	if l.shared != nil {
		l = l.shared.owner
	}
	var at *host
	node := ""
	if len(w.hosts) > 0 {
		at = w.hosts[w.podCount%len(w.hosts)]
		node = at.name
	}
	w.podCount++
	l.pods++
	if l.hash == "" {
		high, _ := words(w.seed, l.service.Namespace+"/"+l.service.Name+"/"+strconv.Itoa(l.revision))
		l.hash = strconv.FormatUint(0x1000+high%0xf000, 16)
	}
	name := l.service.Name + "-" + l.hash + "-x" + strconv.FormatInt(int64(l.pods), 36)
	p := pod{name: name, uid: UIDOf(w.seed, "pod/"+l.service.Namespace+"/"+name), host: at, conditions: conditions}
	p.addresses = make(map[discoveryv1.AddressType]string, len(l.groups))
	for _, g := range l.groups {
		addr, err := w.podIPs[corev1.IPFamily(g.family)].take(node)
		if err != nil {
			return p, err
		}
		p.addresses[g.family] = addr.String()
	}
	return p, nil
}

// endpointsOf returns the endpoints of new pods in one family. They share the reference array, and the names of Nodes
// and zones.
func (w *World) endpointsOf(l *workload, family discoveryv1.AddressType, pods []pod) []discoveryv1.Endpoint {
	if len(pods) == 0 {
		return nil
	}
	refs := make([]corev1.ObjectReference, len(pods))
	addresses := make([]string, len(pods))
	endpoints := make([]discoveryv1.Endpoint, 0, len(pods))
	for i, p := range pods {
		addresses[i] = p.addresses[family]
		refs[i] = corev1.ObjectReference{Kind: "Pod", Namespace: l.service.Namespace, Name: p.name, UID: p.uid}
		e := discoveryv1.Endpoint{Addresses: addresses[i : i+1 : i+1], Conditions: p.conditions, TargetRef: &refs[i]}
		if l.nameless {
			e.TargetRef = nil
			w.nameless[addresses[i]] = p.name
		}
		if p.host != nil {
			e.NodeName = &p.host.name
			if p.host.zone != "" {
				e.Zone = &p.host.zone
				// The controller gives hints to ready endpoints only.
				if l.hints && *p.conditions.Ready {
					e.Hints = p.host.hints
				}
			}
		}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

// addSlices appends the slice changes of an edit.
func addSlices(t *sim.Trace, due time.Duration, changes []sliceChange) {
	for _, c := range changes {
		t.Add(due, c.op, c.slice)
	}
}
