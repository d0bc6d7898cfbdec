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
//   - both otherwise. Where nat has lines before and after, and filter too, these are for what the line leaves over. So
//     what filter holds beside lines that leave nothing over (of another Service without endpoints, say, for the same
//     destination) nobody meets, and it is not held between.

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
	m := mixer{difference: d, filter: filter, past: captures{}, future: captures{}}
	for name := range d.rules.dirty {
		m.future.add(d.rules.effective(name))
		if !d.rules.unread {
			m.past.add(d.rules.installed[name])
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
	past   captures // not where rules were read back
	future captures
	err    error
}

// capture is what nat's lines for a destination do.
type capture uint8

const (
	captureNone capture = iota // there are none
	captureSome                // some packets come back from where they lead
	captureAll
)

type captures map[destination]capture

// add adds the lines of a Service port.
func (c captures) add(r *Rendered) {
	for _, n := range []dispatch{natServices, natNodePorts} {
		for _, l := range r.dispatched(n) {
			c[l.destination] = max(c[l.destination], r.captures(l.destination))
		}
	}
}

// captures says what the lines of nat do for one of their destinations.
func (r *Rendered) captures(to destination) capture {
	p := r.port
	limited := len(p.SourceRanges) > 0 && slices.Contains(p.LoadBalancerVIPs, to.addr) && !slices.Contains(p.ExternalIPs, to.addr)
	if to.addr == p.ClusterIP || p.HasExternalEndpoints() && !limited {
		return captureAll
	}
	return captureSome
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

// captured says what nat's lines for a destination did. Of lines that were read back it is not known whether they left
// nothing over. Filter's often tell whether there are any: nat has none where all is refused.
func (m *mixer) captured(to destination) capture {
	if !m.rules.unread {
		return m.past[to]
	}
	for _, l := range m.filter.lines[to] {
		switch {
		case l.target == "REJECT", l.dispatch == filterServices:
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
