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
	filter, err := d.before(Filter)
	if err != nil {
		return between{}, err
	}
	late, past, err := d.mixture(filter)
	if err != nil {
		return between{}, err
	}
	r, texts := d.rules, map[chain]chainText{}
	all := d.ordered()
	if len(late)+len(past.dispatch[filterServices])+len(past.dispatch[filterExternal])+len(past.dispatch[filterFirewall]) > 0 {
		mixed := make([]*Rendered, 0, len(all)+1)
		for _, rendered := range all {
			if later := late[rendered.port.Name]; later != nil {
				r.layout.change(rendered, later)
				rendered = later
			}
			mixed = append(mixed, rendered)
		}
		r.layout.change(nil, past)
		mixed = append(mixed, past)
		texts = d.filterTexts(func() []*Rendered { return mixed })
		r.layout.change(past, nil)
		for _, rendered := range all {
			if later := late[rendered.port.Name]; later != nil {
				r.layout.change(later, rendered)
			}
		}
	} else {
		texts = d.filterTexts(d.ordered)
	}
	return d.apart(texts, write), nil
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

// apart splits what filter has to become into what it has to be first, and the rest. The fixed chains, which nothing of
// this touches, go with whichever there is.
func (d *difference) apart(mixed map[chain]chainText, write []chainText) between {
	var b between
	held := d.rules.held[Filter]
	for c, t := range mixed {
		if !held.is(c.name, t.hash) {
			b.first = append(b.first, t)
		}
	}
	if len(b.first) == 0 {
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
		if _, layouts := final[c]; layouts {
			b.last = append(b.last, t)
		} else {
			b.first = append(b.first, t)
		}
	}
	sortTexts(b.first)
	sortTexts(b.last)
	return b
}

// mixture is what filter holds between the two states of nat in place of what it will: late are Service ports some of
// whose lines have to wait, past has the lines that stay for the while.
func (d *difference) mixture(filter *before) (late map[tracker.ServicePortName]*Rendered, past *Rendered, err error) {
	late = map[tracker.ServicePortName]*Rendered{}
	past = &Rendered{port: &plan.ServicePort{ServicePort: &tracker.ServicePort{Name: ghost}}}
	future := map[destination]bool{} // that nat will have lines for
	lines := map[beforeLine]bool{}   // of filter, that are there already
	for _, rendered := range d.covered {
		for _, n := range []dispatch{natServices, natNodePorts} {
			for _, l := range rendered.dispatch[n] {
				future[l.destination] = true
			}
		}
	}
	for _, rendered := range d.covered {
		later := *rendered
		waits := false
		for _, n := range refusing {
			later.dispatch[n] = nil
			for _, l := range rendered.dispatch[n] {
				captured := false
				if future[l.destination] {
					if captured, err = d.captured(filter, l.destination); err != nil {
						return nil, nil, err
					}
				}
				if future[l.destination] && !captured {
					waits = true
					continue
				}
				later.dispatch[n] = append(later.dispatch[n], l)
				text := d.rules.settings.canonicalLine(l.text)
				lines[beforeLine{n, text, jumpTarget(text)}] = true
			}
		}
		if waits {
			late[rendered.port.Name] = &later
		}
	}
	for to, old := range filter.lines {
		for _, l := range old {
			if l.dispatch == filterNodePorts || lines[l] {
				continue
			}
			captured, err := d.captured(filter, to)
			if err != nil {
				return nil, nil, err
			}
			if captured && !future[to] {
				continue
			}
			past.dispatch[l.dispatch] = append(past.dispatch[l.dispatch], dispatchLine{to, []byte(plainRefusal.Replace(l.text) + "\n")})
		}
	}
	sortLines(past)
	return late, past, nil
}

// captured says whether nat had a line for a destination. Filter's lines often tell: nat has none where all is refused.
func (d *difference) captured(filter *before, to destination) (bool, error) {
	for _, l := range filter.lines[to] {
		switch {
		case l.target == "REJECT", l.dispatch == filterServices:
			return false, nil
		case l.dispatch != filterNodePorts:
			return true, nil
		}
	}
	nat, err := d.before(NAT)
	if err != nil {
		return false, err
	}
	return len(nat.lines[to]) > 0, nil
}

// sortLines gives the lines of a mixture an order of their own: they were in none.
func sortLines(r *Rendered) {
	for _, lines := range r.dispatch {
		slices.SortFunc(lines, func(a, b dispatchLine) int { return bytes.Compare(a.text, b.text) })
	}
}
