package world

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/scenarios"
	"synclab/sim"
)

// WorldOf returns a World that starts from given objects, from manifests or a dump. Steps add objects of the default
// shape, in the families of the given objects, with addresses and names that these do not use.
func WorldOf(o *sim.Objects, seed uint64) *World {
	shape := shapeDefaults(scenarios.Shape{})
	shape.Families = familiesIn(o)
	shape.Services = len(o.Services)
	w, err := emptyWorld(shape, seed)
	if err != nil {
		panic("sim: the default shape is not valid: " + err.Error())
	}
	w.nodePorts.taken = map[int32]bool{}
	for _, n := range o.Nodes {
		w.seen(n)
		w.nodes = append(w.nodes, n)
		w.hosts = append(w.hosts, newHost(n))
	}
	byService := map[types.NamespacedName]*workload{}
	for _, s := range o.Services {
		w.seen(s)
		// No generated pod has this revision: names of new pods differ.
		l := &workload{service: s, like: -1, at: len(w.live), revision: 1 << 20}
		w.live = append(w.live, l)
		byService[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] = l
		w.reserve(s)
		if n, ok := strings.CutPrefix(s.Name, "svc-"); ok {
			if index, err := strconv.Atoi(n); err == nil && index >= w.nextIndex {
				w.nextIndex = index + 1
			}
		}
	}
	for _, s := range o.Slices {
		w.seen(s)
		for i := range s.Endpoints {
			w.reservePods(&s.Endpoints[i])
		}
		l := byService[types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}]
		if l == nil {
			w.strays = append(w.strays, s)
			continue
		}
		l.adopt(s)
	}
	return w
}

// adopt adds a slice to its group.
func (l *workload) adopt(s *discoveryv1.EndpointSlice) {
	l.pods += len(s.Endpoints)
	for i := range l.groups {
		if l.groups[i].family == s.AddressType {
			l.groups[i].slices = append(l.groups[i].slices, s)
			return
		}
	}
	l.groups = append(l.groups, sliceGroup{family: s.AddressType, slices: []*discoveryv1.EndpointSlice{s}})
}

// familiesIn returns the families that objects use; IPv4 when they use none.
func familiesIn(o *sim.Objects) []string {
	used := map[corev1.IPFamily]bool{}
	for _, s := range o.Services {
		for _, a := range s.Spec.ClusterIPs {
			if addr, ok := sim.ParseAddr(a); ok {
				used[sim.AddressFamily(addr)] = true
			}
		}
	}
	for _, s := range o.Slices {
		used[corev1.IPFamily(s.AddressType)] = true
	}
	var families []string
	for _, f := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if used[f] {
			families = append(families, string(f))
		}
	}
	if families == nil {
		families = []string{string(corev1.IPv4Protocol)}
	}
	return families
}

// seen keeps the World's versions above those of its initial objects.
func (w *World) seen(o metav1.Object) {
	w.version = max(w.version, sim.VersionOf(o))
}

// reserve excludes the addresses and ports of a Service from allocation.
func (w *World) reserve(s *corev1.Service) {
	mark := func(ranges map[corev1.IPFamily]*addressRange, address string) {
		if addr, ok := sim.ParseAddr(address); ok && ranges[sim.AddressFamily(addr)] != nil {
			ranges[sim.AddressFamily(addr)].reserve(addr)
		}
	}
	for _, a := range s.Spec.ClusterIPs {
		mark(w.clusterIPs, a)
	}
	for _, a := range s.Spec.ExternalIPs {
		mark(w.externalIPs, a)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		mark(w.loadBalancerIPs, in.IP)
	}
	for _, p := range s.Spec.Ports {
		w.nodePorts.taken[p.NodePort] = true
	}
	w.nodePorts.taken[s.Spec.HealthCheckNodePort] = true
}

func (w *World) reservePods(e *discoveryv1.Endpoint) {
	for _, a := range e.Addresses {
		if addr, ok := sim.ParseAddr(a); ok && w.podIPs[sim.AddressFamily(addr)] != nil {
			w.podIPs[sim.AddressFamily(addr)].shared.reserve(addr)
		}
	}
}
