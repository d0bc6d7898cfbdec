package iptables

import (
	"net/netip"
	"strings"

	"synclab/proxier/plan"
)

// dispatch names the shared chains in which classic rules have lines of Service ports.
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

// dispatchChains are the chains that built-in chains jump to, and where a packet's way to its Service begins in every
// layout.
var dispatchChains = [dispatches]chain{
	{NAT, chainServices}, {NAT, chainNodePorts},
	{Filter, chainServices}, {Filter, chainExternalServices}, {Filter, chainNodePorts}, {Filter, chainProxyFirewall},
}

func (d dispatch) table() Table { return dispatchChains[d].table }

// chain is a chain's full name.
type chain struct {
	table Table
	name  string
}

// destination is what a dispatch line captures.
type destination struct {
	addr     netip.Addr // invalid: any of the node's addresses that the chain is entered for (NodePorts)
	port     uint16
	protocol string // lower case
}

// dispatchLine is a rule of a Service port that a dispatch leads packets to. It matches all of its destination by
// itself, so that it is right in whatever chain a layout puts it.
type dispatchLine struct {
	destination
	text []byte // from behind the chain's name on, to the end of the line: ` -m comment … -j KUBE-SVC-…\n`
}

// layout decides which shared chains there are beside the fixed ones (fixed.go), and which dispatch lines stand in each,
// in which order. A Ruleset tells it every change of a Service port's lines, asks it which chains that may have touched,
// and compares the text of these with what is installed: so a layout may name too many chains, but never too few.
//
// What a layout must hold to:
//
//   - Each of dispatchChains is one of its chains, always, be it empty. Its other chains have names that isLayoutChain
//     knows, and lead nowhere but to one another, downwards, and to chains of Service ports.
//   - Lines for one destination stand in the order of their Service ports (plan.Compare), those of one Service port in
//     the order given. Lines for different destinations may stand in any order.
//   - Same Service ports, same chains, same text, whatever the way that led there: a new start writes what is there.
//   - The text of a chain is made only by lines, from nothing but what change told, so that the Ruleset may tell it a
//     state in between (the union of old and new lines of filter, see between.go), ask for the text, and take that back.
//   - A failed sync costs nothing: touched holds on to what it names until settle.
type layout interface {
	// change replaces all lines of one Service port, in every dispatch. before is what the last change gave for it;
	// either is nil where there is nothing.
	change(before, after *Rendered)
	// reorder tells that a Service port's place among the others is going to be another; its change follows.
	reorder()
	// chains are all chains that there shall be.
	chains() []chain
	// touched are those whose text, or whose being there, may be others than at the last settle.
	touched() []chain
	settle()
	// lines gives the lines of a chain, each with its "-A name", without the last line of nat KUBE-SERVICES, which
	// leads to NodePorts and which the Ruleset adds. false: there shall be no such chain. ordered gives the rules of
	// all Service ports, in order; it costs as much as there are.
	lines(c chain, ordered func() []*Rendered) (block, bool)
	// level is 0 for a chain that leads to none of the layout's own, else more than that of any it leads to: chains
	// are made from level 0 up.
	level(c chain) int
	// frontends are the cluster IPs that lead to endpoints, each with the number of nat rules from KUBE-SERVICES on that
	// a packet crosses until one captures it; and the number that a packet for none of the Services crosses at most.
	frontends(ordered []*Rendered) (frontends []Frontend, rules int)
	// count is how many chains, without dispatchChains, and how many rules the layout has in a table.
	count(table Table) Count
}

// block holds lines of Service ports in one chain, and whose each is. It is never changed after it was made.
type block struct {
	lines
	ports []linePort
}

// add appends a dispatch line. Lines of no Service port, a layout's own, have port nil.
func (b *block) add(chain string, text []byte, port *plan.ServicePort) {
	if last := len(b.ports) - 1; last < 0 || b.ports[last].port != port {
		b.ports = append(b.ports, linePort{b.count, port})
	}
	b.text = append(b.text, "-A "...)
	b.text = append(b.text, chain...)
	b.text = append(b.text, text...)
	b.count++
}

// classic is the layout of kube-proxy: each dispatch is one chain, with the lines of all Service ports.
type classic struct {
	blocks [dispatches]*block // nil: touched
	rules  [dispatches]int
	moved  [dispatches]bool // touched since settle
}

func newClassic() *classic { return &classic{} }

func (c *classic) change(before, after *Rendered) {
	for d := range dispatches {
		old, now := before.dispatched(d), after.dispatched(d)
		c.rules[d] += len(now) - len(old)
		if !equalLines(old, now) {
			c.touch(d)
		}
	}
}

func (c *classic) touch(d dispatch) { c.blocks[d], c.moved[d] = nil, true }

func (c *classic) reorder() {
	for d := range dispatches {
		c.touch(d)
	}
}

func (c *classic) chains() []chain { return dispatchChains[:] }

func (c *classic) touched() []chain {
	var touched []chain
	for d, moved := range c.moved {
		if moved {
			touched = append(touched, dispatchChains[d])
		}
	}
	return touched
}

func (c *classic) settle() { c.moved = [dispatches]bool{} }

func (c *classic) lines(which chain, ordered func() []*Rendered) (block, bool) {
	for d, name := range dispatchChains {
		if name != which {
			continue
		}
		if c.blocks[d] == nil {
			c.blocks[d] = gather(ordered(), dispatch(d))
		}
		return *c.blocks[d], true
	}
	return block{}, false
}

// gather puts the lines of a dispatch together.
func gather(ordered []*Rendered, d dispatch) *block {
	name := dispatchChains[d].name
	size, ports := 0, 0
	for _, rendered := range ordered {
		for _, l := range rendered.dispatch[d] {
			size += len("-A ") + len(name) + len(l.text)
		}
		ports += min(1, len(rendered.dispatch[d]))
	}
	b := &block{lines: lines{text: make([]byte, 0, size)}, ports: make([]linePort, 0, ports)}
	for _, rendered := range ordered {
		for _, l := range rendered.dispatch[d] {
			b.add(name, l.text, rendered.port)
		}
	}
	return b
}

func (c *classic) level(chain) int { return 0 }

func (c *classic) count(table Table) Count {
	var count Count
	for d, rules := range c.rules {
		if dispatch(d).table() == table {
			count.Rules += rules
		}
	}
	return count
}

func (c *classic) frontends(ordered []*Rendered) (frontends []Frontend, rules int) {
	for _, rendered := range ordered {
		port := rendered.port
		if port.HasInternalEndpoints() { // its rule is the first of the port's
			frontends = append(frontends, Frontend{Position: rules + 1, Protocol: port.Name.Protocol, Addr: netip.AddrPortFrom(port.ClusterIP, port.Port)})
		}
		rules += len(rendered.dispatch[natServices])
	}
	return frontends, rules
}

// isLayoutChain says whether a chain's name is one that a layout gives to its own chains.
func isLayoutChain(name string) bool { return strings.HasPrefix(name, prefixTree) }

// newLayout makes a layout, one of Layouts.
func newLayout(kind Layout) layout {
	switch kind {
	case Classic:
		return newClassic()
	case Tree:
		return newTree()
	}
	panic("iptables: no layout " + string(kind))
}
