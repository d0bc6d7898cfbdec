package config

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/internal/inet"
	"synclab/internal/yamldoc"
)

// NodePorts describes on which of the node's addresses one family accepts NodePort traffic.
type NodePorts struct {
	Family corev1.IPFamily
	// MatchAll: on all local addresses. One rule covers them, and Prefixes is not used.
	MatchAll bool
	// Prefixes are the family's prefixes that select addresses.
	Prefixes []netip.Prefix
	// Localhost: also on loopback addresses, if they match. Only IPv4 supports that: a packet with the source ::1 does
	// not leave the loopback interface, and IPv6 has no route_localnet.
	Localhost bool
}

// loopbackIPv4 contains the loopback addresses of IPv4.
var loopbackIPv4 = netip.MustParsePrefix("127.0.0.0/8")

// keywords are the values of nodePortAddresses with the same prefixes on every node.
var keywords = map[string][]netip.Prefix{
	localhost: {loopbackIPv4, netip.MustParsePrefix("::1/128")},
	everyIP:   {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
}

// NodePortAddresses returns the meaning of nodePortAddresses and localhostNodePorts for one family. nodeIPs are the
// node's primary addresses: the value of "primary".
//
// As in kube-proxy, a list without a CIDR of the family means all addresses. So does "primary" on a node without an
// address of the family.
func NodePortAddresses(cfg *v1alpha1.KubeProxyConfiguration, family corev1.IPFamily, nodeIPs []netip.Addr) (NodePorts, error) {
	ports := NodePorts{
		Family:    family,
		Localhost: family == corev1.IPv4Protocol && (cfg.IPTables.LocalhostNodePorts == nil || *cfg.IPTables.LocalhostNodePorts),
	}
	prefixes, err := nodePortPrefixes(cfg.NodePortAddresses, nodeIPs)
	if err != nil {
		return NodePorts{}, err
	}
	for _, prefix := range prefixes {
		if inet.FamilyOf(prefix.Addr()) != family {
			continue
		}
		ports.Prefixes = append(ports.Prefixes, prefix)
		ports.MatchAll = ports.MatchAll || prefix.Bits() == 0
	}
	if len(ports.Prefixes) == 0 {
		ports.MatchAll = true
	}
	if ports.MatchAll {
		ports.Prefixes = nil
	}
	return ports, nil
}

func nodePortPrefixes(addresses []string, nodeIPs []netip.Addr) ([]netip.Prefix, error) {
	var prefixes []netip.Prefix
	for i, address := range addresses {
		if known := keywords[address]; known != nil {
			prefixes = append(prefixes, known...)
			continue
		}
		if address == primary {
			for _, ip := range nodeIPs {
				ip = ip.Unmap()
				// A loopback address is the placeholder for an unknown node address.
				if ip.IsValid() && !ip.IsLoopback() {
					prefixes = append(prefixes, netip.PrefixFrom(ip, ip.BitLen()))
				}
			}
			continue
		}
		prefix, err := inet.ParsePrefix(address)
		if err != nil {
			return nil, fmt.Errorf("%s: %q is not a CIDR: %w", yamldoc.Element("nodePortAddresses", i), address, err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// RouteLocalnet reports whether the kernel has to route packets from 127.0.0.0/8 to other interfaces. Without
// net.ipv4.conf.all.route_localnet=1, a NodePort does not answer on localhost.
func (n NodePorts) RouteLocalnet() bool {
	return n.Localhost && (n.MatchAll || slices.ContainsFunc(n.Prefixes, loopbackIPv4.Overlaps))
}

// Select returns which addresses of the node's interfaces take NodePort traffic, sorted, without duplicates. refused
// are loopback addresses that match a prefix but are excluded. Rules by address need Select; with MatchAll, one rule by
// address type is enough.
func (n NodePorts) Select(addresses []netip.Addr) (selected, refused []netip.Addr) {
	for _, addr := range addresses {
		addr = addr.Unmap().WithZone("")
		if inet.FamilyOf(addr) != n.Family || !n.matches(addr) {
			continue
		}
		if addr.IsLoopback() && !n.Localhost {
			refused = append(refused, addr)
		} else {
			selected = append(selected, addr)
		}
	}
	return sortedOnce(selected), sortedOnce(refused)
}

func (n NodePorts) matches(addr netip.Addr) bool {
	return n.MatchAll || slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) })
}

func sortedOnce(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}
