package config

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/internal/inet"
)

// NodeIPs returns the node's main addresses: at most one per family, the main family first. As in kube-proxy, all
// internal addresses of the Node precede the external ones, and the first of a family counts. A bindAddress that is one
// address replaces its family's and comes first.
func NodeIPs(cfg *v1alpha1.KubeProxyConfiguration, node *corev1.Node) []netip.Addr {
	addrs := NodeAddresses(node, corev1.NodeInternalIP, corev1.NodeExternalIP)
	if bind := bindAddress(cfg); bind.IsValid() {
		addrs = append([]netip.Addr{bind}, addrs...)
	}
	var ips []netip.Addr
	for _, addr := range addrs {
		if !slices.ContainsFunc(ips, func(ip netip.Addr) bool { return ip.Is4() == addr.Is4() }) {
			ips = append(ips, addr)
		}
	}
	return ips
}

// NodeAddresses returns the addresses of a Node, in the order of kinds and in each kind in the order of the object.
func NodeAddresses(node *corev1.Node, kinds ...corev1.NodeAddressType) []netip.Addr {
	var addrs []netip.Addr
	for _, kind := range kinds {
		for _, a := range node.Status.Addresses {
			if addr, ok := inet.ParseAddr(a.Address); ok && a.Type == kind {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs
}

// bindAddress returns the configuration's bindAddress; invalid if it is a wildcard.
func bindAddress(cfg *v1alpha1.KubeProxyConfiguration) netip.Addr {
	if bind, ok := inet.ParseAddr(cfg.BindAddress); ok && !bind.IsUnspecified() {
		return bind
	}
	return netip.Addr{}
}
