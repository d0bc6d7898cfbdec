package config

import (
	"cmp"
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// Modes of a KubeProxyConfiguration.
const (
	ModeIPTables    v1alpha1.ProxyMode = "iptables"
	ModeIPVS        v1alpha1.ProxyMode = "ipvs"
	ModeNFTables    v1alpha1.ProxyMode = "nftables"
	ModeKernelspace v1alpha1.ProxyMode = "kernelspace" // Windows
)

// Modes that distinguish traffic of this node's pods from other traffic.
const (
	LocalModeClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)

// Default ports of kube-proxy's health and metrics servers.
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// Default sets unset fields to kube-proxy's defaults. In a period, zero means unset and becomes the default, as in
// kube-proxy. To configure a minimum interval of zero, write 1ns. What a mode's section does not set, it takes from the
// section of the configuration's mode, so that proxies of all modes have the same settings.
func Default(cfg *v1alpha1.KubeProxyConfiguration) {
	cfg.APIVersion, cfg.Kind = apiVersion, kind
	if cfg.FeatureGates == nil {
		cfg.FeatureGates = map[string]bool{}
	}
	cfg.Mode = cmp.Or(cfg.Mode, ModeIPTables)
	cfg.DetectLocalMode = cmp.Or(cfg.DetectLocalMode, LocalModeClusterCIDR)
	cfg.OOMScoreAdj = cmp.Or(cfg.OOMScoreAdj, ptr.To[int32](-999)) // the kernel kills nearly everything else first
	period(&cfg.ConfigSyncPeriod, 15*time.Minute)
	defaultAddresses(cfg)
	defaultSections(cfg)
	defaultConntrack(&cfg.Conntrack)
	defaultClient(cfg)
	v1.SetRecommendedLoggingConfiguration(&cfg.Logging)
}

// defaultAddresses chooses the servers' wildcard and loopback addresses by the family of bindAddress.
func defaultAddresses(cfg *v1alpha1.KubeProxyConfiguration) {
	cfg.BindAddress = cmp.Or(cfg.BindAddress, "0.0.0.0")
	anyAddress, loopback := "0.0.0.0", "127.0.0.1"
	if utilnet.IsIPv6String(cfg.BindAddress) {
		anyAddress, loopback = "::", "::1"
	}
	cfg.HealthzBindAddress = withPort(cfg.HealthzBindAddress, anyAddress, healthzPort)
	cfg.MetricsBindAddress = withPort(cfg.MetricsBindAddress, loopback, metricsPort)
}

// withPort completes address: it adds host if address is empty, and port if address is a bare IP address.
func withPort(address, host, port string) string {
	if address == "" {
		return net.JoinHostPort(host, port)
	}
	if bare := strings.Trim(address, "[]"); utilnet.ParseIPSloppy(bare) != nil {
		return net.JoinHostPort(bare, port)
	}
	return address
}

// defaultConntrack sets table size and timeouts for a busy node. The UDP timeouts stay 0, so the kernel's values apply.
func defaultConntrack(ct *v1alpha1.KubeProxyConntrackConfiguration) {
	ct.MaxPerCore = cmp.Or(ct.MaxPerCore, ptr.To[int32](32*1024))
	ct.Min = cmp.Or(ct.Min, ptr.To[int32](128*1024))
	ct.TCPEstablishedTimeout = cmp.Or(ct.TCPEstablishedTimeout, &metav1.Duration{Duration: 24 * time.Hour})
	ct.TCPCloseWaitTimeout = cmp.Or(ct.TCPCloseWaitTimeout, &metav1.Duration{Duration: time.Hour})
}

func defaultClient(cfg *v1alpha1.KubeProxyConfiguration) {
	client := &cfg.ClientConnection
	client.ContentType = cmp.Or(client.ContentType, "application/vnd.kubernetes.protobuf")
	client.QPS = cmp.Or(client.QPS, 5)
	client.Burst = cmp.Or(client.Burst, 10)
}

func period(p *metav1.Duration, unset time.Duration) {
	if p.Duration == 0 {
		p.Duration = unset
	}
}
