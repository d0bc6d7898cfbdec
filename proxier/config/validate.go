package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-base/featuregate"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"

	"synclab/internal/inet"
	"synclab/internal/yamldoc"
)

// Keywords of nodePortAddresses. primary means the addresses in the node's Node object.
const (
	primary   = "primary"
	localhost = "localhost"
	everyIP   = "all"
)

// Validate returns every problem of a configuration after Default, joined, each a *FieldError; nil: none. It accepts what
// kube-proxy accepts. As there, only the section of the configuration's mode counts.
func Validate(cfg *v1alpha1.KubeProxyConfiguration) error { return ValidateFor(cfg, cfg.Mode) }

// ValidateFor is Validate for a proxy that runs in another mode than the configuration's.
func ValidateFor(cfg *v1alpha1.KubeProxyConfiguration, mode v1alpha1.ProxyMode) error {
	var p problems
	validate(&p, cfg, mode)
	return p.err()
}

func validate(p *problems, cfg *v1alpha1.KubeProxyConfiguration, mode v1alpha1.ProxyMode) {
	validateMode(p, cfg.Mode)
	validateSection(p, cfg, mode)
	validateConntrack(p, &cfg.Conntrack)
	validateLocal(p, cfg)
	validateNodePortAddresses(p, cfg.NodePortAddresses)
	if utilnet.ParseIPSloppy(cfg.BindAddress) == nil {
		p.add("bindAddress", "%q is not an IP address", cfg.BindAddress)
	}
	validateHostPort(p, "healthzBindAddress", cfg.HealthzBindAddress)
	validateHostPort(p, "metricsBindAddress", cfg.MetricsBindAddress)
	if adj := cfg.OOMScoreAdj; adj != nil && (*adj < -1000 || *adj > 1000) {
		p.add("oomScoreAdj", "%d is not within -1000..1000", *adj)
	}
	if every := cfg.ConfigSyncPeriod.Duration; every <= 0 {
		p.add("configSyncPeriod", "%v is not above 0", every)
	}
	if client := &cfg.ClientConnection; client.Burst < 0 {
		p.add("clientConnection.burst", "%d is below 0", client.Burst)
	}
	validateLogging(p, cfg)
}

func validateMode(p *problems, mode v1alpha1.ProxyMode) {
	switch {
	case slices.Contains(modes, mode):
	case mode == ModeKernelspace:
		p.add("mode", "kernelspace is for Windows; want iptables, ipvs or nftables")
	default:
		p.add("mode", "%q is not known; want iptables, ipvs or nftables", mode)
	}
}

func validateSection(p *problems, cfg *v1alpha1.KubeProxyConfiguration, mode v1alpha1.ProxyMode) {
	validateBit(p, "iptables.masqueradeBit", cfg.IPTables.MasqueradeBit)
	s := sectionOf(cfg, mode)
	validatePeriods(p, s.name, *s.sync, *s.least)
	switch mode {
	case ModeNFTables:
		validateBit(p, "nftables.masqueradeBit", cfg.NFTables.MasqueradeBit)
	case ModeIPVS:
		for field, timeout := range map[string]metav1.Duration{"tcpTimeout": cfg.IPVS.TCPTimeout, "tcpFinTimeout": cfg.IPVS.TCPFinTimeout, "udpTimeout": cfg.IPVS.UDPTimeout} {
			if timeout.Duration < 0 {
				p.add("ipvs."+field, "%v is below 0", timeout.Duration)
			}
		}
		for i, cidr := range cfg.IPVS.ExcludeCIDRs {
			if _, err := inet.ParsePrefix(cidr); err != nil {
				p.add(yamldoc.Element("ipvs.excludeCIDRs", i), "%q is not a CIDR", cidr)
			}
		}
	}
}

// validateLogging: kube-proxy writes text or JSON.
func validateLogging(p *problems, cfg *v1alpha1.KubeProxyConfiguration) {
	gates, set := featuregate.NewFeatureGate(), maps.Clone(cfg.FeatureGates)
	err := logsapi.AddFeatureGates(gates)
	maps.DeleteFunc(set, func(name string, _ bool) bool { return gates.GetAll()[featuregate.Feature(name)].PreRelease == "" }) // unknown, or GA
	if err = errors.Join(err, gates.SetFromMap(set)); err != nil {
		p.add("featureGates", "%v", err)
	}
	logging := cfg.Logging
	switch logging.Format {
	case logsapi.JSONLogFormat:
		if len(logging.VModule) > 0 {
			p.add("logging.vmodule", "only for format text")
		}
		logging.Format, logging.VModule = logsapi.DefaultLogFormat, nil // this program has no encoder of JSON to check for
	case logsapi.DefaultLogFormat:
	default:
		p.add("logging.format", "%q is not known; want text or json", logging.Format)
		return
	}
	for _, err := range logsapi.Validate(&logging, gates, field.NewPath("logging")) {
		p.add(err.Field, "%s", strings.TrimPrefix(err.ErrorBody(), "Invalid value: "))
	}
}

// CheckHiddenMetrics checks showHiddenMetricsForVersion for a minor version of kube-proxy; 0: unknown.
func CheckHiddenMetrics(cfg *v1alpha1.KubeProxyConfiguration, minor int) error {
	var p problems
	validateHiddenMetrics(&p, cfg, minor)
	return p.err()
}

// validateHiddenMetrics: kube-proxy takes only its previous minor version.
func validateHiddenMetrics(p *problems, cfg *v1alpha1.KubeProxyConfiguration, minor int) {
	want := fmt.Sprintf("1.%d", minor-1)
	if version := cfg.ShowHiddenMetricsForVersion; version != "" && minor > 0 && version != want {
		p.add("showHiddenMetricsForVersion", "%q: kube-proxy 1.%d takes only %q", version, minor, want)
	}
}

// validateBit: the packet mark has 32 bits.
func validateBit(p *problems, field string, bit *int32) {
	if bit != nil && (*bit < 0 || *bit > 31) {
		p.add(field, "%d is not within 0..31", *bit)
	}
}

func validatePeriods(p *problems, section string, sync, least metav1.Duration) {
	if sync.Duration <= 0 {
		p.add(section+".syncPeriod", "%v is not above 0", sync.Duration)
	}
	switch {
	case least.Duration < 0:
		p.add(section+".minSyncPeriod", "%v is below 0", least.Duration)
	case sync.Duration > 0 && least.Duration > sync.Duration:
		p.add(section+".minSyncPeriod", "%v is longer than %s.syncPeriod, %v", least.Duration, section, sync.Duration)
	}
}

func validateConntrack(p *problems, ct *v1alpha1.KubeProxyConntrackConfiguration) {
	count := func(field string, n *int32) {
		if n != nil && *n < 0 {
			p.add("conntrack."+field, "%d is below 0", *n)
		}
	}
	count("maxPerCore", ct.MaxPerCore)
	count("min", ct.Min)
	timeout := func(field string, d time.Duration) {
		if d < 0 {
			p.add("conntrack."+field, "%v is below 0", d)
		}
	}
	if ct.TCPEstablishedTimeout != nil {
		timeout("tcpEstablishedTimeout", ct.TCPEstablishedTimeout.Duration)
	}
	if ct.TCPCloseWaitTimeout != nil {
		timeout("tcpCloseWaitTimeout", ct.TCPCloseWaitTimeout.Duration)
	}
	timeout("udpTimeout", ct.UDPTimeout.Duration)
	timeout("udpStreamTimeout", ct.UDPStreamTimeout.Duration)
}

// validateLocal checks the mode of local detection, and the field that this mode uses.
func validateLocal(p *problems, cfg *v1alpha1.KubeProxyConfiguration) {
	switch cfg.DetectLocalMode {
	case LocalModeClusterCIDR:
		validateClusterCIDR(p, cfg.ClusterCIDR)
	case LocalModeNodeCIDR:
	case LocalModeBridgeInterface:
		validateInterface(p, "detectLocal.bridgeInterface", cfg.DetectLocal.BridgeInterface, cfg.DetectLocalMode)
	case LocalModeInterfaceNamePrefix:
		validateInterface(p, "detectLocal.interfaceNamePrefix", cfg.DetectLocal.InterfaceNamePrefix, cfg.DetectLocalMode)
	default:
		p.add("detectLocalMode", "%q is not known; want %s, %s, %s or %s", cfg.DetectLocalMode,
			LocalModeClusterCIDR, LocalModeNodeCIDR, LocalModeBridgeInterface, LocalModeInterfaceNamePrefix)
	}
}

func validateClusterCIDR(p *problems, list string) {
	if list == "" {
		return
	}
	cidrs := strings.Split(list, ",")
	valid := true
	for _, cidr := range cidrs {
		if _, err := inet.ParsePrefix(cidr); err != nil {
			p.add("clusterCIDR", "%q is not a CIDR", cidr)
			valid = false
		}
	}
	if !valid || len(cidrs) == 1 {
		return
	}
	if dual, _ := utilnet.IsDualStackCIDRStrings(cidrs); !dual || len(cidrs) > 2 {
		p.add("clusterCIDR", "%q: want one CIDR, or one IPv4 and one IPv6 CIDR", list)
	}
}

func validateInterface(p *problems, field, name string, mode v1alpha1.LocalMode) {
	if name == "" {
		p.add(field, "missing; detectLocalMode %s needs it", mode)
	}
}

func validateNodePortAddresses(p *problems, addresses []string) {
	for i, address := range addresses {
		field := yamldoc.Element("nodePortAddresses", i)
		switch address {
		case primary, localhost, everyIP:
			if slices.Contains(addresses[:i], address) {
				p.add(field, "%q is listed twice", address)
			}
			continue
		}
		if _, err := inet.ParsePrefix(address); err != nil {
			p.add(field, "%q is not a CIDR; want CIDRs, %q, %q or %q", address, primary, localhost, everyIP)
		}
	}
}

// validateHostPort requires an IP address and a port to listen on.
func validateHostPort(p *problems, field, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.add(field, "%q is not of the form IP:port", address)
		return
	}
	if utilnet.ParseIPSloppy(host) == nil {
		p.add(field, "%q is not an IP address", host)
	}
	if _, err := utilnet.ParsePort(port, false); err != nil {
		p.add(field, "%q is not a port, 1..65535", port)
	}
}
