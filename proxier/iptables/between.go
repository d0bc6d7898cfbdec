package iptables

import (
	"bytes"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/iptables/rule"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// A packet crosses nat first and filter afterwards, and the two tables are not committed together. So a sync may need a
// transition state: rules of filter that are valid with the old rules of nat and with the new ones. See
// docs/design/iptables-sync-order.md.

// between is the transition state of filter.
type between struct {
	first []chainText // written before nat: they differ from the installed chains
	last  []chainText // written after nat: they differ from first
	gone  []string    // chains that exist only in the transition state
}

// plainRefusal converts REJECT from the form that iptables prints to the form in which rules are written.
var plainRefusal = strings.NewReplacer(" --reject-with icmp-port-unreachable", "", " --reject-with icmp6-port-unreachable", "")

// ghost is the Service port name under which stale rules are stored.
var ghost = tracker.ServicePortName{NamespacedName: types.NamespacedName{Name: "ghost"}}

// refusing dispatches contain the rules of filter that complement those of nat.
var refusing = []dispatch{filterServices, filterExternal, filterFirewall}

// between computes the transition state for the chains of filter in write. It changes the layout and changes it back.
func (d *difference) between(write []chainText) (between, error) {
	mixture, err := d.mixture()
	if err != nil {
		return between{}, err
	}
	layout, mixed := d.rules.layout, slices.Clone(d.ordered())
	for i, rendered := range mixed {
		if now := mixture[rendered.port.Name]; now != nil {
			mixed[i] = now
		}
	}
	for name, now := range mixture {
		wanted := d.rules.effective(name)
		if wanted == nil {
			mixed = append(mixed, now)
		}
		layout.change(wanted, now)
	}
	slices.SortFunc(mixed, func(a, b *Rendered) int { return plan.Compare(a.port, b.port) })
	texts := d.filterTexts(func() []*Rendered { return mixed })
	for name, now := range mixture {
		layout.change(now, d.rules.effective(name))
	}
	past, err := d.before(Filter)
	return d.divide(texts, write, past), err
}

// filterTexts returns the layout's chains of filter that changes may have touched.
func (d *difference) filterTexts(ordered func() []*Rendered) map[chain]chainText {
	texts := map[chain]chainText{}
	touched := d.rules.layout.touched()
	if d.rules.staleness() > current {
		touched = append(touched, d.rules.layout.chains()...)
	}
	for _, c := range touched {
		if _, seen := texts[c]; c.table != Filter || seen {
			continue
		}
		if b, wanted := d.rules.layout.lines(c, ordered); wanted {
			texts[c] = d.sharedText(c, b.lines, &b, levelLayout+d.rules.layout.level(c))
		}
	}
	return texts
}

// divide divides the new chains of filter into those written before nat and those written after. KUBE-FORWARD must
// accept hairpin packets before the first flat chain exists and until the last one is gone. Other fixed chains go with
// either.
func (d *difference) divide(mixed map[chain]chainText, write []chainText, past *before) between {
	var b between
	fixedFirst, fixedLast := d.rules.settings.flat, !d.rules.settings.flat && past.hairpin
	known := d.rules.known[Filter]
	for c, t := range mixed {
		if !known.is(c.name, t.hash) {
			b.first = append(b.first, t)
		}
	}
	if len(b.first) == 0 && !fixedFirst {
		b.last = write
		return b
	}
	final := d.filterTexts(d.ordered)
	for c, t := range mixed {
		now, wanted := final[c]
		switch {
		case !wanted:
			b.gone = append(b.gone, c.name)
		case now.hash != t.hash:
			b.last = append(b.last, now)
		}
	}
	for _, t := range write {
		c := chain{Filter, t.name}
		if _, done := mixed[c]; done {
			continue
		}
		if _, layouts := final[c]; layouts || fixedLast {
			b.last = append(b.last, t)
		} else {
			b.first = append(b.first, t)
		}
	}
	sortTexts(b.first)
	sortTexts(b.last)
	return b
}

// mixture returns the transition rules of the Service ports whose rules in filter must wait or stay. Stale rules that
// were read from the kernel are stored under ghost.
func (d *difference) mixture() (map[tracker.ServicePortName]*Rendered, error) {
	filter, err := d.before(Filter)
	if err != nil {
		return nil, err
	}
	m := mixer{
		difference: d, parser: rule.NewParser(d.rules.settings.Family), installed: d.rules.staleness() <= behind,
		filter: filter, past: captures{}, future: captures{},
	}
	for name := range d.rules.dirty {
		m.future.add(d.rules.effective(name))
		if m.installed {
			m.past.add(d.rules.installed[name])
		}
	}
	mixture := map[tracker.ServicePortName]*Rendered{}
	for name := range d.rules.dirty {
		old, wanted := d.rules.installed[name], d.rules.effective(name)
		if !m.installed {
			old = m.found(wanted)
		}
		if now := m.mix(old, wanted); now != nil {
			mixture[name] = now
		}
	}
	if !m.installed {
		if now := m.mix(d.ghost(filter), nil); now != nil {
			mixture[ghost] = now
		}
	}
	return mixture, m.err
}

// ghost returns the rules that were read from the kernel and that no Service port desires.
func (d *difference) ghost(filter *before) *Rendered {
	wanted, parser := newBefore(), rule.NewParser(d.rules.settings.Family)
	for _, rendered := range d.covered {
		wanted.addRendered(parser, Filter, rendered)
	}
	past := &Rendered{port: &plan.ServicePort{ServicePort: &tracker.ServicePort{Name: ghost}}}
	for to, lines := range filter.lines {
		for _, l := range lines {
			if !wanted.has(to, l) {
				text := plainRefusal.Replace(string(l.rule.Append(nil)))
				past.dispatch[l.dispatch] = append(past.dispatch[l.dispatch], dispatchLine{to, []byte(text + "\n")})
			}
		}
	}
	for _, lines := range past.dispatch { // the order of maps is random
		slices.SortFunc(lines, func(a, b dispatchLine) int { return bytes.Compare(a.text, b.text) })
	}
	return past
}

// mixer combines the old and the new rules in filter of Service ports.
type mixer struct {
	*difference
	parser    *rule.Parser
	installed bool // the dispatch rules in the kernel are the installed ones; else they are read from there
	filter    *before
	past      captures // empty unless installed
	future    captures
	err       error
}

// capture says how many packets for a destination the rules of nat translate: none, some or all.
type capture uint8

const (
	captureNone capture = iota // there are no rules
	captureSome                // some packets return untranslated
	captureAll
)

type captures map[destination]capture

// add adds the rules in nat of a Service port.
func (c captures) add(r *Rendered) {
	for _, n := range []dispatch{natServices, natNodePorts} {
		for _, l := range r.dispatched(n) {
			c[l.destination] = max(c[l.destination], r.captures(l.destination))
		}
	}
}

// captures returns how many packets for a destination the Service port's rules in nat translate.
func (r *Rendered) captures(to destination) capture {
	p := r.port
	limited := len(p.SourceRanges) > 0 && slices.Contains(p.LoadBalancerVIPs, to.addr) && !slices.Contains(p.ExternalIPs, to.addr)
	if to.addr == p.ClusterIP || p.HasExternalEndpoints() && !limited {
		return captureAll
	}
	return captureSome
}

// found returns the desired rules of a Service port that were also read from the kernel.
func (m *mixer) found(wanted *Rendered) *Rendered {
	if wanted == nil {
		return nil
	}
	old := &Rendered{port: wanted.port}
	for _, n := range refusing {
		for _, l := range wanted.dispatch[n] {
			if m.filter.has(l.destination, parsed(m.parser, n, l)) {
				old.dispatch[n] = append(old.dispatch[n], l)
			}
		}
	}
	return old
}

// mix returns the transition rules of a Service port between old and wanted; nil when they equal wanted.
func (m *mixer) mix(old, wanted *Rendered) *Rendered {
	now := &Rendered{}
	if wanted != nil {
		*now = *wanted
	} else if old != nil {
		now.port = old.port
	}
	differs := false
	for _, n := range refusing {
		var lines []dispatchLine
		for _, l := range old.dispatched(n) {
			past, future := m.captured(l.destination), m.future[l.destination]
			if past == captureNone || past == captureSome && future != captureNone || containsLine(wanted.dispatched(n), l) {
				lines = append(lines, l)
			}
		}
		kept := lines
		for _, l := range wanted.dispatched(n) {
			past, future := m.captured(l.destination), m.future[l.destination]
			if !containsLine(kept, l) && (future == captureNone || future == captureSome && past != captureNone) {
				lines = append(lines, l)
			}
		}
		now.dispatch[n] = lines
		differs = differs || !equalLines(lines, wanted.dispatched(n))
	}
	if !differs {
		return nil
	}
	return now
}

func containsLine(lines []dispatchLine, l dispatchLine) bool {
	return slices.ContainsFunc(lines, func(k dispatchLine) bool { return equalLines([]dispatchLine{k}, []dispatchLine{l}) })
}

// captured returns how many packets for a destination the old rules of nat translated. Rules that were read from the
// kernel are never captureAll. Filter often shows that nat has no rule: nat has none where filter rejects every packet.
func (m *mixer) captured(to destination) capture {
	if m.installed {
		return m.past[to]
	}
	for _, l := range m.filter.lines[to] {
		switch {
		case l.rule.Target.Kind == rule.TargetReject, l.dispatch == filterServices:
			return captureNone
		case l.dispatch != filterNodePorts:
			return captureSome
		}
	}
	nat, err := m.before(NAT)
	if err != nil {
		m.err = err
		return captureNone
	}
	if len(nat.lines[to]) > 0 {
		return captureSome
	}
	return captureNone
}
