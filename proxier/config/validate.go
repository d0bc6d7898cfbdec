package config

import (
	"net"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	utilnet "k8s.io/utils/net"
)

// Keywords of nodePortAddresses. primary means the addresses in the node's Node object.
const (
	primary   = "primary"
	localhost = "localhost"
	everyIP   = "all"
)

// Validate returns every problem of a configuration after Default, joined, each a *FieldError; nil: none. A mode that
// this proxier does not support is a problem too.
func Validate(cfg *v1alpha1.KubeProxyConfiguration) error {
	var p problems
	validateMode(&p, cfg.Mode)
	validateBackends(&p, cfg)
	validateConntrack(&p, &cfg.Conntrack)
	validateLocal(&p, cfg)
	validateNodePortAddresses(&p, cfg.NodePortAddresses)
	if utilnet.ParseIPSloppy(cfg.BindAddress) == nil {
		p.add("bindAddress", "%q is not an IP address", cfg.BindAddress)
	}
	validateHostPort(&p, "healthzBindAddress", cfg.HealthzBindAddress)
	validateHostPort(&p, "metricsBindAddress", cfg.MetricsBindAddress)
	if adj := cfg.OOMScoreAdj; adj != nil && (*adj < -1000 || *adj > 1000) {
		p.add("oomScoreAdj", "%d is not within -1000..1000", *adj)
	}
	if every := cfg.ConfigSyncPeriod.Duration; every <= 0 {
		p.add("configSyncPeriod", "%v is not above 0", every)
	}
	if client := &cfg.ClientConnection; client.Burst < 0 {
		p.add("clientConnection.burst", "%d is below 0", client.Burst)
	}
	return p.orNil()
}

func validateMode(p *problems, mode v1alpha1.ProxyMode) {
	switch mode {
	case ModeIPTables, ModeNFTables:
	case ModeIPVS, ModeKernelspace:
		p.add("mode", "%s is not supported: this proxier runs iptables and nftables", mode)
	default:
		p.add("mode", "%q is not known; want iptables or nftables", mode)
	}
}

func validateBackends(p *problems, cfg *v1alpha1.KubeProxyConfiguration) {
	validateBit(p, "iptables.masqueradeBit", cfg.IPTables.MasqueradeBit)
	validatePeriods(p, "iptables", cfg.IPTables.SyncPeriod, cfg.IPTables.MinSyncPeriod)
	validateBit(p, "nftables.masqueradeBit", cfg.NFTables.MasqueradeBit)
	validatePeriods(p, "nftables", cfg.NFTables.SyncPeriod, cfg.NFTables.MinSyncPeriod)
	validatePeriods(p, "ipvs", cfg.IPVS.SyncPeriod, cfg.IPVS.MinSyncPeriod)
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

// validateLocal checks the mode of local detection. clusterCIDR must be valid in every mode.
func validateLocal(p *problems, cfg *v1alpha1.KubeProxyConfiguration) {
	validateClusterCIDR(p, cfg.ClusterCIDR)
	switch cfg.DetectLocalMode {
	case LocalModeClusterCIDR, LocalModeNodeCIDR:
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
		if _, err := parsePrefix(cidr); err != nil {
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

// interfaceName: IFNAMSIZ allows 15 bytes. A name has no slash and no blank. A + at the end of an iptables -i argument
// means a name prefix; only the proxier adds it.
var interfaceName = regexp.MustCompile(`^[^\s/+!]{1,15}$`)

func validateInterface(p *problems, field, name string, mode v1alpha1.LocalMode) {
	switch {
	case name == "":
		p.add(field, "missing; detectLocalMode %s needs it", mode)
	case !interfaceName.MatchString(name):
		p.add(field, "%q is not an interface name or prefix: want 1 to 15 characters, no blank, slash, plus or exclamation mark", name)
	}
}

func validateNodePortAddresses(p *problems, addresses []string) {
	for i, address := range addresses {
		field := elementOf("nodePortAddresses", i)
		switch address {
		case primary, localhost, everyIP:
			if slices.Contains(addresses[:i], address) {
				p.add(field, "%q is listed twice", address)
			}
			continue
		}
		if _, err := parsePrefix(address); err != nil {
			p.add(field, "%q is not a CIDR; want CIDRs, %q, %q or %q", address, primary, localhost, everyIP)
		}
	}
}

// validateHostPort requires an IP address and a port to listen on. With port 0 the kernel chooses one.
func validateHostPort(p *problems, field, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		p.add(field, "%q is not of the form IP:port", address)
		return
	}
	if utilnet.ParseIPSloppy(host) == nil {
		p.add(field, "%q is not an IP address", host)
	}
	if _, err := utilnet.ParsePort(port, true); err != nil {
		p.add(field, "%q is not a port, 0..65535", port)
	}
}
