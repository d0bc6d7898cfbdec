package world

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// WorldOf returns a World that starts from given objects, from manifests or a dump. Steps add objects of the default
// shape, in the families of the given objects, with addresses and names that these do not use.
func WorldOf(o *sim.Objects, seed uint64) *World {
	var shape scenarios.Shape
	shape.Fill()
	shape.Services, shape.Families, shape.ServiceCIDRs, shape.PodCIDRs = len(o.Services), nil, nil, nil
	for _, family := range sim.FamiliesOf(o) {
		shape.Families = append(shape.Families, string(family))
		shape.ServiceCIDRs = append(shape.ServiceCIDRs, sim.ServiceRange(o, family).String())
		for _, p := range sim.PodRanges(o, family) {
			shape.PodCIDRs = append(shape.PodCIDRs, p.String())
		}
	}
	w, err := emptyWorld(shape, seed)
	if err != nil {
		panic("sim: the shape of given objects is not valid: " + err.Error())
	}
	w.avoid(sim.AddressesOf(o))
	w.nodePorts.taken = map[int32]bool{}
	for _, n := range o.Nodes {
		w.seen(n)
		w.nodes = append(w.nodes, n)
		w.hosts = append(w.hosts, newHost(n))
		w.addPodRanges(n)
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
		l := byService[types.NamespacedName{Namespace: s.Namespace, Name: s.Labels[discoveryv1.LabelServiceName]}]
		if l == nil || w.podIPs[corev1.IPFamily(s.AddressType)] == nil { // no proxy reads a slice of names
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

// avoid excludes addresses that are in use from allocation, in all ranges.
func (w *World) avoid(used map[netip.Addr]bool) {
	kept := maps.Clone(used)
	for _, family := range w.families {
		for _, r := range append([]*addressRange{w.clusterIPs[family], w.loadBalancerIPs[family], w.externalIPs[family]}, w.podIPs[family].shared...) {
			r.taken, r.kept = used, kept
		}
	}
}

// addPodRanges makes the Node's pods have addresses of its podCIDRs.
func (w *World) addPodRanges(n *corev1.Node) {
	for _, cidr := range n.Spec.PodCIDRs {
		p, ok := sim.ParsePrefix(cidr)
		if !ok {
			continue
		}
		if pods := w.podIPs[inet.FamilyOf(p.Addr())]; pods != nil {
			pods.given = true
			pods.perNode[n.Name] = &addressRange{purpose: "pod", prefix: p.Masked(), taken: pods.shared[0].taken, kept: pods.shared[0].kept}
		}
	}
}

// seen keeps the World's versions above those of its initial objects.
func (w *World) seen(o metav1.Object) {
	w.version = max(w.version, sim.VersionOf(o))
}

// reserve excludes the ports of a Service from allocation.
func (w *World) reserve(s *corev1.Service) {
	for _, p := range s.Spec.Ports {
		w.nodePorts.taken[p.NodePort] = true
	}
	w.nodePorts.taken[s.Spec.HealthCheckNodePort] = true
}

// Shape returns the shape of the cluster: of one that was not generated, its families and ranges of addresses, and the
// defaults of what steps add.
func (w *World) Shape() scenarios.Shape { return w.shape }
