package iptables

import (
	"net/netip"
	"slices"

	"synclab/proxier/iptables/prefix"
)

// overlap is about filter KUBE-EXTERNAL-SERVICES, whose lines for NodePorts may capture what lines for addresses
// capture too: an external IP that is one of the node's, with a port that is another Service's NodePort. All of these
// lines turn packets away, but one with REJECT and another with DROP, so their order matters. The tree of addresses
// comes first; hence each line for a NodePort stands there as well, in its place, wherever a line for an address has
// the same protocol and port.
type overlap struct {
	addrs map[overlapping]map[netip.Addr]int // number of lines
	ports map[overlapping][]*treeLine
}

// overlapping is what both kinds of lines match.
type overlapping struct {
	protocol string
	port     uint16
}

func newOverlap() overlap {
	return overlap{addrs: map[overlapping]map[netip.Addr]int{}, ports: map[overlapping][]*treeLine{}}
}

// add puts the copies in that a new line needs.
func (o *overlap) add(put func(dispatch, prefix.Key, *treeLine), l *treeLine) {
	what := overlapping{l.protocol, l.port}
	if !l.addr.IsValid() {
		o.ports[what] = append(o.ports[what], l)
		for addr := range o.addrs[what] {
			put(filterExternal, l.keyAt(addr), l)
		}
		return
	}
	if o.addrs[what] == nil {
		o.addrs[what] = map[netip.Addr]int{}
	}
	if o.addrs[what][l.addr]++; o.addrs[what][l.addr] == 1 {
		for _, node := range o.ports[what] {
			put(filterExternal, l.key(), node)
		}
	}
}

// remove takes the copies out that are no longer needed when a line went. of gives the trees.
func (o *overlap) remove(of func(dispatch, int) *prefix.Tree[*treeLine], l *treeLine) {
	what := overlapping{l.protocol, l.port}
	if !l.addr.IsValid() {
		at := slices.Index(o.ports[what], l)
		if o.ports[what] = slices.Delete(o.ports[what], at, at+1); len(o.ports[what]) == 0 {
			delete(o.ports, what)
		}
		for addr := range o.addrs[what] {
			of(filterExternal, addr.BitLen()).Remove(l.keyAt(addr), l)
		}
		return
	}
	if o.addrs[what][l.addr]--; o.addrs[what][l.addr] > 0 {
		return
	}
	delete(o.addrs[what], l.addr)
	if len(o.addrs[what]) == 0 {
		delete(o.addrs, what)
	}
	for _, node := range o.ports[what] {
		of(filterExternal, l.addr.BitLen()).Remove(l.key(), node)
	}
}
