package conntrack

import (
	"net/netip"
	"slices"
)

// Frontend is one address and port of a UDP Service, or one NodePort.
type Frontend struct {
	// Addr is a cluster IP, an external IP or a load balancer address, never an IPv4-mapped IPv6 address. With the zero
	// Addr, the frontend is a NodePort: Port at every address of the node that takes NodePorts.
	Addr netip.Addr
	Port uint16
}

// NodePort returns the frontend of a NodePort.
func NodePort(port uint16) Frontend { return Frontend{Port: port} }

// IsNodePort reports whether the frontend is a NodePort, without an address.
func (f Frontend) IsNodePort() bool { return !f.Addr.IsValid() }

// Endpoints is a set of endpoint addresses and ports, sorted, without duplicates. The frontends of one Service port can
// share it. It is immutable after NewEndpoints.
type Endpoints []netip.AddrPort

// NewEndpoints returns the set of addrs, which may be in any order.
func NewEndpoints(addrs ...netip.AddrPort) Endpoints {
	set := slices.Clone(addrs)
	slices.SortFunc(set, netip.AddrPort.Compare)
	return Endpoints(slices.Compact(set))
}

// Contains reports whether ap is in the set.
func (e Endpoints) Contains(ap netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(e, ap, netip.AddrPort.Compare)
	return found
}

// containsAll reports whether every member of other is in the set.
func (e Endpoints) containsAll(other Endpoints) bool {
	for _, ap := range other {
		if !e.Contains(ap) {
			return false
		}
	}
	return true
}

// Flow is one UDP conntrack entry: the tuple of its original direction and the expected tuple of replies. With DNAT,
// the reply's source is the endpoint; without, it is the original destination.
type Flow struct {
	Src, Dst           netip.AddrPort
	ReplySrc, ReplyDst netip.AddrPort
	// Zone is the conntrack zone; 0 is the default zone.
	Zone uint16
	// ID is the kernel's id of the entry; 0: unknown. With it, a deletion cannot hit a newer entry with the same tuple.
	ID uint32
}

// Redirected reports whether the flow has DNAT.
func (f Flow) Redirected() bool { return f.ReplySrc != f.Dst }

// Expectation describes where UDP flows may go.
type Expectation struct {
	// Serving maps each frontend to the endpoints that may have its flows: ready ones, and terminating ones that still
	// serve. A frontend with an empty set refuses packets.
	Serving map[Frontend]Endpoints
	// Gone maps former frontends to their former endpoints. For a frontend in both maps, Serving decides.
	Gone map[Frontend]Endpoints
	// Local reports whether an address of this node takes NodePorts. If nil, no flow is matched with a NodePort.
	Local func(netip.Addr) bool
}

// Stale reports whether a flow must be deleted, so that its next packet meets the rules again. Its endpoint does not
// serve its frontend, or its frontend is gone and the flow goes to one of the former endpoints. See
// docs/design/conntrack.md.
func (x Expectation) Stale(f Flow) bool {
	exact := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port()}
	nodePort := NodePort(f.Dst.Port())

	// The order is that of the rules: addresses first, NodePorts last.
	if serving, ok := x.Serving[exact]; ok {
		return !serving.Contains(f.ReplySrc)
	}
	servingPort, isPort := x.Serving[nodePort]
	former, wasExact := x.Gone[exact]
	formerPort, wasPort := x.Gone[nodePort]
	if !isPort && !wasExact && !wasPort {
		return false
	}
	local := x.Local != nil && x.Local(f.Dst.Addr())
	switch {
	case isPort && local:
		return !servingPort.Contains(f.ReplySrc)
	case wasExact && f.Redirected() && former.Contains(f.ReplySrc):
		return true
	case wasPort && local:
		return f.Redirected() && formerPort.Contains(f.ReplySrc)
	}
	return false
}

// NodeLocal returns an Expectation.Local. addrs are the node's addresses that take NodePorts. loopback adds 127.0.0.0/8
// (kube-proxy's iptables.localhostNodePorts; IPv4 only, as in the kernel).
func NodeLocal(addrs []netip.Addr, loopback bool) func(netip.Addr) bool {
	set := make(map[netip.Addr]struct{}, len(addrs))
	for _, a := range addrs {
		set[a.Unmap()] = struct{}{}
	}
	return func(a netip.Addr) bool {
		if _, ok := set[a]; ok {
			return true
		}
		return loopback && a.Is4() && a.IsLoopback()
	}
}
