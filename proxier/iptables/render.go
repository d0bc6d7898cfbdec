package iptables

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// dispatch names the shared chains that hold lines of Service ports.
type dispatch int

const (
	natServices dispatch = iota
	natNodePorts
	filterServices
	filterExternal
	filterNodePorts
	filterFirewall
	dispatches
)

func (d dispatch) table() Table {
	if d <= natNodePorts {
		return NAT
	}
	return Filter
}

// lines are rules as iptables-restore reads them, each ending in a newline.
type lines struct {
	text  []byte
	count int
}

// Rendered are the rules of one Service port.
type Rendered struct {
	port     *plan.ServicePort
	dispatch [dispatches]lines
	// chains of the port in nat. Their text is made when it is written (writeChains): keeping it would hold the
	// whole ruleset in memory twice.
	chains     []chainRef
	chainRules int // in all of them
}

// chainRef is a chain and the number of rules it holds.
type chainRef struct {
	name  string
	rules int
}

// names are the chain names and fixed words of one Service port.
type names struct {
	port                                          *plan.ServicePort
	text                                          string // "ns/name:port"
	protocol                                      string // lower case
	cluster, local, external, firewall            string
	usesCluster, usesLocal, usesExt, usesFirewall bool
	endpoints                                     []string // chain names, parallel to port.Reachable
}

// namesOf names all but the endpoints' chains.
func namesOf(port *plan.ServicePort) names {
	h := serviceHash(port.Name)
	n := names{
		port:     port,
		text:     port.Name.String(),
		protocol: strings.ToLower(string(port.Name.Protocol)),
		cluster:  prefixCluster + h, local: prefixLocal + h, external: prefixExternal + h, firewall: prefixFirewall + h,
		usesCluster:  len(port.Cluster) > 0,
		usesLocal:    len(port.Local) > 0,
		usesExt:      port.HasEndpoints && port.ExternallyAccessible(),
		usesFirewall: port.HasEndpoints && len(port.LoadBalancerVIPs) > 0 && len(port.SourceRanges) > 0,
	}
	return n
}

// nameEndpoints names the chains of the endpoints that can be reached.
func (n *names) nameEndpoints() {
	n.endpoints = make([]string, len(n.port.Reachable))
	for i, ep := range n.port.Reachable {
		n.endpoints[i] = prefixEndpoint + endpointHash(n.text, n.protocol, ep.Text)
	}
}

// names are those that render found: hashing them again would cost more than writing the rules.
func (r *Rendered) names() names {
	n := namesOf(r.port)
	endpoints := r.chains[len(r.chains)-len(r.port.Reachable):]
	n.endpoints = make([]string, len(endpoints))
	for i, c := range endpoints {
		n.endpoints[i] = c.name
	}
	return n
}

// internal is the chain of traffic to the cluster IP, externalPolicy that of outside traffic once it is let in.
func (n *names) internal() string {
	if n.port.InternalPolicyLocal {
		return n.local
	}
	return n.cluster
}

func (n *names) externalPolicy() string {
	if n.port.ExternalPolicyLocal {
		return n.local
	}
	return n.cluster
}

// endpoint is the chain of an endpoint that Reachable holds.
func (n *names) endpoint(ep *tracker.Endpoint) string {
	i, _ := slices.BinarySearchFunc(n.port.Reachable, ep.Text, func(e *tracker.Endpoint, text string) int {
		return strings.Compare(e.Text, text)
	})
	return n.endpoints[i]
}

// rule appends one rule: its chain, an optional comment, then the arguments.
func (l *lines) rule(chain, comment string, args ...string) {
	l.text = append(l.text, "-A "...)
	l.text = append(l.text, chain...)
	if comment != "" {
		l.text = append(l.text, ` -m comment --comment "`...)
		l.text = append(l.text, comment...)
		l.text = append(l.text, '"')
	}
	for _, arg := range args {
		l.text = append(l.text, ' ')
		l.text = append(l.text, arg...)
	}
	l.text = append(l.text, '\n')
	l.count++
}

// render makes the dispatch lines of a Service port and lists its chains.
func (s *Settings) render(port *plan.ServicePort) *Rendered {
	n := namesOf(port)
	n.nameEndpoints()
	r := &Rendered{port: port}
	s.dispatchClusterIP(r, &n)
	s.dispatchExternalIPs(r, &n)
	s.dispatchLoadBalancer(r, &n)
	s.dispatchNodePort(r, &n)
	r.chains = s.listChains(&n)
	for _, c := range r.chains {
		r.chainRules += c.rules
	}
	return r
}

func portArgs(protocol string, addr netip.Addr, port uint16) []string {
	return []string{"-m", protocol, "-p", protocol, "-d", addr.String(), "--dport", strconv.Itoa(int(port))}
}

func nodePortArgs(protocol string, port uint16) []string {
	return []string{"-m", protocol, "-p", protocol, "--dport", strconv.Itoa(int(port))}
}

// refusal is what happens to traffic that has nowhere to go: REJECT when there is no endpoint anywhere, DROP when
// policy Local forbids those there are.
func refusal(port *plan.ServicePort) (target, reason string) {
	if !port.HasEndpoints {
		return "REJECT", " has no endpoints"
	}
	return "DROP", " has no local endpoints"
}

func (s *Settings) dispatchClusterIP(r *Rendered, n *names) {
	args := portArgs(n.protocol, n.port.ClusterIP, n.port.Port)
	if n.port.HasInternalEndpoints() {
		r.dispatch[natServices].rule(chainServices, n.text+" cluster IP", append(args, "-j", n.internal())...)
		return
	}
	target, reason := refusal(n.port)
	r.dispatch[filterServices].rule(chainServices, n.text+reason, append(args, "-j", target)...)
}

func (s *Settings) dispatchExternalIPs(r *Rendered, n *names) {
	for _, ip := range n.port.ExternalIPs {
		s.dispatchExternal(r, n, ip, " external IP", n.external)
	}
}

func (s *Settings) dispatchLoadBalancer(r *Rendered, n *names) {
	target := n.external
	if n.usesFirewall {
		target = n.firewall
	}
	for _, ip := range n.port.LoadBalancerVIPs {
		if n.usesFirewall {
			// Reached only by what the FW chain did not let through: what it did, has another destination by now.
			r.dispatch[filterFirewall].rule(chainProxyFirewall, n.text+" traffic not accepted by "+n.firewall,
				append(portArgs(n.protocol, ip, n.port.Port), "-j", "DROP")...)
		}
		s.dispatchExternal(r, n, ip, " loadbalancer IP", target)
	}
}

// dispatchExternal captures one address that outside traffic may use.
func (s *Settings) dispatchExternal(r *Rendered, n *names, ip netip.Addr, what, chain string) {
	args := portArgs(n.protocol, ip, n.port.Port)
	if n.port.HasEndpoints {
		r.dispatch[natServices].rule(chainServices, n.text+what, append(slices.Clone(args), "-j", chain)...)
	}
	if !n.port.HasExternalEndpoints() {
		target, reason := refusal(n.port)
		r.dispatch[filterExternal].rule(chainExternalServices, n.text+reason, append(args, "-j", target)...)
	}
}

func (s *Settings) dispatchNodePort(r *Rendered, n *names) {
	if n.port.NodePort != 0 {
		args := nodePortArgs(n.protocol, n.port.NodePort)
		if n.port.HasEndpoints {
			if s.Accounting && s.ipv4() && s.LocalhostNodePorts {
				r.dispatch[natNodePorts].rule(chainNodePorts, n.text,
					append(append(slices.Clone(args), "-d", "127.0.0.0/8", "-m", "nfacct", "--nfacct-name", AccountLocalNodePorts), "-j", n.external)...)
			}
			r.dispatch[natNodePorts].rule(chainNodePorts, n.text, append(slices.Clone(args), "-j", n.external)...)
		}
		if !n.port.HasExternalEndpoints() {
			target, reason := refusal(n.port)
			r.dispatch[filterExternal].rule(chainExternalServices, n.text+reason,
				append(append([]string{"-m", "addrtype", "--dst-type", "LOCAL"}, args...), "-j", target)...)
		}
	}
	if n.port.HealthCheckNodePort != 0 {
		// The load balancer's probes must reach the health check server whatever else filters INPUT.
		r.dispatch[filterNodePorts].rule(chainNodePorts, n.text+" health check node port",
			append(nodePortArgs("tcp", n.port.HealthCheckNodePort), "-j", "ACCEPT")...)
	}
}
