package direct

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// cluster writes payloads as the layout classic does for Services with a cluster IP.
type cluster struct {
	family    corev1.IPFamily
	endpoints int // of a Service
}

func (c *cluster) names(service int) (chain string, endpoints []string) {
	for i := range c.endpoints {
		// Names are hashes: spread them.
		endpoints = append(endpoints, fmt.Sprintf("KUBE-SEP-%016X", uint64(service*c.endpoints+i+1)*0x9e3779b97f4a7c15))
	}
	return fmt.Sprintf("KUBE-SVC-%016X", uint64(service+1)*0xbf58476d1ce4e5b9), endpoints
}

func (c *cluster) vip(service int) string {
	if c.family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd00:96::%x", service+1)
	}
	return fmt.Sprintf("10.96.%d.%d", service>>8, service&255)
}

func (c *cluster) endpoint(n int) (addr, port string) {
	if c.family == corev1.IPv6Protocol {
		addr = fmt.Sprintf("fd00:10::%x", n+1)
		return addr, "[" + addr + "]:8080"
	}
	addr = fmt.Sprintf("10.%d.%d.%d", 128+n>>16, n>>8&255, n&255)
	return addr, addr + ":8080"
}

// payload writes the chains of some of so many Services, and the dispatch of all; port tells one state of endpoints from another.
func (c *cluster) payload(services int, covered []int, shift int) string {
	var b strings.Builder
	b.WriteString("*nat\n:KUBE-SERVICES - [0:0]\n:KUBE-MARK-MASQ - [0:0]\n")
	var chains []string
	rules := map[string]string{}
	for _, s := range covered {
		service, endpoints := c.names(s)
		chains = append(append(chains, service), endpoints...)
		var policy strings.Builder
		fmt.Fprintf(&policy, "-A %s -m comment --comment \"ns/svc-%d:http cluster IP\" -m tcp -p tcp -d %s --dport 80 ! -s 10.128.0.0/9 -j KUBE-MARK-MASQ\n", service, s, c.vip(s))
		if c.family == corev1.IPv6Protocol {
			policy.Reset()
		}
		for i, endpoint := range endpoints {
			if left := len(endpoints) - i; left > 1 {
				fmt.Fprintf(&policy, "-A %s -m statistic --mode random --probability %.10f -j %s\n", service, 1/float64(left), endpoint)
			} else {
				fmt.Fprintf(&policy, "-A %s -j %s\n", service, endpoint)
			}
			addr, to := c.endpoint(s*c.endpoints + i + shift)
			rules[endpoint] = fmt.Sprintf("-A %s -s %s -j KUBE-MARK-MASQ\n-A %s -m tcp -p tcp -j DNAT --to-destination %s\n", endpoint, addr, endpoint, to)
		}
		rules[service] = policy.String()
	}
	slices.Sort(chains)
	for _, chain := range chains {
		b.WriteString(":" + chain + " - [0:0]\n")
	}
	b.WriteString("-A KUBE-MARK-MASQ -j MARK --or-mark 0x004000\n")
	for s := range services {
		service, _ := c.names(s)
		fmt.Fprintf(&b, "-A KUBE-SERVICES -m comment --comment \"ns/svc-%d:http cluster IP\" -m tcp -p tcp -d %s --dport 80 -j %s\n", s, c.vip(s), service)
	}
	for _, chain := range chains {
		b.WriteString(rules[chain])
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}
