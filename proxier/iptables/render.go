package iptables

import (
	"bytes"
	"cmp"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// lines are rules as iptables-restore reads them, each ending in a newline.
type lines struct {
	text  []byte
	count int
}

// Rendered are the rules of one Service port.
type Rendered struct {
	port     *plan.ServicePort
	dispatch [dispatches][]dispatchLine
	// chains of the port in nat. writeChains makes their text when it is written: stored, it would double the memory of
	// the ruleset.
	chains     []chainRef
	chainRules int // in all of them
	// filter is the state of the port whose rules of filter these are, if that is not port: the kernel accepted nat and
	// refused filter. absent: it had none.
	filter *plan.ServicePort
}

var absent = &plan.ServicePort{}

// chainRef is a chain and the number of rules it contains.
type chainRef struct {
	name  string
	rules int
}

// dispatched returns the rules in one dispatch; a nil Rendered has none.
func (r *Rendered) dispatched(d dispatch) []dispatchLine {
	if r == nil {
		return nil
	}
	return r.dispatch[d]
}

// equalDispatch reports whether two states of a Service port have the same dispatch rules in a table; nil has none.
func equalDispatch(table Table, a, b *Rendered) bool {
	for d := range dispatches {
		if d.table() == table && !equalLines(a.dispatched(d), b.dispatched(d)) {
			return false
		}
	}
	return true
}

// over returns these rules of nat with the rules of filter of past, which may be nil.
func (r *Rendered) over(past *Rendered) *Rendered {
	if equalDispatch(Filter, r, past) {
		return r
	}
	mixed := *r
	mixed.filter = absent
	if past != nil {
		mixed.filter = cmp.Or(past.filter, past.port)
	}
	for d := range dispatches {
		if d.table() == Filter {
			mixed.dispatch[d] = past.dispatched(d)
		}
	}
	return &mixed
}

func equalLines(a, b []dispatchLine) bool {
	return slices.EqualFunc(a, b, func(x, y dispatchLine) bool {
		return x.destination == y.destination && bytes.Equal(x.text, y.text)
	})
}

// lead adds a dispatch rule for a destination. match, which may be nil, comes before the match of the destination.
func (r *Rendered) lead(d dispatch, to destination, comment string, match []string, then ...string) {
	args := append(slices.Clone(match), "-m", to.protocol, "-p", to.protocol)
	if to.addr.IsValid() {
		args = append(args, "-d", to.addr.String())
	}
	args = append(append(args, "--dport", strconv.Itoa(int(to.port))), then...)
	r.dispatch[d] = append(r.dispatch[d], dispatchLine{to, appendRule(nil, comment, args)})
}

// names are the chain names and fixed words of one Service port.
type names struct {
	port                                          *plan.ServicePort
	text                                          string // "ns/name:port"
	protocol                                      string // lower case
	cluster, local, external, firewall            string
	usesCluster, usesLocal, usesExt, usesFirewall bool
	usesEndpoints                                 bool     // each endpoint has a chain
	endpoints                                     []string // chain names, parallel to port.Reachable
}

// namesOf names all chains but those of endpoints.
func (s *settings) namesOf(port *plan.ServicePort) names {
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
		// Match recent stores the clients of an endpoint under the name of its chain.
		usesEndpoints: !s.flat || port.AffinitySeconds > 0,
	}
	return n
}

// nameEndpoints names the chains of the reachable endpoints.
func (n *names) nameEndpoints() {
	if !n.usesEndpoints {
		return
	}
	n.endpoints = make([]string, len(n.port.Reachable))
	for i, ep := range n.port.Reachable {
		n.endpoints[i] = prefixEndpoint + endpointHash(n.text, n.protocol, ep.Text)
	}
}

// names returns the names that render computed: hashing them again would cost more than writing the rules.
func (s *settings) names(r *Rendered) names {
	n := s.namesOf(r.port)
	if !n.usesEndpoints {
		return n
	}
	endpoints := r.chains[len(r.chains)-len(r.port.Reachable):]
	n.endpoints = make([]string, len(endpoints))
	for i, c := range endpoints {
		n.endpoints[i] = c.name
	}
	return n
}

// internal is the chain for traffic to the cluster IP, externalPolicy the one for external traffic that was accepted.
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

// endpoint returns the chain of a reachable endpoint.
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
	l.text = appendRule(l.text, comment, args)
	l.count++
}

// appendRule appends the part of a rule after the chain's name.
func appendRule(text []byte, comment string, args []string) []byte {
	if comment != "" {
		text = append(text, ` -m comment --comment "`...)
		text = append(text, comment...)
		text = append(text, '"')
	}
	for _, arg := range args {
		text = append(text, ' ')
		text = append(text, arg...)
	}
	return append(text, '\n')
}

// render makes the dispatch rules of a Service port and lists its chains.
func (s *settings) render(port *plan.ServicePort) *Rendered {
	n := s.namesOf(port)
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

// turnAway returns the target for traffic without a usable endpoint: REJECT when the Service has no endpoint, DROP when
// policy Local excludes all of them.
func turnAway(port *plan.ServicePort) (target, reason string) {
	if !port.HasEndpoints {
		return "REJECT", " has no endpoints"
	}
	return "DROP", " has no local endpoints"
}

func (s *settings) dispatchClusterIP(r *Rendered, n *names) {
	to := destination{n.port.ClusterIP, n.port.Port, n.protocol}
	if n.port.HasInternalEndpoints() {
		r.lead(natServices, to, n.text+" cluster IP", nil, "-j", n.internal())
		return
	}
	target, reason := turnAway(n.port)
	r.lead(filterServices, to, n.text+reason, nil, "-j", target)
}

func (s *settings) dispatchExternalIPs(r *Rendered, n *names) {
	for _, ip := range n.port.ExternalIPs {
		s.dispatchExternal(r, n, ip, " external IP", n.external)
	}
}

func (s *settings) dispatchLoadBalancer(r *Rendered, n *names) {
	target := n.external
	if n.usesFirewall {
		target = n.firewall
	}
	for _, ip := range n.port.LoadBalancerVIPs {
		if n.usesFirewall {
			// Only packets that the FW chain did not accept arrive here: the others have another destination by now.
			to := destination{ip, n.port.Port, n.protocol}
			r.lead(filterFirewall, to, n.text+" traffic not accepted by "+n.firewall, nil, "-j", "DROP")
		}
		s.dispatchExternal(r, n, ip, " loadbalancer IP", target)
	}
}

// dispatchExternal adds the rules for one address that external traffic may use.
func (s *settings) dispatchExternal(r *Rendered, n *names, ip netip.Addr, what, chain string) {
	to := destination{ip, n.port.Port, n.protocol}
	if n.port.HasEndpoints {
		r.lead(natServices, to, n.text+what, nil, "-j", chain)
	}
	if !n.port.HasExternalEndpoints() {
		target, reason := turnAway(n.port)
		r.lead(filterExternal, to, n.text+reason, nil, "-j", target)
	}
}

func (s *settings) dispatchNodePort(r *Rendered, n *names) {
	if n.port.NodePort != 0 {
		to := destination{port: n.port.NodePort, protocol: n.protocol}
		if n.port.HasEndpoints {
			if s.Accounting && s.IPv4() && s.LocalhostNodePorts {
				r.lead(natNodePorts, to, n.text, nil, "-d", "127.0.0.0/8", "-m", "nfacct", "--nfacct-name", AccountLocalNodePorts, "-j", n.external)
			}
			r.lead(natNodePorts, to, n.text, nil, "-j", n.external)
		}
		if !n.port.HasExternalEndpoints() {
			target, reason := turnAway(n.port)
			r.lead(filterExternal, to, n.text+reason, []string{"-m", "addrtype", "--dst-type", "LOCAL"}, "-j", target)
		}
	}
	if n.port.HealthCheckNodePort != 0 {
		// The load balancer's probes must reach the health check server whatever else filters INPUT.
		to := destination{port: n.port.HealthCheckNodePort, protocol: "tcp"}
		r.lead(filterNodePorts, to, n.text+" health check node port", nil, "-j", "ACCEPT")
	}
}
