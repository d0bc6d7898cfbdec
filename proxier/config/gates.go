package config

import (
	"maps"
	"slices"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// allowServiceExternalIPs is the feature gate of Kubernetes 1.36 that closes external IPs where it is false.
const allowServiceExternalIPs = "AllowServiceExternalIPs"

// ExternalIPs says whether Services may have external IPs. They may unless the configuration says otherwise.
func ExternalIPs(cfg *v1alpha1.KubeProxyConfiguration) bool {
	allowed, set := cfg.FeatureGates[allowServiceExternalIPs]
	return allowed || !set
}

// IgnoredGates are the feature gates of a configuration that change nothing here, sorted.
func IgnoredGates(cfg *v1alpha1.KubeProxyConfiguration) []string {
	names := slices.Sorted(maps.Keys(cfg.FeatureGates))
	return slices.DeleteFunc(names, func(name string) bool { return name == allowServiceExternalIPs })
}
