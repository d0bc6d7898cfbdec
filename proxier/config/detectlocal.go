package config

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"
)

// LocalDetector tells, in iptables match arguments, whether a packet comes from a pod of this cluster or node. The zero
// value detects nothing: then no rule that needs it is written.
type LocalDetector struct {
	match []string
}

// DetectLocal returns the detector of one family. podCIDRs are those of the Node object; only NodeCIDR asks for them,
// and fails when there are none at all. With no CIDR of this family the detector detects nothing, as in kube-proxy: a
// single-stack clusterCIDR does not stop the other family from working.
func DetectLocal(cfg *v1alpha1.KubeProxyConfiguration, family corev1.IPFamily, podCIDRs []string) (LocalDetector, error) {
	switch cfg.DetectLocalMode {
	case LocalModeClusterCIDR, "":
		if cfg.ClusterCIDR == "" {
			return LocalDetector{}, nil
		}
		return detectBySource("clusterCIDR", family, strings.Split(cfg.ClusterCIDR, ","))
	case LocalModeNodeCIDR:
		if len(podCIDRs) == 0 {
			return LocalDetector{}, &FieldError{Field: "detectLocalMode", Reason: "NodeCIDR, but the node has no podCIDRs"}
		}
		return detectBySource("podCIDRs of the node", family, podCIDRs)
	case LocalModeBridgeInterface:
		return LocalDetector{match: []string{"-i", cfg.DetectLocal.BridgeInterface}}, nil
	case LocalModeInterfaceNamePrefix:
		return LocalDetector{match: []string{"-i", cfg.DetectLocal.InterfaceNamePrefix + "+"}}, nil
	default:
		return LocalDetector{}, &FieldError{Field: "detectLocalMode", Reason: fmt.Sprintf("%q is not known", cfg.DetectLocalMode)}
	}
}

// detectBySource takes the first CIDR of the family.
func detectBySource(from string, family corev1.IPFamily, cidrs []string) (LocalDetector, error) {
	for _, cidr := range cidrs {
		prefix, err := parsePrefix(cidr)
		if err != nil {
			return LocalDetector{}, fmt.Errorf("%s: %w", from, err)
		}
		if familyOf(prefix.Addr()) == family {
			return LocalDetector{match: []string{"-s", prefix.String()}}, nil
		}
	}
	return LocalDetector{}, nil
}

// Implemented says whether anything is detected. When not, IfLocal and IfNotLocal are empty and would match everything.
func (d LocalDetector) Implemented() bool { return len(d.match) > 0 }

// IfLocal matches what comes from a local pod.
func (d LocalDetector) IfLocal() []string { return slices.Clone(d.match) }

// IfNotLocal matches everything else.
func (d LocalDetector) IfNotLocal() []string {
	if !d.Implemented() {
		return nil
	}
	return append([]string{"!"}, d.match...)
}

func familyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}

// parsePrefix reads a CIDR as Kubernetes does, leading zeros in IPv4 numbers included, and clears its host bits:
// iptables would do the same, and the rules written should be the rules read back.
func parsePrefix(cidr string) (netip.Prefix, error) {
	_, network, err := utilnet.ParseCIDRSloppy(cidr)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR: %w", cidr, err)
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	ones, _ := network.Mask.Size()
	return netip.PrefixFrom(addr, ones), nil
}

// elementOf is the path of one element of a list field.
func elementOf(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }
