package sim

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/internal/inet"
)

// defaultServiceCIDRs are the defaults of kubeadm, and their like for IPv6. defaultPodCIDRs overlap none of them.
var (
	defaultServiceCIDRs = map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix("10.96.0.0/12"), corev1.IPv6Protocol: netip.MustParsePrefix("fd00:10:96::/108"),
	}
	defaultPodCIDRs = map[corev1.IPFamily]netip.Prefix{
		corev1.IPv4Protocol: netip.MustParsePrefix("10.128.0.0/9"), corev1.IPv6Protocol: netip.MustParsePrefix("fd00:10:128::/64"),
	}
)

// DefaultServiceCIDRs are the ranges of cluster IPs of a cluster that sets none, one a family.
func DefaultServiceCIDRs() []string { return texts(defaultServiceCIDRs) }

func texts(ranges map[corev1.IPFamily]netip.Prefix) []string {
	return []string{ranges[corev1.IPv4Protocol].String(), ranges[corev1.IPv6Protocol].String()}
}

// FamiliesOf returns the IP families of a cluster, IPv4 first: those of its Services and EndpointSlices; IPv4 if it has
// none.
func FamiliesOf(o *Objects) []corev1.IPFamily {
	used := map[corev1.IPFamily]bool{}
	for _, s := range o.Services {
		for _, family := range s.Spec.IPFamilies {
			used[family] = true
		}
		for _, addr := range addresses(s.Spec.ClusterIPs) {
			used[inet.FamilyOf(addr)] = true
		}
	}
	for _, s := range o.Slices {
		used[corev1.IPFamily(s.AddressType)] = true
	}
	families := slices.DeleteFunc(slices.Clone(IPFamilies), func(family corev1.IPFamily) bool { return !used[family] })
	if len(families) == 0 {
		return []corev1.IPFamily{corev1.IPv4Protocol}
	}
	return families
}

// AddressesOf returns the addresses of all objects of a cluster.
func AddressesOf(o *Objects) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	add := func(texts ...string) {
		for _, addr := range addresses(texts) {
			used[addr] = true
		}
	}
	for _, s := range o.Services {
		add(s.Spec.ClusterIP)
		add(s.Spec.ClusterIPs...)
		add(s.Spec.ExternalIPs...)
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			add(ingress.IP)
		}
	}
	for _, s := range o.Slices {
		for i := range s.Endpoints {
			add(s.Endpoints[i].Addresses...)
		}
	}
	for _, addr := range nodeAddresses(o) {
		used[addr] = true
	}
	return used
}

// ServiceRange returns the range of cluster IPs of a family: the default if it has them all, else one that has most of
// them. It has no pod's address, unless pods and cluster IPs are mixed.
func ServiceRange(o *Objects, family corev1.IPFamily) netip.Prefix {
	var clusterIPs []netip.Addr
	for _, s := range o.Services {
		clusterIPs = append(clusterIPs, addresses(s.Spec.ClusterIPs)...)
	}
	clusterIPs = ofFamily(clusterIPs, family)
	pods := append(nodePodAddresses(o, family), endpointAddresses(o, family)...)
	hasPods := func(p netip.Prefix) bool { return slices.ContainsFunc(pods, p.Contains) }
	usual := defaultServiceCIDRs[family]
	outside := slices.ContainsFunc(clusterIPs, func(addr netip.Addr) bool { return !usual.Contains(addr) })
	if len(clusterIPs) == 0 || !outside && !hasPods(usual) {
		return usual
	}
	// An API server's range has at most 2^20 addresses; many have 2^16.
	widest, host := 20, 16
	bits := usual.Addr().BitLen()
	covered, _ := cover(clusterIPs, bits-widest, bits-host, hasPods)
	return covered
}

// PodRanges returns ranges of pods' addresses of a family that do not overlap the range of cluster IPs. The first is that
// of the Nodes' podCIDRs, else of most endpoints, if there are any. The last is a large one for pods that find no room
// elsewhere.
func PodRanges(o *Objects, family corev1.IPFamily) []netip.Prefix {
	own, ok := podRange(o, family)
	usual := defaultPodCIDRs[family]
	if ok && usual.Overlaps(own) || usual.Overlaps(ServiceRange(o, family)) {
		usual = FreeRange(o, family)
	}
	if !ok {
		return []netip.Prefix{usual}
	}
	return []netip.Prefix{own, usual}
}

// podRange returns a range of the addresses that pods have; false if none is known.
func podRange(o *Objects, family corev1.IPFamily) (netip.Prefix, bool) {
	services := ServiceRange(o, family)
	bits := defaultPodCIDRs[family].Addr().BitLen()
	if of := nodePodAddresses(o, family); len(of) > 0 {
		nodes := nodeAddresses(o)
		elsewhere := func(p netip.Prefix) bool { return services.Overlaps(p) || slices.ContainsFunc(nodes, p.Contains) }
		if covered, ok := cover(of, 8, bits, elsewhere); ok {
			return covered, true
		}
	}
	if of := endpointAddresses(o, family); len(of) > 0 {
		block := 16
		if family == corev1.IPv6Protocol {
			block = 64
		}
		if covered, ok := cover(of, block, block, services.Overlaps); ok && bits-covered.Bits() >= 4 {
			return covered, true
		}
	}
	return netip.Prefix{}, false
}

// FreeRange returns a range of a family that has no address of the cluster, and overlaps no other range of it and of the
// caller: of 2^20 addresses or more in IPv4, and of 2^64 in IPv6. In a cluster with addresses in every private network, it
// overlaps only the range of Services not.
func FreeRange(o *Objects, family corev1.IPFamily, others ...netip.Prefix) netip.Prefix {
	used := AddressesOf(o)
	services := ServiceRange(o, family)
	pods := nodePodAddresses(o, family)
	free := func(p netip.Prefix) bool {
		for addr := range used {
			if p.Contains(addr) {
				return false
			}
		}
		return !p.Overlaps(services) && !slices.ContainsFunc(pods, p.Contains) && !slices.ContainsFunc(others, p.Overlaps)
	}
	// Shared address space first, which few clusters use; then the private networks. In IPv6, documentation.
	candidates := []netip.Prefix{netip.MustParsePrefix("100.96.0.0/11"), netip.MustParsePrefix("100.64.0.0/11"), netip.MustParsePrefix("172.16.0.0/12")}
	for i := 15; i >= 0; i-- {
		candidates = append(candidates, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i << 4)}), 12))
	}
	if family == corev1.IPv6Protocol {
		candidates = nil
		for i := range 256 {
			candidates = append(candidates, netip.PrefixFrom(netip.AddrFrom16([16]byte{0x20, 0x01, 0x0d, 0xb8, 0, 0x64, 0xff, byte(255 - i)}), 64))
		}
	}
	if i := slices.IndexFunc(candidates, free); i >= 0 {
		return candidates[i]
	}
	return candidates[slices.IndexFunc(candidates, func(p netip.Prefix) bool { return !p.Overlaps(services) })]
}

// cover returns a range of the addresses in the block, of so many bits, that has most of them: as wide as least bits
// allow, unless it is to be avoided. It reports false if even the narrowest one is.
func cover(addrs []netip.Addr, block, least int, avoid func(netip.Prefix) bool) (netip.Prefix, bool) {
	in := map[netip.Prefix][]netip.Addr{}
	for _, addr := range addrs {
		p, _ := addr.Prefix(block)
		in[p] = append(in[p], addr)
	}
	var densest netip.Prefix
	for p, members := range in {
		if n := len(in[densest]); len(members) > n || len(members) == n && p.Addr().Less(densest.Addr()) {
			densest = p
		}
	}
	first, last := slices.MinFunc(in[densest], netip.Addr.Compare), slices.MaxFunc(in[densest], netip.Addr.Compare)
	narrowest := first.BitLen()
	for p, _ := first.Prefix(narrowest); !p.Contains(last); p, _ = first.Prefix(narrowest) {
		narrowest--
	}
	for bits := min(least, narrowest); bits < narrowest; bits++ {
		if p, _ := first.Prefix(bits); !avoid(p) {
			return p, true
		}
	}
	p, _ := first.Prefix(narrowest)
	return p, !avoid(p)
}

// nodePodAddresses returns the first and the last address of each Node's podCIDR of a family.
func nodePodAddresses(o *Objects, family corev1.IPFamily) (all []netip.Addr) {
	for _, node := range o.Nodes {
		for _, cidr := range node.Spec.PodCIDRs {
			if p, ok := ParsePrefix(cidr); ok && inet.FamilyOf(p.Addr()) == family {
				all = append(all, p.Masked().Addr(), LastOf(p))
			}
		}
	}
	return all
}

func nodeAddresses(o *Objects) (all []netip.Addr) {
	for _, node := range o.Nodes {
		for _, address := range node.Status.Addresses {
			all = append(all, addresses([]string{address.Address})...)
		}
	}
	return all
}

func endpointAddresses(o *Objects, family corev1.IPFamily) (all []netip.Addr) {
	for _, s := range o.Slices {
		if corev1.IPFamily(s.AddressType) == family {
			for i := range s.Endpoints {
				all = append(all, addresses(s.Endpoints[i].Addresses)...)
			}
		}
	}
	return all
}

// addresses parses texts. It leaves out those that are no addresses, such as None.
func addresses(texts []string) (all []netip.Addr) {
	for _, text := range texts {
		if addr, ok := inet.ParseAddr(text); ok {
			all = append(all, addr)
		}
	}
	return all
}

func ofFamily(addrs []netip.Addr, family corev1.IPFamily) []netip.Addr {
	return slices.DeleteFunc(addrs, func(addr netip.Addr) bool { return inet.FamilyOf(addr) != family })
}

// LastOf returns the last address of a prefix.
func LastOf(p netip.Prefix) netip.Addr {
	bytes := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr
}
