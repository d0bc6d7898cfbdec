package subject

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier/config"
)

// TableFamily is the family of tables in nf_tables.
func TableFamily(family corev1.IPFamily) nftables.TableFamily {
	if family == corev1.IPv6Protocol {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// DeviceAddresses returns the addresses that a node's namespace assigns to its device, the node IPs of proxies first. A
// real node has its internal addresses on interfaces. A cloud often translates the external ones elsewhere, so only one
// that is a node IP is assigned: proxies need it to be local, and no packet of the lab goes to the others.
func DeviceAddresses(cfg *v1alpha1.KubeProxyConfiguration, node *corev1.Node) []netip.Addr {
	var addrs []netip.Addr
	for _, addr := range slices.Concat(config.NodeIPs(cfg, node), config.NodeAddresses(node, corev1.NodeInternalIP)) {
		if !slices.Contains(addrs, addr) {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
