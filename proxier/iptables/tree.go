package iptables

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"synclab/proxier/iptables/prefix"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// tree is the layout with chains on prefixes of addresses and on ranges of ports (package prefix). A dispatch chain
// contains the rules of a few Service ports, or jumps to trees: one to the tree of the rules with an address, and one
// to the tree of the rules without (NodePorts).
//
// The matching rules are those of classic. A packet leaves a tree after the rules for its destination, whether there
// are none, one or several. It returns behind the jump. So a packet that a dispatch rule lets pass meets the next rule
// for the same destination, and then the rules behind all dispatch rules.
type tree struct {
	trees   [dispatches]struct{ addrs, ports *prefix.Tree[*treeLine] } // nil: without rules so far
	byUse   map[treeUse]*prefix.Tree[*treeLine]
	held    map[tracker.ServicePortName]*treePort
	overlap overlap
	// moved chains changed since settle. stale: trees have changes that are not laid out.
	moved map[chain]bool
	stale bool
}

// treeUse identifies a tree: a table, and the letter with which the names of its chains begin.
type treeUse struct {
	table  Table
	letter byte
}

// treePort is a Service port with its dispatch rules in the trees.
type treePort struct {
	port  *plan.ServicePort // the latest state; an older one would keep removed endpoints in memory
	lines [dispatches][]*treeLine
}

// treeLine is a dispatch rule in a tree.
type treeLine struct {
	dispatchLine
	of    *treePort
	index int // among the rules of the Service port
}

// Rules returns 1: a dispatch line is one rule.
func (l *treeLine) Rules() int { return 1 }

// Compare orders rules for one destination as all layouts do.
func (l *treeLine) Compare(o *treeLine) int {
	return cmp.Or(plan.Compare(l.of.port, o.of.port), cmp.Compare(l.index, o.index))
}

func (l *treeLine) key() prefix.Key { return l.keyAt(l.addr) }

func (l *treeLine) keyAt(addr netip.Addr) prefix.Key {
	return prefix.Key{Addr: addr, Protocol: treeProtocols[l.protocol], Port: l.port}
}

var treeProtocols = map[string]prefix.Protocol{"tcp": prefix.TCP, "udp": prefix.UDP, "sctp": prefix.SCTP}

// treeUses are the letters in the names of each dispatch's chains: for the tree of addresses and the tree of ports.
var treeUses = [dispatches]struct{ addrs, ports byte }{
	natServices:     {'S', 'T'},
	natNodePorts:    {'M', 'N'},
	filterServices:  {'S', 'T'},
	filterExternal:  {'E', 'P'},
	filterNodePorts: {'G', 'H'},
	filterFirewall:  {'F', 'K'},
}

func newTree() *tree {
	return &tree{
		byUse: map[treeUse]*prefix.Tree[*treeLine]{}, held: map[tracker.ServicePortName]*treePort{},
		moved: map[chain]bool{}, overlap: newOverlap(),
	}
}

// of returns the tree for rules with an address of so many bits; 0: without an address. It makes a missing tree.
func (t *tree) of(d dispatch, bits int) *prefix.Tree[*treeLine] {
	at, use := &t.trees[d].addrs, treeUses[d].addrs
	if bits == 0 {
		at, use = &t.trees[d].ports, treeUses[d].ports
	}
	if *at == nil {
		*at = prefix.New[*treeLine](prefix.Options{AddrBits: bits, Root: dispatchChains[d].name, Use: use})
		t.byUse[treeUse{d.table(), use}] = *at
	}
	return *at
}

// all calls f for every existing tree.
func (t *tree) all(f func(d dispatch, p *prefix.Tree[*treeLine])) {
	for d := range t.trees {
		for _, p := range t.rooted(dispatch(d)) {
			f(dispatch(d), p)
		}
	}
}

// rooted returns the trees of a dispatch, in the order in which packets meet them.
func (t *tree) rooted(d dispatch) []*prefix.Tree[*treeLine] {
	trees := []*prefix.Tree[*treeLine]{t.trees[d].addrs, t.trees[d].ports}
	return slices.DeleteFunc(trees, func(p *prefix.Tree[*treeLine]) bool { return p == nil })
}

func (t *tree) change(before, after *Rendered) {
	name := cmp.Or(before, after).port.Name
	held := t.held[name]
	if held == nil {
		held = &treePort{}
		t.held[name] = held
	}
	moved := held.port != nil && after != nil && plan.Compare(held.port, after.port) != 0
	var anew [dispatches]bool
	for d := range dispatches {
		now := after.dispatched(d)
		same := slices.EqualFunc(held.lines[d], now, func(l *treeLine, r dispatchLine) bool {
			return l.destination == r.destination && bytes.Equal(l.text, r.text)
		})
		if anew[d] = moved || !same; anew[d] {
			t.remove(d, held)
		}
	}
	if after == nil {
		delete(t.held, name)
		return
	}
	held.port = after.port // only now: the removed lines were sorted by the old port
	for d := range dispatches {
		if anew[d] {
			t.add(d, held, after.dispatched(d))
		}
	}
}

func (t *tree) remove(d dispatch, held *treePort) {
	for _, l := range held.lines[d] {
		t.of(d, l.addr.BitLen()).Remove(l.key(), l)
		t.stale = true
		if d == filterExternal {
			t.overlap.remove(t.of, l)
		}
	}
	held.lines[d] = nil
}

func (t *tree) add(d dispatch, held *treePort, lines []dispatchLine) {
	for i, line := range lines {
		l := &treeLine{line, held, i}
		held.lines[d] = append(held.lines[d], l)
		t.put(d, l.key(), l)
		if d == filterExternal {
			t.overlap.add(t.put, l)
		}
	}
}

func (t *tree) put(d dispatch, key prefix.Key, l *treeLine) {
	if err := t.of(d, key.Addr.BitLen()).Add(key, l); err != nil {
		panic(err) // impossible: of chose the tree by the address
	}
	t.stale = true
}

// reorder does nothing: the change that follows finds the new position.
func (t *tree) reorder() {}

// update lays out the changes.
func (t *tree) update() {
	if !t.stale {
		return
	}
	t.stale = false
	t.all(func(d dispatch, p *prefix.Tree[*treeLine]) {
		difference := p.Update()
		for _, name := range slices.Concat(difference.Changed, difference.Removed) {
			t.moved[chain{d.table(), name}] = true
		}
	})
}

func (t *tree) chains() []chain {
	t.update()
	chains := slices.Clone(dispatchChains[:])
	t.all(func(d dispatch, p *prefix.Tree[*treeLine]) {
		for _, name := range p.Names() {
			if prefix.IsName(name) {
				chains = append(chains, chain{d.table(), name})
			}
		}
	})
	return chains
}

func (t *tree) touched() []chain {
	t.update()
	return slices.SortedFunc(maps.Keys(t.moved), func(a, b chain) int {
		return cmp.Or(cmp.Compare(a.table, b.table), cmp.Compare(a.name, b.name))
	})
}

func (t *tree) settle() {
	t.update()
	clear(t.moved)
}

func (t *tree) level(c chain) int {
	if level, ok := prefix.Level(c.name); ok {
		return level
	}
	return prefix.MaxDepth
}

func (t *tree) count(table Table) (count Count) {
	t.update()
	t.all(func(d dispatch, p *prefix.Tree[*treeLine]) {
		if d.table() == table {
			// Each chain but the root has one rule that jumps to it.
			count.Chains += p.Branches()
			count.Rules += p.Rules() + p.Branches()
		}
	})
	return count
}

func (t *tree) lines(c chain, _ func() []*Rendered) (block, bool) {
	t.update()
	if d := slices.Index(dispatchChains[:], c); d >= 0 {
		var b block
		for _, p := range t.rooted(dispatch(d)) {
			rules, _ := p.Chain(c.name)
			b.lead(c.name, rules, " -j ")
		}
		return b, true
	}
	letter, _ := prefix.Use(c.name)
	p := t.byUse[treeUse{c.table, letter}]
	if p == nil {
		return block{}, false
	}
	rules, there := p.Chain(c.name)
	if !there {
		return block{}, false
	}
	var b block
	b.lead(c.name, rules, " -g ")
	return b, true
}

// lead writes the rules of a chain of a tree.
func (b *block) lead(name string, rules []prefix.Rule[*treeLine], to string) {
	for _, r := range rules {
		if r.To == "" {
			b.add(name, r.Value.text, r.Value.of.port)
			continue
		}
		b.add(name, []byte(matchText(r.Match)+to+r.To+"\n"), nil)
	}
}

func matchText(m prefix.Match) string {
	text, addr := "", ""
	if m.Prefix.IsValid() {
		addr = " -d " + m.Prefix.String()
	}
	switch m.Protocols {
	case prefix.NotTCP:
		text = " ! -p tcp"
	case prefix.OneProtocol:
		protocol := map[prefix.Protocol]string{prefix.TCP: "tcp", prefix.UDP: "udp", prefix.SCTP: "sctp"}[m.Protocol]
		text = " -p " + protocol
		switch {
		case m.AnyPort():
		case m.First == m.Last:
			addr += fmt.Sprintf(" --dport %d", m.First)
			text = " -m " + protocol + text
		default:
			addr += fmt.Sprintf(" --dport %d:%d", m.First, m.Last)
			text = " -m " + protocol + text
		}
	}
	return text + addr
}

func (t *tree) frontends(ordered []*Rendered) (frontends []Frontend, rules int) {
	t.update()
	p := t.trees[natServices].addrs
	if p == nil {
		return nil, 0
	}
	for _, rendered := range ordered {
		port := rendered.port
		if !port.HasInternalEndpoints() {
			continue
		}
		to := rendered.dispatch[natServices][0] // the first of the port's
		walked := p.Walk((&treeLine{dispatchLine: to}).key(), (*treeLine).key)
		frontends = append(frontends, Frontend{
			Position: walked.Crossed, Protocol: port.Name.Protocol, Addr: netip.AddrPortFrom(port.ClusterIP, port.Port),
		})
	}
	slices.SortStableFunc(frontends, func(a, b Frontend) int { return cmp.Compare(a.Position, b.Position) })
	return frontends, p.Miss()
}
