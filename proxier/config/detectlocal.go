package config

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"

	"synclab/proxier/backend"
	"synclab/proxier/tracker"
)

// DetectLocal returns how one family distinguishes the pods' traffic from other traffic. podCIDRs are those of the Node
// object. Only mode NodeCIDR uses them, and fails if there are none. If no CIDR is of this family, the result is zero,
// as in kube-proxy: a single-stack clusterCIDR does not stop the other family.
func DetectLocal(cfg *v1alpha1.KubeProxyConfiguration, family corev1.IPFamily, podCIDRs []string) (backend.Local, error) {
	switch cfg.DetectLocalMode {
	case LocalModeClusterCIDR, "":
		if cfg.ClusterCIDR == "" {
			return backend.Local{}, nil
		}
		return detectBySource("clusterCIDR", family, strings.Split(cfg.ClusterCIDR, ","))
	case LocalModeNodeCIDR:
		if len(podCIDRs) == 0 {
			return backend.Local{}, &FieldError{Field: "detectLocalMode", Reason: "NodeCIDR, but the node has no podCIDRs"}
		}
		return detectBySource("podCIDRs of the node", family, podCIDRs)
	case LocalModeBridgeInterface:
		return backend.Local{Interface: cfg.DetectLocal.BridgeInterface}, nil
	case LocalModeInterfaceNamePrefix:
		return backend.Local{InterfacePrefix: cfg.DetectLocal.InterfaceNamePrefix}, nil
	default:
		return backend.Local{}, &FieldError{Field: "detectLocalMode", Reason: fmt.Sprintf("%q is not known", cfg.DetectLocalMode)}
	}
}

// detectBySource uses the first CIDR of the family.
func detectBySource(from string, family corev1.IPFamily, cidrs []string) (backend.Local, error) {
	for _, cidr := range cidrs {
		prefix, err := parsePrefix(cidr)
		if err != nil {
			return backend.Local{}, fmt.Errorf("%s: %w", from, err)
		}
		if tracker.FamilyOf(prefix.Addr()) == family {
			return backend.Local{Source: prefix}, nil
		}
	}
	return backend.Local{}, nil
}

// parsePrefix parses a CIDR as Kubernetes does, leading zeros in IPv4 numbers included, and clears its host bits.
// iptables clears them too, and the rules written must equal the rules read back.
func parsePrefix(cidr string) (netip.Prefix, error) {
	_, network, err := utilnet.ParseCIDRSloppy(cidr)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR: %w", cidr, err)
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	ones, _ := network.Mask.Size()
	return netip.PrefixFrom(addr, ones), nil
}

// elementOf returns the path of one element of a list field.
func elementOf(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
