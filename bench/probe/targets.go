package probe

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/internal/inet"
	"synclab/sim"
)

// The kinds of destinations besides cluster IPs and the miss, named as in scenarios.Probe.Kinds.
//
// Rules are not the only cost of a kind: see docs/design/first-packets.md.
const (
	kindReject        = "reject"         // no endpoints: rejected in table filter, after all of nat
	kindNodePort      = "node-port"      // the node's own address
	kindExternalIP    = "external-ip"    // an externalIP
	kindLoadBalancer  = "load-balancer"  // with source ranges, from a client that they allow
	KindAffinityFirst = "affinity-first" // each packet from a new client
	KindAffinityAgain = "affinity-again" // each packet from the same client, which has an affinity entry
)

// AllKinds are all kinds of destinations.
var AllKinds = []string{kindReject, kindNodePort, kindExternalIP, kindLoadBalancer, KindAffinityFirst, KindAffinityAgain}

// strangers returns a range of clients that is not part of the cluster, the same for all probes of a repetition. The first
// address is the client with an affinity entry.
func (r *Probes) strangers(family corev1.IPFamily) netip.Prefix {
	if _, chosen := r.freeRanges[family]; !chosen {
		if r.freeRanges == nil {
			r.freeRanges = map[corev1.IPFamily]netip.Prefix{}
		}
		objects := r.World.Objects()
		r.freeRanges[family] = sim.FreeRange(objects, family, pass.Sinks(r.Scenario.Shape, objects, r.Families)...)
	}
	return r.freeRanges[family]
}

// servicePort is a port of a Service, in one family.
type servicePort struct {
	svc      *corev1.Service
	port     *corev1.ServicePort
	family   corev1.IPFamily
	cluster  netip.AddrPort
	position int // of the cluster IP's rule; 0: no rule
	// endpoints counts the endpoints of the family, and ready those that are ready.
	endpoints, ready int
}

// ports returns the ports of the probed protocol, of all Services that have a cluster IP of the family.
func (r *Probes) ports(family corev1.IPFamily) []servicePort {
	objects := r.World.Objects()
	type counted struct{ endpoints, ready int }
	counts := map[types.NamespacedName]counted{}
	for _, slice := range objects.Slices {
		if string(slice.AddressType) != string(family) {
			continue
		}
		name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels[discoveryv1.LabelServiceName]}
		count := counts[name]
		for _, endpoint := range slice.Endpoints {
			count.endpoints++
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				count.ready++
			}
		}
		counts[name] = count
	}
	var ports []servicePort
	for _, svc := range objects.Services {
		cluster, ok := inet.ParseAddrOf(family, svc.Spec.ClusterIPs...)
		if !ok {
			continue
		}
		count := counts[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			if port.Protocol != r.protocol {
				continue
			}
			ports = append(ports, servicePort{
				svc: svc, port: port, family: family, cluster: netip.AddrPortFrom(cluster, uint16(port.Port)),
				endpoints: count.endpoints, ready: count.ready,
			})
		}
	}
	return ports
}

func (u *servicePort) sticky() bool {
	return u.svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP
}

// local reports whether a traffic policy excludes endpoints.
func (u *servicePort) local() bool {
	internal := u.svc.Spec.InternalTrafficPolicy
	return internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal ||
		u.svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// address returns the port's address as a destination of a kind; false: it is not of that kind. Services with affinity
// are only of the kinds about affinity. Services with a local policy are of no kind but reject.
func (u *servicePort) address(kind string, node netip.Addr) (netip.AddrPort, bool) {
	at := func(addr netip.Addr, ok bool) (netip.AddrPort, bool) {
		return netip.AddrPortFrom(addr, uint16(u.port.Port)), ok && addr.IsValid()
	}
	switch {
	case kind == kindReject:
		return u.cluster, u.endpoints == 0
	case u.ready == 0 || u.local():
		return netip.AddrPort{}, false
	case kind == KindAffinityFirst || kind == KindAffinityAgain:
		return u.cluster, u.sticky()
	case u.sticky():
		return netip.AddrPort{}, false
	}
	switch kind {
	case kindNodePort:
		return netip.AddrPortFrom(node, uint16(u.port.NodePort)), u.port.NodePort != 0 && node.IsValid()
	case kindExternalIP:
		return at(inet.ParseAddrOf(u.family, u.svc.Spec.ExternalIPs...))
	case kindLoadBalancer:
		return at(u.ingress(), len(u.sourceRanges()) > 0)
	}
	return netip.AddrPort{}, false
}

// ingress returns the load balancer's address, if proxies handle it.
func (u *servicePort) ingress() netip.Addr {
	for _, ingress := range u.svc.Status.LoadBalancer.Ingress {
		if ingress.IPMode != nil && *ingress.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if addr, ok := inet.ParseAddrOf(u.family, ingress.IP); ok {
			return addr
		}
	}
	return netip.Addr{}
}

func (u *servicePort) sourceRanges() []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range u.svc.Spec.LoadBalancerSourceRanges {
		if prefix, ok := sim.ParsePrefix(text); ok && inet.FamilyOf(prefix.Addr()) == u.family {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}

// kindTargets picks a Service for each of the wanted kinds, in that order: the one with the largest position of its
// cluster IP, since cost grows with the position. lacking are the kinds without a Service.
func (r *Probes) kindTargets(family corev1.IPFamily, wanted []string, at map[netip.AddrPort]int) (targets []Target, lacking []string, err error) {
	if r.About.ClusterIPsOnly() { // and its session affinity is not by client address
		wanted = slices.DeleteFunc(slices.Clone(wanted), func(kind string) bool { return kind != kindReject })
	}
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	ports := r.ports(family)
	for i := range ports {
		ports[i].position = at[ports[i].cluster]
	}
	slices.SortStableFunc(ports, func(a, b servicePort) int {
		return cmp.Or(cmp.Compare(b.position, a.position), cmp.Compare(b.svc.Namespace, a.svc.Namespace), cmp.Compare(b.svc.Name, a.svc.Name))
	})
	for _, kind := range wanted {
		var addr netip.AddrPort
		i := slices.IndexFunc(ports, func(u servicePort) (ok bool) {
			addr, ok = u.address(kind, r.NodeAddress(family))
			return ok
		})
		if i < 0 {
			lacking = append(lacking, kind)
			continue
		}
		from, err := r.clientsOf(kind, &ports[i])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kind, err)
		}
		targets = append(targets, Target{Position: cmp.Or(ports[i].position, -1), Addr: addr, Kind: kind, From: from})
	}
	return targets, lacking, nil
}

// clientsOf returns the clients for a kind of destination, and prepares the namespace for them.
func (r *Probes) clientsOf(kind string, u *servicePort) (*clients, error) {
	within := r.strangers(u.family)
	switch kind {
	case kindReject:
		answerAlways()
	case kindLoadBalancer:
		return r.allowedClient(u)
	case KindAffinityFirst:
		if r.newClients == nil {
			r.newClients = map[corev1.IPFamily]*clients{}
		}
		if r.newClients[u.family] == nil { // new clients for all probes of the repetition
			r.newClients[u.family] = &clients{addr: within.Addr().Next(), fresh: true, within: within}
		}
		return r.newClients[u.family], netns.HoldRange(within)
	case KindAffinityAgain:
		return &clients{addr: within.Addr(), within: within}, netns.HoldRange(within)
	}
	return nil, nil
}

// allowedClient returns a client that a load balancer's source ranges allow: the node itself if they do, else an address
// in the first of them. It is local, like every client here.
func (r *Probes) allowedClient(u *servicePort) (*clients, error) {
	ranges := u.sourceRanges()
	node := r.NodeAddress(u.family)
	if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(node) }) {
		return nil, nil
	}
	reserved := pass.Sinks(r.Scenario.Shape, r.World.Objects(), r.Families)
	for _, allowed := range ranges {
		addr := allowed.Addr()
		if !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			one := netip.PrefixFrom(addr, addr.BitLen())
			return &clients{addr: addr, within: one}, netns.HoldRange(one)
		}
	}
	if r.Rep == 1 {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: the source ranges of %s/%s have only addresses of pods and Services: the node's packets are dropped",
			kindLoadBalancer, u.svc.Namespace, u.svc.Name)})
	}
	return nil, nil
}

// answerAlways removes the kernel's rate limit for ICMP errors. If the kernel answered only some packets, the cost of
// rejected packets would have two values. Best effort: /proc/sys may be read-only in a container.
func answerAlways() {
	if netns.Guard() != nil {
		return
	}
	_ = os.WriteFile("/proc/sys/net/ipv4/icmp_ratemask", []byte("0"), 0o644)   // no type is limited
	_ = os.WriteFile("/proc/sys/net/ipv6/icmp/ratemask", []byte("255"), 0o644) // only an unused type is limited
}
