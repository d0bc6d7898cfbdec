package iptables

import (
	"bytes"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// A packet meets nat first and filter afterwards, and the two tables are not written at once. What nat does not lead to
// an endpoint, filter must treat as it did before, or as it will: so between the two states of nat, filter has to hold,
// for each destination,
//
//   - what it will hold, where nat had a line and has none in future: else what nat let go would pass;
//   - what it held, where nat had no line and will have one: else what nat would capture in a moment were dropped;
//   - both otherwise. (Where nat has lines before and after, and filter too, these drop what the line leaves over.)

// between is filter's state between the two states of nat.
type between struct {
	first []chainText // differ from what is installed
	last  []chainText // and then from what first left
	gone  []string    // chains that are there only between
}

// plainRefusal spells REJECT as rules are written, not as they are printed.
var plainRefusal = strings.NewReplacer(" --reject-with icmp-port-unreachable", "", " --reject-with icmp6-port-unreachable", "")

// ghost is the name of what holds lines of the past.
var ghost = tracker.ServicePortName{NamespacedName: types.NamespacedName{Name: "ghost"}}

// refusing dispatches hold the lines of filter that go with those of nat.
var refusing = []dispatch{filterServices, filterExternal, filterFirewall}

// between finds it, for what is to be written of filter. It changes the layout and changes it back.
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
	return d.apart(texts, write, past), err
}

// filterTexts are the layout's chains of filter that changes may have touched.
func (d *difference) filterTexts(ordered func() []*Rendered) map[chain]chainText {
	texts := map[chain]chainText{}
	touched := d.rules.layout.touched()
	if d.rules.behind {
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

// apart splits what filter has to become into what it has to be first, and the rest. Of the fixed chains, which no line
// of a Service port stands in, KUBE-FORWARD has to let flat chains' packets pass from before the first of these on and
// until after the last; else they go with whichever there is.
func (d *difference) apart(mixed map[chain]chainText, write []chainText, past *before) between {
	var b between
	fixedFirst, fixedLast := d.rules.settings.flat, !d.rules.settings.flat && past.hairpin
	held := d.rules.held[Filter]
	for c, t := range mixed {
		if !held.is(c.name, t.hash) {
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

// mixture is what filter holds between the two states of nat in place of what it will: of Service ports some of whose
// lines have to wait, or stay for the while. Lines that were read back and not remembered are the ghost's.
func (d *difference) mixture() (map[tracker.ServicePortName]*Rendered, error) {
	filter, err := d.before(Filter)
	if err != nil {
		return nil, err
	}
	m := mixer{difference: d, filter: filter, future: map[destination]bool{}}
	for _, rendered := range d.covered {
		for _, n := range []dispatch{natServices, natNodePorts} {
			for _, l := range rendered.dispatch[n] {
				m.future[l.destination] = true
			}
		}
	}
	mixture := map[tracker.ServicePortName]*Rendered{}
	for name := range d.rules.dirty {
		old, wanted := d.rules.installed[name], d.rules.effective(name)
		if d.rules.unread {
			old = m.found(wanted)
		}
		if now := m.mix(old, wanted); now != nil {
			mixture[name] = now
		}
	}
	if d.rules.unread {
		if now := m.mix(d.ghost(filter), nil); now != nil {
			mixture[ghost] = now
		}
	}
	return mixture, m.err
}

// ghost has the lines that were read back and that no Service port wants.
func (d *difference) ghost(filter *before) *Rendered {
	wanted := newBefore()
	for _, rendered := range d.covered {
		wanted.addRendered(&d.rules.settings, Filter, rendered)
	}
	past := &Rendered{port: &plan.ServicePort{ServicePort: &tracker.ServicePort{Name: ghost}}}
	for to, lines := range filter.lines {
		for _, l := range lines {
			if !slices.Contains(wanted.lines[to], l) {
				past.dispatch[l.dispatch] = append(past.dispatch[l.dispatch], dispatchLine{to, []byte(plainRefusal.Replace(l.text) + "\n")})
			}
		}
	}
	for _, lines := range past.dispatch { // they were in no order
		slices.SortFunc(lines, func(a, b dispatchLine) int { return bytes.Compare(a.text, b.text) })
	}
	return past
}

// mixer mixes the lines of filter of Service ports.
type mixer struct {
	*difference
	filter *before
	future map[destination]bool // that nat will have lines for
	err    error
}

// found has those of the lines that a Service port wants that were read back.
func (m *mixer) found(wanted *Rendered) *Rendered {
	if wanted == nil {
		return nil
	}
	old := &Rendered{port: wanted.port}
	for _, n := range refusing {
		for _, l := range wanted.dispatch[n] {
			text := m.rules.settings.canonicalLine(l.text)
			if slices.Contains(m.filter.lines[l.destination], beforeLine{n, text, jumpTarget(text)}) {
				old.dispatch[n] = append(old.dispatch[n], l)
			}
		}
	}
	return old
}

// mix gives what a Service port has between old and wanted; nil when that is what is wanted.
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
			if m.future[l.destination] || !m.captured(l.destination) {
				lines = append(lines, l)
			}
		}
		kept := lines
		for _, l := range wanted.dispatched(n) {
			there := slices.ContainsFunc(kept, func(k dispatchLine) bool { return equalLines([]dispatchLine{k}, []dispatchLine{l}) })
			if !there && (!m.future[l.destination] || m.captured(l.destination)) {
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

// captured says whether nat had a line for a destination. Filter's lines often tell: nat has none where all is refused.
func (m *mixer) captured(to destination) bool {
	for _, l := range m.filter.lines[to] {
		switch {
		case l.target == "REJECT", l.dispatch == filterServices:
			return false
		case l.dispatch != filterNodePorts:
			return true
		}
	}
	nat, err := m.before(NAT)
	if err != nil {
		m.err = err
		return false
	}
	return len(nat.lines[to]) > 0
}
