package iptables

import (
	"net/netip"
	"strings"

	"synclab/proxier/plan"
)

// dispatch names the shared chains that contain rules of Service ports in layout classic.
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

// dispatchChains are the chains that built-in chains jump to. In every layout the packet path to a Service begins
// there.
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

// destination is what a dispatch rule matches.
type destination struct {
	addr     netip.Addr // invalid: every address of the node for which the chain is entered (NodePorts)
	port     uint16
	protocol string // lower case
}

// dispatchLine is a dispatch rule of a Service port. It matches its whole destination, so it is correct in whatever
// chain a layout puts it.
type dispatchLine struct {
	destination
	text []byte // the rule after the chain's name, to the end of the line: ` -m comment … -j KUBE-SVC-…\n`
}

// layout decides which shared chains there are besides the fixed ones (fixed.go), and which dispatch rules each
// contains, in which order. A Ruleset reports every change of a Service port to the layout. It then asks which chains
// the change may have touched, and compares their text with the installed text. So a layout may name too many chains,
// but never too few.
//
// Every layout has to fulfil:
//
//   - Each of dispatchChains is always one of its chains, even if empty. Its other chains have names that isLayoutChain
//     knows. They jump only to lower chains of the layout and to chains of Service ports.
//   - Rules for one destination are in the order of their Service ports (plan.Compare). The rules of one Service port
//     are in the given order. Rules for different destinations may be in any order.
//   - The same Service ports give the same chains and texts, whatever the changes before. So a new process writes what
//     is already there.
//   - lines makes the text of a chain only from the rules that change passed. So the Ruleset can set a transition state
//     (see between.go), read the text, and undo that change.
//   - A failed sync loses nothing: touched keeps a chain until settle.
type layout interface {
	// change replaces all rules of one Service port, in every dispatch. before is the after of its last change. Either
	// is nil when there are no rules.
	change(before, after *Rendered)
	// reorder reports that a Service port's position among the others is going to change. Its change follows.
	reorder()
	// chains returns all desired chains.
	chains() []chain
	// touched returns the chains whose text or existence may have changed since the last settle.
	touched() []chain
	settle()
	// lines returns the dispatch rules of a chain, each with its "-A name". The Ruleset adds the last rule of nat
	// KUBE-SERVICES, which jumps to NodePorts. false: the chain is not desired. ordered returns the rules of all
	// Service ports, in order; its cost grows with their number.
	lines(c chain, ordered func() []*Rendered) (block, bool)
	// level is 0 for a chain that jumps to no other chain of the layout. Otherwise it is higher than the level of every
	// chain that the chain jumps to. Chains are created from level 0 up.
	level(c chain) int
	// frontends returns the cluster IPs that have endpoints. Position counts the nat rules that a packet crosses, from
	// KUBE-SERVICES up to the matching one. rules is the most that a packet for no Service crosses.
	frontends(ordered []*Rendered) (frontends []Frontend, rules int)
	// count returns how many chains, without dispatchChains, and how many rules the layout has in a table.
	count(table Table) Count
}

// block contains rules of Service ports in one chain, with the owner of each. It is immutable.
type block struct {
	lines
	ports []linePort
}

// add appends a dispatch rule. port is nil for a rule of the layout itself.
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

// gather collects the rules of a dispatch.
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

// isLayoutChain reports whether a chain's name is one that a layout gives to its own chains.
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
