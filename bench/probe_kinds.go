package bench

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/netns"
	"synclab/sim"
)

// The kinds of destinations besides cluster IPs by position and the miss: the words of scenarios.Probe.Kinds. Only UDP
// Services are sent to: a connect(2) of TCP has more to do than its packet, and nobody answers here.
//
// Not all that a kind costs is rules: the answer to a refused packet, the route of one that was for the node and now is not,
// and, with iptables, affinity's lists, which xt_recent finds by comparing their names one after the other.
const (
	kindReject        = "reject"         // no endpoints: refused in table filter, after all of nat
	kindNodePort      = "node-port"      // the node's own address
	kindExternalIP    = "external-ip"    // by an externalIP
	kindLoadBalancer  = "load-balancer"  // with source ranges, from a client that they allow
	kindAffinityFirst = "affinity-first" // each packet from a client that no rule has seen
	kindAffinityAgain = "affinity-again" // each packet from the same client, which is remembered
)

// Clients that no Service knows send from these ranges, of shared address space (RFC 6598) and documentation: apart from
// what the generator gives to Services, pods, nodes and source ranges. The first address is the one client that is
// remembered.
var strangers = map[corev1.IPFamily]netip.Prefix{
	corev1.IPv4Protocol: netip.MustParsePrefix("100.96.0.0/11"),
	corev1.IPv6Protocol: netip.MustParsePrefix("2001:db8:64:ffff::/64"),
}

// udpPort is a UDP port of a Service, in one family.
type udpPort struct {
	svc      *corev1.Service
	port     *corev1.ServicePort
	family   corev1.IPFamily
	cluster  netip.AddrPort
	position int // of the cluster IP's rule; 0: it has none
	// endpoints of the family, and those that are ready.
	endpoints, ready int
}

// udpPorts are those of all Services that have a cluster IP of the family.
func (r *repetition) udpPorts(family corev1.IPFamily) []udpPort {
	objects := r.world.Objects()
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
	var ports []udpPort
	for _, svc := range objects.Services {
		cluster, ok := addressIn(family, svc.Spec.ClusterIPs)
		if !ok {
			continue
		}
		count := counts[types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}]
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			if port.Protocol != corev1.ProtocolUDP {
				continue
			}
			ports = append(ports, udpPort{
				svc: svc, port: port, family: family, cluster: netip.AddrPortFrom(cluster, uint16(port.Port)),
				endpoints: count.endpoints, ready: count.ready,
			})
		}
	}
	return ports
}

// addressIn is the first address of a family.
func addressIn(family corev1.IPFamily, texts []string) (netip.Addr, bool) {
	for _, text := range texts {
		if addr, ok := sim.ParseAddr(text); ok && familyOf(addr) == family {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

func (u *udpPort) sticky() bool { return u.svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP }

// local says whether a policy leaves endpoints out.
func (u *udpPort) local() bool {
	internal := u.svc.Spec.InternalTrafficPolicy
	return internal != nil && *internal == corev1.ServiceInternalTrafficPolicyLocal ||
		u.svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// address of the port as a kind of destination; false: it is none of that kind. Affinity and local policies go with the
// kinds that are about affinity only, and with none.
func (u *udpPort) address(kind string, node netip.Addr) (netip.AddrPort, bool) {
	at := func(addr netip.Addr, ok bool) (netip.AddrPort, bool) {
		return netip.AddrPortFrom(addr, uint16(u.port.Port)), ok && addr.IsValid()
	}
	switch {
	case kind == kindReject:
		return u.cluster, u.endpoints == 0
	case u.ready == 0 || u.local():
		return netip.AddrPort{}, false
	case kind == kindAffinityFirst || kind == kindAffinityAgain:
		return u.cluster, u.sticky()
	case u.sticky():
		return netip.AddrPort{}, false
	}
	switch kind {
	case kindNodePort:
		return netip.AddrPortFrom(node, uint16(u.port.NodePort)), u.port.NodePort != 0 && node.IsValid()
	case kindExternalIP:
		return at(addressIn(u.family, u.svc.Spec.ExternalIPs))
	case kindLoadBalancer:
		return at(u.ingress(), len(u.sourceRanges()) > 0)
	}
	return netip.AddrPort{}, false
}

// ingress is the load balancer's address, if proxiers serve it.
func (u *udpPort) ingress() netip.Addr {
	for _, ingress := range u.svc.Status.LoadBalancer.Ingress {
		if ingress.IPMode != nil && *ingress.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		if addr, ok := addressIn(u.family, []string{ingress.IP}); ok {
			return addr
		}
	}
	return netip.Addr{}
}

func (u *udpPort) sourceRanges() []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range u.svc.Spec.LoadBalancerSourceRanges {
		if prefix, ok := sim.ParsePrefix(text); ok && familyOf(prefix.Addr()) == u.family {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}

// kindTargets picks the Services of the wanted kinds, in that order: of each the one whose cluster IP is found last, by
// the positions at, since that is what grows. Lacking are the kinds that no Service is of.
func (r *repetition) kindTargets(family corev1.IPFamily, wanted []string, at map[netip.AddrPort]int) (targets []Target, lacking []string, err error) {
	if len(wanted) == 0 {
		return nil, nil, nil
	}
	ports := r.udpPorts(family)
	for i := range ports {
		ports[i].position = at[ports[i].cluster]
	}
	slices.SortStableFunc(ports, func(a, b udpPort) int {
		return cmp.Or(cmp.Compare(b.position, a.position), cmp.Compare(b.svc.Namespace, a.svc.Namespace), cmp.Compare(b.svc.Name, a.svc.Name))
	})
	for _, kind := range wanted {
		var addr netip.AddrPort
		i := slices.IndexFunc(ports, func(u udpPort) (ok bool) {
			addr, ok = u.address(kind, r.nodeAddress(family))
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

// nodeAddress is the node's own address of a family.
func (r *repetition) nodeAddress(family corev1.IPFamily) netip.Addr {
	for _, addr := range r.node {
		if familyOf(addr) == family {
			return addr
		}
	}
	return netip.Addr{}
}

// clientsOf a kind of destination, and what the kind needs of the namespace.
func (r *repetition) clientsOf(kind string, u *udpPort) (*clients, error) {
	within := strangers[u.family]
	switch kind {
	case kindReject:
		answerAlways()
	case kindLoadBalancer:
		return r.allowedClient(u)
	case kindAffinityFirst:
		if r.strangers == nil {
			r.strangers = map[corev1.IPFamily]*clients{}
		}
		if r.strangers[u.family] == nil { // one after the other, in all probes of the repetition
			r.strangers[u.family] = &clients{addr: within.Addr().Next(), fresh: true, within: within}
		}
		return r.strangers[u.family], holdRange(within)
	case kindAffinityAgain:
		return &clients{addr: within.Addr(), within: within}, holdRange(within)
	}
	return nil, nil
}

// allowedClient is one that a load balancer's source ranges allow: the node itself if they do, else one in the first of
// them. It is local, like every client that sends from here.
func (r *repetition) allowedClient(u *udpPort) (*clients, error) {
	ranges := u.sourceRanges()
	node := r.nodeAddress(u.family)
	if slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(node) }) {
		return nil, nil
	}
	reserved := sinks(r.Scenario.Shape, r.world.Objects(), r.families)
	for _, allowed := range ranges {
		addr := allowed.Addr()
		if !slices.ContainsFunc(reserved, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			one := netip.PrefixFrom(addr, addr.BitLen())
			return &clients{addr: addr, within: one}, holdRange(one)
		}
	}
	if r.Rep == 1 {
		r.say.message(message{Note: fmt.Sprintf("%s: %s/%s allows only addresses of pods and Services, so that the node's packets are dropped",
			kindLoadBalancer, u.svc.Namespace, u.svc.Name)})
	}
	return nil, nil
}

// holdRange makes all addresses of a range the namespace's own, without giving them to a device: processes may send from
// them, and a proxier that lists the node's addresses does not find them.
func holdRange(p netip.Prefix) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("lo: %w", err)
	}
	route := &netlink.Route{
		LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST,
		Dst: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())},
	}
	if p.Addr().Is6() {
		route.Scope = netlink.SCOPE_UNIVERSE
	}
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("local route to %s: %w", p, err)
	}
	return nil
}

// answerAlways takes the kernel's bound off how many ICMP errors it sends: where it answers some packets and others not,
// what a refused packet pays would be two things. Best effort: /proc/sys may be read-only in a container.
func answerAlways() {
	if netns.Guard() != nil {
		return
	}
	_ = os.WriteFile("/proc/sys/net/ipv4/icmp_ratemask", []byte("0"), 0o644)   // none of the types is bounded
	_ = os.WriteFile("/proc/sys/net/ipv6/icmp/ratemask", []byte("255"), 0o644) // only one that nobody sends is
}
