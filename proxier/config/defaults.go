package config

import (
	"net"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// Modes that KubeProxyConfiguration knows.
const (
	ModeIPTables    v1alpha1.ProxyMode = "iptables"
	ModeIPVS        v1alpha1.ProxyMode = "ipvs"
	ModeNFTables    v1alpha1.ProxyMode = "nftables"
	ModeKernelspace v1alpha1.ProxyMode = "kernelspace" // Windows
)

// Ways to tell traffic of this node's pods from other traffic.
const (
	LocalModeClusterCIDR         v1alpha1.LocalMode = "ClusterCIDR"
	LocalModeNodeCIDR            v1alpha1.LocalMode = "NodeCIDR"
	LocalModeBridgeInterface     v1alpha1.LocalMode = "BridgeInterface"
	LocalModeInterfaceNamePrefix v1alpha1.LocalMode = "InterfaceNamePrefix"
)

// Ports that kube-proxy serves health and metrics on.
const (
	healthzPort = "10256"
	metricsPort = "10249"
)

// Default fills what is unset with kube-proxy's defaults. In the fields that cannot tell zero from unset (the periods),
// zero becomes the default too, as it does in kube-proxy: a minimum interval of nothing is written as 1ns.
func Default(cfg *v1alpha1.KubeProxyConfiguration) {
	cfg.APIVersion, cfg.Kind = apiVersion, kind
	if cfg.FeatureGates == nil {
		cfg.FeatureGates = map[string]bool{}
	}
	if cfg.Mode == "" {
		cfg.Mode = ModeIPTables
	}
	if cfg.DetectLocalMode == "" {
		cfg.DetectLocalMode = LocalModeClusterCIDR
	}
	if cfg.OOMScoreAdj == nil {
		cfg.OOMScoreAdj = ptr.To[int32](-999) // the kernel kills nearly everything else first
	}
	period(&cfg.ConfigSyncPeriod, 15*time.Minute)
	defaultAddresses(cfg)
	defaultBackends(cfg)
	defaultConntrack(&cfg.Conntrack)
	defaultClient(cfg)
	v1.SetRecommendedLoggingConfiguration(&cfg.Logging)
}

// defaultAddresses lets the family of bindAddress choose the wildcard and the loopback address of the servers.
func defaultAddresses(cfg *v1alpha1.KubeProxyConfiguration) {
	if cfg.BindAddress == "" {
		cfg.BindAddress = "0.0.0.0"
	}
	anyAddress, loopback := "0.0.0.0", "127.0.0.1"
	if utilnet.IsIPv6String(cfg.BindAddress) {
		anyAddress, loopback = "::", "::1"
	}
	cfg.HealthzBindAddress = withPort(cfg.HealthzBindAddress, anyAddress, healthzPort)
	cfg.MetricsBindAddress = withPort(cfg.MetricsBindAddress, loopback, metricsPort)
}

// withPort completes address: with host when it is empty, with port when it is a bare IP address.
func withPort(address, host, port string) string {
	if address == "" {
		return net.JoinHostPort(host, port)
	}
	if bare := strings.Trim(address, "[]"); utilnet.ParseIPSloppy(bare) != nil {
		return net.JoinHostPort(bare, port)
	}
	return address
}

func defaultBackends(cfg *v1alpha1.KubeProxyConfiguration) {
	if cfg.IPTables.MasqueradeBit == nil {
		cfg.IPTables.MasqueradeBit = ptr.To[int32](14)
	}
	if cfg.IPTables.LocalhostNodePorts == nil {
		cfg.IPTables.LocalhostNodePorts = ptr.To(true)
	}
	period(&cfg.IPTables.SyncPeriod, 30*time.Second)
	period(&cfg.IPTables.MinSyncPeriod, time.Second)
	if cfg.NFTables.MasqueradeBit == nil {
		cfg.NFTables.MasqueradeBit = ptr.To[int32](14)
	}
	period(&cfg.NFTables.SyncPeriod, 30*time.Second)
	period(&cfg.NFTables.MinSyncPeriod, time.Second)
	period(&cfg.IPVS.SyncPeriod, 30*time.Second)
}

// defaultConntrack: entries and idle times that suit a busy node. The UDP times stay 0, which leaves the kernel's.
func defaultConntrack(ct *v1alpha1.KubeProxyConntrackConfiguration) {
	if ct.MaxPerCore == nil {
		ct.MaxPerCore = ptr.To[int32](32 * 1024)
	}
	if ct.Min == nil {
		ct.Min = ptr.To[int32](128 * 1024)
	}
	if ct.TCPEstablishedTimeout == nil {
		ct.TCPEstablishedTimeout = &metav1.Duration{Duration: 24 * time.Hour}
	}
	if ct.TCPCloseWaitTimeout == nil {
		ct.TCPCloseWaitTimeout = &metav1.Duration{Duration: time.Hour}
	}
}

func defaultClient(cfg *v1alpha1.KubeProxyConfiguration) {
	client := &cfg.ClientConnection
	if client.ContentType == "" {
		client.ContentType = "application/vnd.kubernetes.protobuf"
	}
	if client.QPS == 0 {
		client.QPS = 5
	}
	if client.Burst == 0 {
		client.Burst = 10
	}
}

func period(p *metav1.Duration, unset time.Duration) {
	if p.Duration == 0 {
		p.Duration = unset
	}
}
