package config

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

func TestValidate(t *testing.T) {
	period := func(d time.Duration) metav1.Duration { return metav1.Duration{Duration: d} }
	for _, c := range []struct {
		name string
		set  func(*v1alpha1.KubeProxyConfiguration)
		want string // "": valid
	}{
		{"defaults", func(c *v1alpha1.KubeProxyConfiguration) {}, ""},
		{"lowest bit", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MasqueradeBit = ptr.To[int32](0) }, ""},
		{"highest bit", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MasqueradeBit = ptr.To[int32](31) }, ""},
		{"bit too high", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MasqueradeBit = ptr.To[int32](32) },
			"iptables.masqueradeBit: 32 is not within 0..31"},
		{"bit below 0", func(c *v1alpha1.KubeProxyConfiguration) {
			c.Mode, c.NFTables.MasqueradeBit = ModeNFTables, ptr.To[int32](-1)
		},
			"nftables.masqueradeBit: -1 is not within 0..31"},
		{"no period", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.SyncPeriod = period(0) },
			"iptables.syncPeriod: 0s is not above 0"},
		{"no minimum", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MinSyncPeriod = period(0) }, ""},
		{"minimum below 0", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MinSyncPeriod = period(-time.Second) },
			"iptables.minSyncPeriod: -1s is below 0"},
		{"minimum as long as the period", func(c *v1alpha1.KubeProxyConfiguration) { c.IPTables.MinSyncPeriod = period(30 * time.Second) }, ""},
		{"no config period", func(c *v1alpha1.KubeProxyConfiguration) { c.ConfigSyncPeriod = period(-1) },
			"configSyncPeriod: -1ns is not above 0"},
		{"IPVS", func(c *v1alpha1.KubeProxyConfiguration) { c.Mode = ModeIPVS }, ""},
		{"periods of another mode", func(c *v1alpha1.KubeProxyConfiguration) {
			c.NFTables.SyncPeriod, c.IPVS.SyncPeriod, c.IPVS.TCPTimeout = period(-1), period(-1), period(-1)
			c.NFTables.MasqueradeBit = ptr.To[int32](99)
		}, ""},
		{"IPVS's own", func(c *v1alpha1.KubeProxyConfiguration) {
			c.Mode, c.IPVS.TCPTimeout, c.IPVS.ExcludeCIDRs = ModeIPVS, period(-1), []string{"10.0.0.0"}
		}, "ipvs.tcpTimeout: -1ns is below 0\nipvs.excludeCIDRs[0]: \"10.0.0.0\" is not a CIDR"},
		{"unknown mode", func(c *v1alpha1.KubeProxyConfiguration) { c.Mode = "ebpf" }, `mode: "ebpf" is not known; want iptables, ipvs or nftables`},
		{"log format", func(c *v1alpha1.KubeProxyConfiguration) { c.Logging.Format = "xml" }, `logging.format: "xml" is not known; want text or json`},
		{"JSON log", func(c *v1alpha1.KubeProxyConfiguration) { c.Logging.Format = "json" }, ""},
		{"verbosity by file as JSON", func(c *v1alpha1.KubeProxyConfiguration) {
			c.Logging.Format, c.Logging.VModule = "json", []logsapi.VModuleItem{{FilePattern: "a", Verbosity: 3}}
		}, "logging.vmodule: only for format text"},
		{"log options", func(c *v1alpha1.KubeProxyConfiguration) { c.Logging.Options.Text.SplitStream = true },
			"logging.options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"},
		{"log options, with their gate", func(c *v1alpha1.KubeProxyConfiguration) {
			c.Logging.Options.Text.SplitStream, c.FeatureGates = true, map[string]bool{"LoggingAlphaOptions": true, "Other": true}
		}, ""},
		{"port 0", func(c *v1alpha1.KubeProxyConfiguration) { c.MetricsBindAddress = "127.0.0.1:0" },
			`metricsBindAddress: "0" is not a port, 1..65535`},
		{"OOM score", func(c *v1alpha1.KubeProxyConfiguration) { c.OOMScoreAdj = ptr.To[int32](-1001) },
			"oomScoreAdj: -1001 is not within -1000..1000"},
		{"conntrack", func(c *v1alpha1.KubeProxyConfiguration) {
			c.Conntrack.MaxPerCore = ptr.To[int32](-1)
			c.Conntrack.TCPEstablishedTimeout = ptr.To(period(-time.Second))
			c.Conntrack.UDPStreamTimeout = period(-time.Second)
		}, "conntrack.maxPerCore: -1 is below 0\nconntrack.tcpEstablishedTimeout: -1s is below 0\nconntrack.udpStreamTimeout: -1s is below 0"},
		{"bind address", func(c *v1alpha1.KubeProxyConfiguration) { c.BindAddress = "node-0" },
			`bindAddress: "node-0" is not an IP address`},
		{"server addresses", func(c *v1alpha1.KubeProxyConfiguration) {
			c.HealthzBindAddress = "localhost:10256"
			c.MetricsBindAddress = "127.0.0.1:65536"
		}, "healthzBindAddress: \"localhost\" is not an IP address\nmetricsBindAddress: \"65536\" is not a port, 1..65535"},
		{"no port", func(c *v1alpha1.KubeProxyConfiguration) { c.HealthzBindAddress = "0.0.0.0.1" },
			`healthzBindAddress: "0.0.0.0.1" is not of the form IP:port`},
		{"dual-stack cluster", func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "fd00::/56,10.0.0.0/8" }, ""},
		{"cluster of one family, twice", func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "10.0.0.0/8,11.0.0.0/8" },
			`clusterCIDR: "10.0.0.0/8,11.0.0.0/8": want one CIDR, or one IPv4 and one IPv6 CIDR`},
		{"three clusters", func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "10.0.0.0/8,fd00::/56,11.0.0.0/8" },
			`clusterCIDR: "10.0.0.0/8,fd00::/56,11.0.0.0/8": want one CIDR, or one IPv4 and one IPv6 CIDR`},
		{"cluster without mask", func(c *v1alpha1.KubeProxyConfiguration) { c.ClusterCIDR = "10.0.0.0" },
			`clusterCIDR: "10.0.0.0" is not a CIDR`},
		{"local mode", func(c *v1alpha1.KubeProxyConfiguration) { c.DetectLocalMode = "Guess" },
			`detectLocalMode: "Guess" is not known; want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix`},
		{"prefix missing", func(c *v1alpha1.KubeProxyConfiguration) { c.DetectLocalMode = LocalModeInterfaceNamePrefix },
			"detectLocal.interfaceNamePrefix: missing; detectLocalMode InterfaceNamePrefix needs it"},
		{"prefix with its plus", func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.InterfaceNamePrefix = LocalModeInterfaceNamePrefix, "veth+"
		}, ""},
		{"cluster of no use", func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.ClusterCIDR = LocalModeNodeCIDR, "10.0.0.0/8,11.0.0.0/8"
		}, ""},
		{"bridge", func(c *v1alpha1.KubeProxyConfiguration) {
			c.DetectLocalMode, c.DetectLocal.BridgeInterface = LocalModeBridgeInterface, "cbr0"
		}, ""},
		{"primary", func(c *v1alpha1.KubeProxyConfiguration) { c.NodePortAddresses = []string{"primary"} }, ""},
		{"primary and more", func(c *v1alpha1.KubeProxyConfiguration) {
			c.NodePortAddresses = []string{"primary", "10.0.0.0/8", "localhost", "all"}
		}, ""},
		{"primary twice", func(c *v1alpha1.KubeProxyConfiguration) { c.NodePortAddresses = []string{"primary", "all", "primary"} },
			`nodePortAddresses[2]: "primary" is listed twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := New()
			c.set(cfg)
			err, got := Validate(cfg), ""
			if err != nil {
				got = err.Error()
			}
			if got != c.want {
				t.Errorf("Validate:\n%s\nwant:\n%s", got, c.want)
			}
		})
	}
}
