package pass

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/internal/inet"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
)

// NodeName returns the first node, on which the proxier runs.
func NodeName(o *sim.Objects) string {
	if len(o.Nodes) == 0 {
		return "node-0"
	}
	return o.Nodes[0].Name
}

// sizeOf returns the number of Services and the mean number of endpoints per Service.
func sizeOf(o *sim.Objects) (services int, endpoints float64) {
	for _, slice := range o.Slices {
		endpoints += float64(len(slice.Endpoints))
	}
	if len(o.Services) == 0 {
		return 0, 0
	}
	return len(o.Services), endpoints / float64(len(o.Services))
}

// Prefix lengths of the address ranges that packets of the lab may go to.
const (
	sinkBits4 = 16
	sinkBits6 = 64
)

// Sinks returns the ranges that cover every address of Services and endpoints.
func Sinks(shape scenarios.Shape, o *sim.Objects, families []corev1.IPFamily) []netip.Prefix {
	found := map[netip.Prefix]bool{}
	add := func(text string) {
		addr, ok := inet.ParseAddr(text)
		if !ok || !slices.Contains(families, inet.FamilyOf(addr)) {
			return
		}
		bits := sinkBits4
		if addr.Is6() {
			bits = sinkBits6
		}
		found[netip.PrefixFrom(addr, bits).Masked()] = true
	}
	for _, svc := range o.Services {
		for _, ip := range slices.Concat(svc.Spec.ClusterIPs, svc.Spec.ExternalIPs) {
			add(ip)
		}
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			add(ingress.IP)
		}
	}
	for _, slice := range o.Slices {
		for _, ep := range slice.Endpoints {
			for _, ip := range ep.Addresses {
				add(ip)
			}
		}
	}
	for _, cidr := range slices.Concat(shape.ServiceCIDRs, shape.PodCIDRs) {
		if prefix, err := netip.ParsePrefix(cidr); err == nil && slices.Contains(families, inet.FamilyOf(prefix.Addr())) {
			found[prefix.Masked()] = true
		}
	}
	prefixes := make([]netip.Prefix, 0, len(found))
	for p := range found {
		prefixes = append(prefixes, p)
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int { return a.Addr().Compare(b.Addr())*256 + a.Bits() - b.Bits() })
	return prefixes
}

// ClosedForms returns the rules that layout classic needs, by the sizes alone; usual and plain limit its use. A port with
// e > 0 endpoints has one dispatch rule, one masquerade rule if pods are known by their source, e choices and 2e
// endpoint rules. A port without endpoints has one REJECT.
func ClosedForms(o *sim.Objects, families []corev1.IPFamily, cfg *v1alpha1.KubeProxyConfiguration) (map[corev1.IPFamily]map[iptables.Table]int, bool) {
	if !plain(o) || !usual(cfg) {
		return nil, false
	}
	forms := map[corev1.IPFamily]map[iptables.Table]int{}
	for _, family := range families {
		pods, err := config.DetectLocal(cfg, family, nil)
		if err != nil {
			return nil, false
		}
		masquerade := 0
		if config.SettingsOf(cfg, config.ModeIPTables).MasqueradeAll || pods.Implemented() {
			masquerade = 1
		}
		endpoints := map[string]int{}
		for _, slice := range o.Slices {
			if string(slice.AddressType) == string(family) {
				endpoints[slice.Namespace+"/"+slice.Labels["kubernetes.io/service-name"]] += len(slice.Endpoints)
			}
		}
		// MARK-MASQ 1, POSTROUTING 3, jump to the NodePorts 1; FORWARD 3, and KUBE-FIREWALL 1 in IPv4.
		nat, filter := 5, 3
		if family == corev1.IPv4Protocol {
			filter++
		}
		for _, svc := range o.Services {
			if !slices.Contains(svc.Spec.IPFamilies, family) {
				continue
			}
			if e := endpoints[svc.Namespace+"/"+svc.Name]; e > 0 {
				nat += len(svc.Spec.Ports) * (1 + masquerade + 3*e)
			} else {
				filter += len(svc.Spec.Ports)
			}
		}
		forms[family] = map[iptables.Table]int{iptables.NAT: nat, iptables.Filter: filter}
	}
	return forms, true
}

// usual reports whether the closed form applies to the rules that do not depend on Services.
func usual(cfg *v1alpha1.KubeProxyConfiguration) bool {
	loopback := cfg.IPTables.LocalhostNodePorts
	return (loopback == nil || *loopback) && len(cfg.NodePortAddresses) == 0 && !cfg.Conntrack.TCPBeLiberal &&
		(cfg.DetectLocalMode == "" || cfg.DetectLocalMode == config.LocalModeClusterCIDR)
}

// plain reports whether the closed form applies to the Services: ClusterIP, with ready endpoints used from everywhere.
func plain(o *sim.Objects) bool {
	for _, svc := range o.Services {
		s := &svc.Spec
		local := s.InternalTrafficPolicy != nil && *s.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal
		if s.Type != corev1.ServiceTypeClusterIP || s.ClusterIP == corev1.ClusterIPNone || len(s.ExternalIPs) > 0 ||
			s.SessionAffinity == corev1.ServiceAffinityClientIP || local {
			return false
		}
	}
	for _, slice := range o.Slices {
		for i := range slice.Endpoints {
			ready := slice.Endpoints[i].Conditions.Ready
			if (ready != nil && !*ready) || slice.Endpoints[i].Hints != nil {
				return false
			}
		}
	}
	return true
}
