package config

import (
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// Sysctl is one kernel setting that a configuration asks for.
type Sysctl struct {
	Path  string // below /proc/sys
	Value int
	// Global: the setting belongs to the machine. In a network namespace other than the first it is read-only, so a
	// proxier in a lab leaves it alone.
	Global bool
}

// conntrackCeiling is the most connections that a large machine reserves entries for.
const conntrackCeiling = 1024 * 1024

// Sysctls returns what kube-proxy sets at its start, in its order, on a machine of that many CPUs. What the
// configuration leaves to the kernel, by 0 or false, is not in the list.
func Sysctls(cfg *v1alpha1.KubeProxyConfiguration, cpus int, nodePorts NodePorts) []Sysctl {
	ct := &cfg.Conntrack
	var list []Sysctl
	if limit := conntrackMax(ct, cpus); limit > 0 {
		list = append(list, Sysctl{"net/netfilter/nf_conntrack_max", limit, true})
	}
	timeout := func(name string, d time.Duration) {
		if d > 0 { // the kernel counts in whole seconds
			list = append(list, Sysctl{"net/netfilter/nf_conntrack_" + name, int(d / time.Second), false})
		}
	}
	if ct.TCPEstablishedTimeout != nil {
		timeout("tcp_timeout_established", ct.TCPEstablishedTimeout.Duration)
	}
	if ct.TCPCloseWaitTimeout != nil {
		timeout("tcp_timeout_close_wait", ct.TCPCloseWaitTimeout.Duration)
	}
	if ct.TCPBeLiberal {
		list = append(list, Sysctl{"net/netfilter/nf_conntrack_tcp_be_liberal", 1, false})
	}
	timeout("udp_timeout", ct.UDPTimeout.Duration)
	timeout("udp_timeout_stream", ct.UDPStreamTimeout.Duration)
	if nodePorts.RouteLocalnet() {
		list = append(list, Sysctl{"net/ipv4/conf/all/route_localnet", 1, false})
	}
	return list
}

// conntrackMax scales the table with the CPUs, within bounds. 0 leaves the kernel's limit, whatever min says.
func conntrackMax(ct *v1alpha1.KubeProxyConntrackConfiguration, cpus int) int {
	if ct.MaxPerCore == nil || *ct.MaxPerCore == 0 {
		return 0
	}
	least := 0
	if ct.Min != nil {
		least = int(*ct.Min)
	}
	return min(max(int(*ct.MaxPerCore)*cpus, least), conntrackCeiling)
}
