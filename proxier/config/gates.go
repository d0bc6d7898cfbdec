package config

import (
	"maps"
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// allowServiceExternalIPs is the feature gate of Kubernetes 1.36 that disables external IPs when false.
const allowServiceExternalIPs = "AllowServiceExternalIPs"

// ExternalIPs reports whether Services may have external IPs. The default is true.
func ExternalIPs(cfg *v1alpha1.KubeProxyConfiguration) bool {
	allowed, set := cfg.FeatureGates[allowServiceExternalIPs]
	return allowed || !set
}

// IgnoredGates returns the configuration's feature gates without effect in this proxier, sorted.
func IgnoredGates(cfg *v1alpha1.KubeProxyConfiguration) []string {
	names := slices.Sorted(maps.Keys(cfg.FeatureGates))
	return slices.DeleteFunc(names, func(name string) bool { return name == allowServiceExternalIPs })
}
