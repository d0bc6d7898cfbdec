package nftables

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"synclab/proxier/plan"
)

// place is a frontend key that Service ports may claim: an element of frontends, nodeports or a set of the filter
// hooks.
type place struct {
	set   set
	proto byte
	port  uint16
	addr  netip.Addr // none for NodePorts and health checks
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.set, q.set), p.addr.Compare(q.addr), cmp.Compare(p.proto, q.proto), cmp.Compare(p.port, q.port))
}

// key appends the key of the place in its set.
func (p place) key(b []byte) []byte {
	if p.addr.IsValid() {
		b = appendAddr(b, p.addr)
	}
	if p.set == setHealthChecks {
		return binary.BigEndian.AppendUint16(b, p.port)
	}
	return appendPort(appendProto(b, p.proto), p.port)
}

// listKey appends the key in lists, where NodePorts have the unspecified address.
func (p place) listKey(b []byte, c Class, addrLen int) []byte {
	if p.addr.IsValid() {
		b = appendAddr(b, p.addr)
	} else {
		b = append(b, make([]byte, addrLen)...)
	}
	return append64(appendPort(appendProto(b, p.proto), p.port), uint64(c))
}

// role is what a Service port claims a place for.
type role uint8

const (
	roleCluster role = iota
	roleExternal
	roleLimited // a load balancer that only some sources may use
	roleRefused
	roleRefusedExternal
	roleFirewall // the load balancer's address, where only some sources may use it
	roleHealthCheck
)

// claim is a Service port that owns a place. Of several owners the oldest Service comes first. The claims of one
// Service port are in the order of layout classic's rules: cluster IP, external IPs, load balancers.
type claim struct {
	of   *entry
	role role
	rank int
}

func (c *claim) compare(d *claim) int {
	return cmp.Or(plan.Compare(c.of.port, d.of.port), cmp.Compare(c.rank, d.rank))
}

// eachClaim calls yield with all claims of a Service port.
func eachClaim(p *plan.ServicePort, proto byte, yield func(place, role, int)) {
	rank := 0
	claim := func(s set, addr netip.Addr, port uint16, r role) {
		yield(place{set: s, proto: proto, port: port, addr: addr}, r, rank)
		rank++
	}
	if p.HasInternalEndpoints() {
		claim(setFrontends, p.ClusterIP, p.Port, roleCluster)
	} else {
		claim(setRefused, p.ClusterIP, p.Port, roleRefused)
	}
	external := func(addr netip.Addr, r role) {
		if p.HasEndpoints {
			claim(setFrontends, addr, p.Port, r)
		}
		if !p.HasExternalEndpoints() {
			claim(setRefused, addr, p.Port, roleRefusedExternal)
		}
	}
	for _, ip := range p.ExternalIPs {
		external(ip, roleExternal)
	}
	for _, vip := range p.LoadBalancerVIPs {
		if limited(p) {
			claim(setRefused, vip, p.Port, roleFirewall)
			external(vip, roleLimited)
			continue
		}
		external(vip, roleExternal)
	}
	if p.NodePort != 0 {
		if p.HasEndpoints {
			claim(setNodePorts, netip.Addr{}, p.NodePort, roleExternal)
		}
		if !p.HasExternalEndpoints() {
			claim(setRefusedNodePorts, netip.Addr{}, p.NodePort, roleRefusedExternal)
		}
	}
	if p.HealthCheckNodePort != 0 {
		yield(place{set: setHealthChecks, port: p.HealthCheckNodePort}, roleHealthCheck, rank)
	}
}

// limited reports whether only some sources may use the load balancer.
func limited(p *plan.ServicePort) bool {
	return p.HasEndpoints && len(p.LoadBalancerVIPs) > 0 && len(p.SourceRanges) > 0
}

// placeState has the claims of a place and its installed elements.
type placeState struct {
	claims []claim
	// class and lists are installed for a frontend; refusal for a refused one, 1 for a health check.
	class   Class
	lists   []list
	refusal refusal
}

// list is an element of lists: by the class, the frontend has this Service port.
type list struct {
	class Class
	id    ID
}

func (s *placeState) put(c claim) {
	i, found := slices.BinarySearchFunc(s.claims, &c, func(a claim, b *claim) int { return a.compare(b) })
	if !found {
		s.claims = slices.Insert(s.claims, i, c)
	}
}

// first returns the first claim with a role; nil: none has it.
func (s *placeState) first(r role) *claim {
	for i := range s.claims {
		if s.claims[i].role == r {
			return &s.claims[i]
		}
	}
	return nil
}

// take removes the claims of a Service port.
func (s *placeState) take(e *entry) {
	s.claims = slices.DeleteFunc(s.claims, func(c claim) bool { return c.of == e })
}

// classOf returns the class of a claim that all sources may use.
func (c *claim) classOf(nodePort bool) Class {
	p := c.of.port
	all, onNode := len(p.Cluster), len(p.Local)
	switch {
	case c.role == roleCluster && p.InternalPolicyLocal:
		return newClass(kindClusterLocal, onNode, 0, p.AffinitySeconds)
	case c.role == roleCluster:
		return newClass(kindCluster, all, 0, p.AffinitySeconds)
	case p.ExternalPolicyLocal && nodePort:
		return newClass(kindNodePortLocal, all, onNode, p.AffinitySeconds)
	case p.ExternalPolicyLocal:
		return newClass(kindLocal, all, onNode, p.AffinitySeconds)
	case nodePort:
		return newClass(kindNodePort, all, 0, p.AffinitySeconds)
	}
	return newClass(kindExternal, all, 0, p.AffinitySeconds)
}

// final reports whether no packet returns from the claim.
func (c *claim) final() bool {
	p := c.of.port
	return c.role == roleCluster || c.role == roleExternal && (!p.ExternalPolicyLocal || len(p.Local) > 0)
}

// way is a claim that packets of a frontend may take.
type way struct {
	*claim
	list
}

// ways returns the claims that packets may reach, in order. Variants distinguish equal ones.
func (s *placeState) ways(p place) (ways []way) {
	for i := range s.claims {
		c := &s.claims[i]
		ways = append(ways, way{c, list{c.classOf(p.set == setNodePorts), c.of.id}})
		if c.final() {
			break
		}
	}
	if len(ways) == 1 && ways[0].role != roleLimited && ways[0].class == s.class.base() {
		ways[0].class = s.class // perhaps another Service port, but with the same rules
		return ways
	}
	s.setVariants(ways)
	return ways
}

// setVariants gives each way a separate class: the one installed for its Service port, or else an unused one. A packet
// that read a class before must not find another Service port by it, which may have limited sources.
func (s *placeState) setVariants(ways []way) {
	if len(ways) == 1 && len(s.lists) == 0 {
		return
	}
	used, installed := make(map[Class]bool, len(s.lists)), make(map[list][]Class, len(s.lists))
	for _, l := range s.lists {
		used[l.class] = true
		of := list{l.class.base(), l.id}
		installed[of] = append(installed[of], l.class)
	}
	next := map[Class]Class{} // the first variant of a class that may be free
	for i := range ways {
		w := &ways[i]
		if classes := installed[w.list]; len(classes) > 0 {
			w.class, installed[w.list] = classes[0], classes[1:]
			continue
		}
		base := w.class
		for used[base|next[base]] {
			next[base]++
		}
		w.class = base | next[base]
		next[base]++
	}
}

// decide returns the class of a frontend: that of the only way, or one with a separate chain. No way: class 0.
func decide(p place, ways []way) Class {
	switch {
	case len(ways) == 0:
		return 0
	case len(ways) == 1 && ways[0].role != roleLimited:
		return ways[0].class
	}
	return ownClass(append(p.key(nil), byte(p.set)))
}

// refuse returns how traffic without a usable endpoint is refused. It is rejected when the Service has no endpoint. It
// is dropped when policy Local excludes all endpoints, because the sender may succeed at another node.
func (c *claim) refuse() refusal {
	if !c.of.port.HasEndpoints {
		return refuseReject
	}
	return refuseDrop
}
