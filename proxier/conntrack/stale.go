package conntrack

import (
	"net/netip"
	"slices"
)

// Frontend is one place at which a UDP Service is reached.
type Frontend struct {
	// Addr is a clusterIP, an external IP or a load balancer address, never an
	// IPv4 address mapped into IPv6. The zero Addr makes the frontend a
	// nodePort: Port at every address of the node that takes nodePorts.
	Addr netip.Addr
	Port uint16
}

// NodePort returns the frontend of a nodePort.
func NodePort(port uint16) Frontend { return Frontend{Port: port} }

// IsNodePort reports whether the frontend has no address of its own.
func (f Frontend) IsNodePort() bool { return !f.Addr.IsValid() }

// Endpoints is a set of endpoint addresses and ports: sorted, each once. The
// frontends of one Service port can share it; it is not changed after
// NewEndpoints.
type Endpoints []netip.AddrPort

// NewEndpoints makes a set from addresses in any order.
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

// Flow is one UDP conntrack entry: the tuple of its original direction and the
// one expected of replies. After DNAT the source of the reply is the endpoint;
// without, it is the original destination.
type Flow struct {
	Src, Dst           netip.AddrPort
	ReplySrc, ReplyDst netip.AddrPort
	// Zone is the conntrack zone; 0 unless someone set another one.
	Zone uint16
	// ID is the kernel's id of the entry: it keeps a deletion from hitting a
	// newer entry with the same tuple. 0 when not known.
	ID uint32
}

// Redirected reports whether DNAT gave the flow another destination.
func (f Flow) Redirected() bool { return f.ReplySrc != f.Dst }

// Expectation says where UDP flows should go.
type Expectation struct {
	// Serving maps each frontend to the endpoints that may have its flows: the
	// ready ones and the terminating ones that still serve. An empty set means
	// a frontend that refuses.
	Serving map[Frontend]Endpoints
	// Gone maps frontends that no longer exist to the endpoints they led to. A
	// frontend that is in Serving as well is judged by Serving.
	Gone map[Frontend]Endpoints
	// Local reports whether an address of this node takes nodePorts. Without
	// it, nodePorts judge no flow.
	Local func(netip.Addr) bool
}

// Stale reports whether a flow has to go, so that its next packet meets the
// rules again:
//
//   - its destination is a frontend, and its endpoint is not one of those that
//     serve it (or it never was given an endpoint);
//   - or its destination was a frontend, and its endpoint is one that the
//     frontend led to. A flow to the same address that something else redirects,
//     or nobody, stays.
func (x Expectation) Stale(f Flow) bool {
	exact := Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port()}
	nodePort := NodePort(f.Dst.Port())

	// The order is that of the rules: addresses first, nodePorts last.
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

// NodeLocal returns an Expectation.Local for a node: addrs are its addresses
// that take nodePorts, loopback says whether 127.0.0.0/8 takes them too
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
