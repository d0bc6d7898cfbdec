package sim

import (
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/scenarios"
)

// WorldOf is a World that starts from given objects, of manifests or a dump.
// What steps add to it is of the default shape, in the families of the objects,
// with addresses and names that they do not use.
func WorldOf(o *Objects, seed uint64) *World {
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
		// A revision that no generated pod has: names of new pods differ.
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

// adopt puts a slice into its group.
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

// familiesIn are the families that objects use; IPv4 when they use none.
func familiesIn(o *Objects) []string {
	used := map[corev1.IPFamily]bool{}
	for _, s := range o.Services {
		for _, a := range s.Spec.ClusterIPs {
			if addr, ok := ParseAddr(a); ok {
				used[addressFamily(addr)] = true
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

// seen keeps the World's versions above those of the objects it starts from.
func (w *World) seen(o metav1.Object) {
	w.version = max(w.version, versionOf(o))
}

// reserve keeps the addresses and ports of a Service from being given again.
func (w *World) reserve(s *corev1.Service) {
	mark := func(ranges map[corev1.IPFamily]*addressRange, address string) {
		if addr, ok := ParseAddr(address); ok && ranges[addressFamily(addr)] != nil {
			ranges[addressFamily(addr)].reserve(addr)
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
		if addr, ok := ParseAddr(a); ok && w.podIPs[addressFamily(addr)] != nil {
			w.podIPs[addressFamily(addr)].shared.reserve(addr)
		}
	}
}
