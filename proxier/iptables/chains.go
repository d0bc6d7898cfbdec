package iptables

import (
	"slices"
	"strconv"

	"synclab/proxier/tracker"
)

// probabilityDecimals is enough for thousands of endpoints (k/k#37932). The kernel keeps 31 bits of a probability.
const probabilityDecimals = 10

// listChains returns the chains that writeChains writes for a Service port, with the number of rules of each. The
// chains of endpoints come last.
func (s *settings) listChains(n *names) []chainRef {
	chains := make([]chainRef, 0, len(n.port.Reachable)+2)
	masquerade := 0
	if n.port.HasInternalEndpoints() && (s.MasqueradeAll || s.ifNotLocal != nil) {
		masquerade = 1
	}
	perEndpoint := 1
	if n.port.AffinitySeconds > 0 {
		perEndpoint = 2
	}
	add := func(name string, rules int) { chains = append(chains, chainRef{name, rules}) }
	if n.usesCluster {
		rules := perEndpoint * len(n.port.Cluster)
		if n.internal() == n.cluster {
			rules += masquerade
		}
		add(n.cluster, rules)
	}
	if n.usesLocal {
		rules := perEndpoint * len(n.port.Local)
		if n.internal() == n.local {
			rules += masquerade
		}
		add(n.local, rules)
	}
	if n.usesExt {
		add(n.external, s.externalRules(n))
	}
	if n.usesFirewall {
		add(n.firewall, len(n.port.SourceRanges)+s.nodeRanges(n)+1)
	}
	rules := 2 // hairpin and DNAT
	if s.flat {
		rules = 1
	}
	for _, chain := range n.endpoints {
		add(chain, rules)
	}
	return chains
}

func (s *settings) externalRules(n *names) int {
	rules := 1 // masquerade
	if n.port.ExternalPolicyLocal {
		rules = 2
		if s.ifLocal != nil {
			rules++
		}
	}
	if n.port.HasExternalEndpoints() {
		rules++
	}
	return rules
}

// nodeRanges is the number of extra FW rules for a node within the source ranges.
func (s *settings) nodeRanges(n *names) int {
	for _, cidr := range n.port.SourceRanges {
		if cidr.Contains(s.NodeIP) {
			return len(n.port.LoadBalancerVIPs)
		}
	}
	return 0
}

// writeChains passes the text of each chain of a Service port to out, in the order of listChains. out must not keep l.
// With large, endpoint rules have no comments. kube-proxy does the same above 1,000 endpoints to save time in
// iptables-restore.
func (s *settings) writeChains(n *names, large bool, out func(chain string, l *lines)) {
	var l lines
	emit := func(chain string) {
		out(chain, &l)
		l = lines{text: l.text[:0]}
	}
	if n.usesCluster {
		if n.internal() == n.cluster {
			s.masqueradeInternal(&l, n, n.cluster)
		}
		balance(&l, n, n.cluster, n.port.Cluster, large)
		emit(n.cluster)
	}
	if n.usesLocal {
		if n.internal() == n.local {
			s.masqueradeInternal(&l, n, n.local)
		}
		balance(&l, n, n.local, n.port.Local, large)
		emit(n.local)
	}
	if n.usesExt {
		s.writeExternal(&l, n)
		emit(n.external)
	}
	if n.usesFirewall {
		s.writeFirewall(&l, n)
		emit(n.firewall)
	}
	for i, chain := range n.endpoints {
		s.writeEndpoint(&l, n, chain, n.port.Reachable[i], large)
		emit(chain)
	}
}

// masqueradeInternal marks traffic to the cluster IP whose replies would not return through this node.
func (s *settings) masqueradeInternal(l *lines, n *names, chain string) {
	if !n.port.HasInternalEndpoints() {
		return
	}
	args := portArgs(n.protocol, n.port.ClusterIP, n.port.Port)
	switch {
	case s.MasqueradeAll:
		l.rule(chain, n.text+" cluster IP", append(args, "-j", chainMarkMasq)...)
	case s.ifNotLocal != nil:
		l.rule(chain, n.text+" cluster IP", append(append(args, s.ifNotLocal...), "-j", chainMarkMasq)...)
	}
}

func (s *settings) writeExternal(l *lines, n *names) {
	destinations := " for " + n.text + " external destinations"
	if !n.port.ExternalPolicyLocal {
		// The endpoint may be on any node, so the reply must return through this node.
		l.rule(n.external, "masquerade traffic"+destinations, "-j", chainMarkMasq)
	} else {
		// Policy Local keeps the client's address. Traffic from this node or from its pods may go to any endpoint.
		if s.ifLocal != nil {
			l.rule(n.external, "pod traffic"+destinations, append(slices.Clone(s.ifLocal), "-j", n.cluster)...)
		}
		l.rule(n.external, "masquerade LOCAL traffic"+destinations, "-m", "addrtype", "--src-type", "LOCAL", "-j", chainMarkMasq)
		l.rule(n.external, "route LOCAL traffic"+destinations, "-m", "addrtype", "--src-type", "LOCAL", "-j", n.cluster)
	}
	if n.port.HasExternalEndpoints() {
		l.rule(n.external, "", "-j", n.externalPolicy())
	}
}

func (s *settings) writeFirewall(l *lines, n *names) {
	comment := n.text + " loadbalancer IP"
	for _, cidr := range n.port.SourceRanges {
		l.rule(n.firewall, comment, "-s", cidr.String(), "-j", n.external)
	}
	if s.nodeRanges(n) > 0 {
		// The source of a packet from the node itself is the load balancer's address, which no source range contains.
		for _, ip := range n.port.LoadBalancerVIPs {
			l.rule(n.firewall, comment, "-s", ip.String(), "-j", n.external)
		}
	}
	l.rule(n.firewall, "other traffic to "+n.text+" will be dropped by "+chainProxyFirewall)
}

// balance writes the rules that choose an endpoint. With affinity, the client's previous endpoint comes first.
// Otherwise chances are equal: rule i of n is tried only when the i before it did not match, hence 1/(n-i).
func balance(l *lines, n *names, chain string, endpoints []*tracker.Endpoint, large bool) {
	comment := func(ep *tracker.Endpoint) string {
		if large {
			return ""
		}
		return n.text + " -> " + ep.Text
	}
	if n.port.AffinitySeconds > 0 {
		seconds := strconv.Itoa(n.port.AffinitySeconds)
		for _, ep := range endpoints {
			name := n.endpoint(ep)
			l.rule(chain, comment(ep), "-m", "recent", "--name", name, "--rcheck", "--seconds", seconds, "--reap", "-j", name)
		}
	}
	for i, ep := range endpoints {
		var args []string
		if left := len(endpoints) - i; left > 1 {
			args = append(args, "-m", "statistic", "--mode", "random", "--probability", strconv.FormatFloat(1/float64(left), 'f', probabilityDecimals, 64))
		}
		if n.usesEndpoints {
			args = append(args, "-j", n.endpoint(ep))
		} else {
			// DNAT to a port needs -p, but no -m of the protocol, which the kernel would store and evaluate for each
			// rule.
			args = append(args, "-p", n.protocol, "-j", "DNAT", "--to-destination", ep.Text)
		}
		l.rule(chain, comment(ep), args...)
	}
}

func (s *settings) writeEndpoint(l *lines, n *names, chain string, ep *tracker.Endpoint, large bool) {
	comment := n.text
	if large {
		comment = ""
	}
	if !s.flat {
		// Hairpin: an endpoint that reaches itself through the Service must see another source address.
		l.rule(chain, comment, "-s", ep.Addr.Addr().String(), "-j", chainMarkMasq)
	}
	if n.port.AffinitySeconds > 0 {
		l.rule(chain, comment, "-m", "recent", "--name", chain, "--set", "-m", n.protocol, "-p", n.protocol, "-j", "DNAT", "--to-destination", ep.Text)
		return
	}
	l.rule(chain, comment, "-m", n.protocol, "-p", n.protocol, "-j", "DNAT", "--to-destination", ep.Text)
}
