package iptables

import (
	"net/netip"
	"slices"

	"synclab/proxier/iptables/prefix"
)

// overlap handles filter KUBE-EXTERNAL-SERVICES, where a rule for a NodePort and a rule for an address may match the
// same packet: an external IP is one of the node's addresses, and its port is another Service's NodePort. One of these
// rules may REJECT and the other DROP, so their order matters. The tree of addresses comes first. So that tree also
// contains each NodePort rule, in order, at every address that has a rule with the same protocol and port.
type overlap struct {
	addrs map[overlapping]map[netip.Addr]int // number of lines
	ports map[overlapping][]*treeLine
}

// overlapping is the part that both kinds of rules match.
type overlapping struct {
	protocol string
	port     uint16
}

func newOverlap() overlap {
	return overlap{addrs: map[overlapping]map[netip.Addr]int{}, ports: map[overlapping][]*treeLine{}}
}

// add inserts the copies that a new rule needs.
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

// remove deletes the copies that nothing needs after a rule was removed. of returns the trees.
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
