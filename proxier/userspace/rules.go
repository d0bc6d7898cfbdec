package userspace

import (
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/plan"
)

// The chains of table nat: of packets that come in, and of the node's own.
const (
	portalsIn    = "KUBE-PORTALS-CONTAINER"
	nodePortsIn  = "KUBE-NODEPORT-CONTAINER"
	PortalsOwn   = "KUBE-PORTALS-HOST"
	nodePortsOwn = "KUBE-NODEPORT-HOST"
)

var chains = []string{portalsIn, PortalsOwn, nodePortsIn, nodePortsOwn}

// jump is a rule of a built-in chain.
type jump struct {
	from string
	rule.Rule
}

// jumps are in the order in which packets must meet them: a cluster IP before any address of the node.
func jumps(family corev1.IPFamily) []jump {
	to := func(chain, comment string, matches ...rule.Match) rule.Rule {
		return rule.Rule{
			IPv6: family == corev1.IPv6Protocol, Matches: append(matches, rule.Match{Kind: rule.MatchComment, Name: comment}),
			Target: rule.Target{Kind: rule.TargetJump, Chain: chain},
		}
	}
	const portals, nodePorts = "handle ClusterIPs; NOTE: this must be before the NodePort rules", "handle service NodePorts; NOTE: this must be the last rule in the chain"
	local := rule.Match{Kind: rule.MatchDstLocal}
	return []jump{
		{"PREROUTING", to(portalsIn, portals)}, {"PREROUTING", to(nodePortsIn, nodePorts, local)},
		{"OUTPUT", to(PortalsOwn, portals)}, {"OUTPUT", to(nodePortsOwn, nodePorts, local)},
	}
}

// rulesOf returns the rules that translate a port's frontends to a socket, by chain.
func rulesOf(port *plan.ServicePort, socket netip.AddrPort) map[string][]rule.Rule {
	translate := func(to netip.Addr, number uint16) rule.Rule {
		r := rule.Rule{
			IPv6: socket.Addr().Is6(), Proto: protocols[port.Name.Protocol], DstPorts: rule.Ports{First: number, Last: number},
			Matches: []rule.Match{{Kind: rule.MatchComment, Name: port.Name.String()}, {Kind: rule.MatchPorts}},
			Target:  rule.Target{Kind: rule.TargetDNAT, To: socket},
		}
		if to.IsValid() {
			r.Dst = netip.PrefixFrom(to, to.BitLen())
		}
		return r
	}
	rules := map[string][]rule.Rule{}
	for _, address := range slices.Concat([]netip.Addr{port.ClusterIP}, port.ExternalIPs, port.LoadBalancerVIPs) {
		r := translate(address, port.Port)
		rules[portalsIn], rules[PortalsOwn] = append(rules[portalsIn], r), append(rules[PortalsOwn], r)
	}
	if port.NodePort != 0 {
		r := translate(netip.Addr{}, port.NodePort)
		rules[nodePortsIn], rules[nodePortsOwn] = []rule.Rule{r}, []rule.Rule{r}
	}
	return rules
}

// protocols are those that the proxier can carry.
var protocols = map[corev1.Protocol]rule.Proto{corev1.ProtocolTCP: rule.TCP, corev1.ProtocolUDP: rule.UDP}

// payload writes all chains again, and appends missing jumps.
func payload(rules map[string][]rule.Rule, missing []jump) *iptables.Payload {
	var lines []string
	for _, chain := range chains {
		lines = append(lines, fmt.Sprintf(":%s - [0:0]", chain))
	}
	for _, chain := range chains {
		for i := range rules[chain] {
			lines = append(lines, rules[chain][i].Line(chain))
		}
	}
	for i := range missing {
		lines = append(lines, missing[i].Line(missing[i].from))
	}
	return iptables.NewPayload(iptables.NAT, lines)
}

// missingJumps returns the jumps that the kernel's built-in chains lack.
func missingJumps(family corev1.IPFamily, kernel map[string][]rule.Rule) []jump {
	return slices.DeleteFunc(jumps(family), func(j jump) bool {
		return slices.ContainsFunc(kernel[j.from], func(r rule.Rule) bool { return r.Equal(&j.Rule) })
	})
}
