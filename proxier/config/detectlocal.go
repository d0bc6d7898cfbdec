package config

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/internal/inet"
	"synclab/proxier/backend"
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

// detectBySource uses the first CIDR of the family. It has no host bits: iptables clears them, and the rules written must
// equal the rules read back.
func detectBySource(from string, family corev1.IPFamily, cidrs []string) (backend.Local, error) {
	for _, cidr := range cidrs {
		prefix, err := inet.ParsePrefix(cidr)
		if err != nil {
			return backend.Local{}, fmt.Errorf("%s: %q is not a CIDR: %w", from, cidr, err)
		}
		if inet.FamilyOf(prefix.Addr()) == family {
			return backend.Local{Source: prefix}, nil
		}
	}
	return backend.Local{}, nil
}
