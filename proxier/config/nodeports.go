package config

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// NodePorts says on which of the node's addresses one family accepts NodePort traffic.
type NodePorts struct {
	Family corev1.IPFamily
	// MatchAll: on all local addresses, whatever they are; one rule covers them, and Prefixes does not matter.
	MatchAll bool
	// Prefixes of the family that an address has to be in.
	Prefixes []netip.Prefix
	// Localhost: also on loopback addresses, where they match. Only IPv4 can: a packet with the source ::1 does not
	// leave the loopback interface, and there is no route_localnet for IPv6.
	Localhost bool
}

// The loopback addresses of IPv4.
var loopbackIPv4 = netip.MustParsePrefix("127.0.0.0/8")

// keywords of nodePortAddresses that stand for the same prefixes on every node.
var keywords = map[string][]netip.Prefix{
	localhost: {loopbackIPv4, netip.MustParsePrefix("::1/128")},
	everyIP:   {netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
}

// NodePortAddresses returns what nodePortAddresses and localhostNodePorts mean for one family. nodeIPs are the node's
// primary addresses, which "primary" stands for.
//
// No CIDR of the family means all addresses, and so does "primary" on a node without an address of the family: kube-proxy
// does the same.
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
		if familyOf(prefix.Addr()) != family {
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
				// A loopback address stands in for a node address that is not known.
				if ip.IsValid() && !ip.IsLoopback() {
					prefixes = append(prefixes, netip.PrefixFrom(ip, ip.BitLen()))
				}
			}
			continue
		}
		prefix, err := parsePrefix(address)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", elementOf("nodePortAddresses", i), err)
		}
		prefixes = append(prefixes, prefix)
	}
	return prefixes, nil
}

// RouteLocalnet says whether the kernel has to route packets from 127.0.0.0/8 to other interfaces
// (net.ipv4.conf.all.route_localnet=1), without which a NodePort does not answer on localhost.
func (n NodePorts) RouteLocalnet() bool {
	return n.Localhost && (n.MatchAll || slices.ContainsFunc(n.Prefixes, loopbackIPv4.Overlaps))
}

// Select returns which of the addresses of the node's interfaces take NodePort traffic, sorted and each once, and which
// would by their prefix but are refused because they are loopback addresses. It is for rules by address: with MatchAll
// one rule by address type does the work.
func (n NodePorts) Select(addresses []netip.Addr) (selected, refused []netip.Addr) {
	for _, addr := range addresses {
		addr = addr.Unmap().WithZone("")
		if familyOf(addr) != n.Family || !n.matches(addr) {
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
