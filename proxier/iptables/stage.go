package iptables

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"synclab/proxier/iptables/prefix"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/tracker"
)

// stager writes a difference to the kernel, payload by payload. See docs/design/iptables-sync-order.md for their order.
type stager struct {
	*difference
	// restore hands over one payload and records the result.
	restore func(p *Payload, live bool) error
	// incremental: a restore may create chains before another restore adds jumps to them. Otherwise every restore
	// rewrites the whole table, so there is one restore.
	incremental bool
	pace        *pace
}

// group are chains that one restore must write together.
type group []chainText

// run writes the whole difference.
func (s *stager) run() error {
	parts, err := s.split()
	if err != nil {
		return err
	}
	for _, table := range []Table{NAT, Filter} {
		if err := s.batches(table, parts.fresh[table], false); err != nil {
			return err
		}
	}
	o, err := s.order(parts)
	if err != nil {
		return err
	}
	if len(parts.steady) > 0 {
		if err := s.live(false, o.before, o.ahead); err != nil {
			return err
		}
		o.before = step{}
		if err := s.batches(NAT, parts.steady, true); err != nil {
			return err
		}
	}
	if err := s.live(true, o.before, o.nat, o.after); err != nil {
		return err
	}
	s.settle(o.sweep)
	for _, table := range []Table{NAT, Filter} {
		if err := s.sweep(table, o.sweep[table]); err != nil {
			return err
		}
	}
	s.allCurrent()
	return nil
}

// order has the steps that write chains which packets reach, and the chains that are deleted after them.
type order struct {
	before step // filter, first: valid with the old rules of nat and with the new ones
	ahead  step // nat, with before: what must be there before steady Service ports change
	nat    step // the switch
	after  step // filter, last: valid with the new rules of nat
	sweep  map[Table][]string
}

func (s *stager) order(p parts) (o order, err error) {
	filter := between{first: p.live[Filter]}
	o.nat, o.ahead = step{table: NAT, write: p.live[NAT]}, step{table: NAT}
	if !p.severalRestores {
		o.nat.gone = s.gone[NAT]
	}
	if len(o.nat.write)+len(o.nat.gone)+len(p.steady) > 0 && len(filter.first)+len(s.gone[Filter]) > 0 {
		if filter, err = s.between(p.live[Filter]); err != nil {
			return o, err
		}
	}
	o.before, o.after = step{table: Filter, write: filter.first}, step{table: Filter, write: filter.last}
	// The chains to delete jump to no chain that stays. After the last write of filter, only chains to delete jump to
	// them.
	gone := slices.Compact(slices.Sorted(slices.Values(slices.Concat(filter.gone, s.gone[Filter]))))
	switch {
	case p.severalRestores:
		o.sweep = map[Table][]string{NAT: s.gone[NAT], Filter: gone}
	case len(filter.last)+len(filter.gone) == 0:
		o.before.gone = gone
	default:
		o.after.gone = gone
	}
	if len(p.steady) > 0 && s.rules.settings.flat {
		o.ahead.write, o.nat.write = divideFixed(o.nat.write)
	}
	return o, nil
}

// divideFixed separates the chains without dispatch rules and without jumps to Service ports from the others.
func divideFixed(texts []chainText) (fixed, others []chainText) {
	for _, t := range texts {
		if t.port == nil && t.lines == nil {
			fixed = append(fixed, t)
		} else {
			others = append(others, t)
		}
	}
	return fixed, others
}

// live writes chains that packets reach; last: no other such chain has to be written.
func (s *stager) live(last bool, steps ...step) error {
	steps = slices.DeleteFunc(steps, func(s step) bool { return len(s.write)+len(s.gone) == 0 })
	if len(steps) == 0 {
		return nil
	}
	p := s.payload(steps...)
	p.last = last
	return s.restore(p, true)
}

// parts of a difference, by whether packets reach the chains.
type parts struct {
	severalRestores bool
	// fresh chains are reached by no packet before the switch. They are sorted by level, lowest first.
	fresh map[Table][]group
	// steady are the chains of Service ports whose dispatch does not change, one group for each Service port.
	steady []group
	// live chains have to be written in one commit.
	live map[Table][]chainText
}

// split divides the chains into parts. A difference that fits into one batch stays whole.
func (s *stager) split() (parts, error) {
	p := parts{fresh: map[Table][]group{}, live: s.write}
	names, bytes := 0, 0
	for table, texts := range s.write {
		n, b := group(texts).size()
		names, bytes = names+n+len(s.gone[table]), max(bytes, b+len(s.gone[table])*bytesPerGone)
	}
	if !s.incremental || names <= s.pace.batch(len(s.rules.known[NAT].content)) && s.pace.sends(bytes) {
		return p, nil
	}
	p.severalRestores, p.live = true, map[Table][]chainText{}
	reach, err := s.reach()
	if err != nil {
		return p, err
	}
	steady := map[tracker.ServicePortName]group{}
	for table, texts := range s.write {
		known := s.rules.known[table]
		for _, t := range texts {
			_, there := known.content[t.name]
			live, unsettled := known.unsettled[t.name]
			switch {
			case !there, unsettled && !live, t.port != nil && !reach.reached(t.port.Name):
				p.fresh[table] = append(p.fresh[table], group{t})
			case t.port != nil && reach.steady(t.port.Name):
				steady[t.port.Name] = append(steady[t.port.Name], t)
			default:
				p.live[table] = append(p.live[table], t)
			}
		}
		slices.SortStableFunc(p.fresh[table], func(a, b group) int { return cmp.Compare(a[0].level, b[0].level) })
	}
	p.steady = slices.SortedFunc(maps.Values(steady), func(a, b group) int { return strings.Compare(a[0].name, b[0].name) })
	return p, nil
}

// batches writes groups of chains, as many in one restore as the pace allows.
func (s *stager) batches(table Table, groups []group, live bool) error {
	for len(groups) > 0 {
		limit := s.pace.batch(len(s.rules.known[table].content))
		var texts []chainText
		names, bytes := 0, 0
		for len(groups) > 0 {
			n, b := groups[0].size()
			if len(texts) > 0 && (names+n > limit || !s.pace.sends(bytes+b)) {
				break
			}
			texts = append(texts, groups[0]...)
			names, bytes, groups = names+n, bytes+b, groups[1:]
		}
		sortTexts(texts)
		if err := s.restore(s.payload(step{table, texts, nil}), live); err != nil {
			return err
		}
		s.pace.took(names)
	}
	return nil
}

// sweep deletes chains that have no jump to them but from one another, highest level first.
func (s *stager) sweep(table Table, gone []string) error {
	slices.SortStableFunc(gone, func(a, b string) int { return cmp.Compare(sweepLevel(b), sweepLevel(a)) })
	for len(gone) > 0 {
		n := min(len(gone), s.pace.batch(len(s.rules.known[table].content)))
		if s.pace.sendLimit > 0 {
			n = min(n, max(1, s.pace.sendLimit/bytesPerGone))
		}
		if err := s.restore(s.payload(step{table, nil, slices.Sorted(slices.Values(gone[:n]))}), false); err != nil {
			return err
		}
		gone = gone[n:]
	}
	return nil
}

func sweepLevel(name string) int {
	if level, ok := prefix.Level(name); ok {
		return levelLayout + level
	}
	return int(levelOf(name))
}

// reach finds the Service ports that packets reach, and whether the sync changes that.
type reach struct {
	*stager
	parser  *rule.Parser
	past    *before
	alone   map[destination]tracker.ServicePortName // owner of all future rules for a destination; zero: several
	ports   map[tracker.ServicePortName]*Rendered
	answers map[tracker.ServicePortName]bool
}

func (s *stager) reach() (*reach, error) {
	r := &reach{
		stager: s, parser: rule.NewParser(s.rules.settings.Family), past: newBefore(), alone: map[destination]tracker.ServicePortName{},
		ports: map[tracker.ServicePortName]*Rendered{}, answers: map[tracker.ServicePortName]bool{},
	}
	if len(s.rules.known[NAT].content) == 0 {
		return r, nil // the table has no chain of the proxier
	}
	var err error
	if r.past, err = s.before(NAT); err != nil {
		return nil, err
	}
	for _, rendered := range s.covered {
		name := rendered.port.Name
		r.ports[name] = rendered
		for _, d := range []dispatch{natServices, natNodePorts} {
			for _, l := range rendered.dispatch[d] {
				if owner, taken := r.alone[l.destination]; taken && owner != name {
					name = tracker.ServicePortName{}
				}
				r.alone[l.destination] = name
				name = rendered.port.Name
			}
		}
	}
	return r, nil
}

// reached reports whether packets may reach the chains of a Service port now.
func (r *reach) reached(name tracker.ServicePortName) bool {
	return r.past.leadsTo(name) > 0
}

// steady reports whether the same packets reach a Service port before and after the sync.
func (r *reach) steady(name tracker.ServicePortName) bool {
	same, asked := r.answers[name]
	if !asked {
		same = r.same(name)
		r.answers[name] = same
	}
	return same
}

func (r *reach) same(name tracker.ServicePortName) bool {
	rendered := r.ports[name]
	if rendered == nil {
		return false
	}
	count := 0
	now := newBefore()
	now.addRendered(r.parser, NAT, rendered)
	for to, lines := range now.lines {
		count += len(lines)
		if r.alone[to] != name || !slices.EqualFunc(lines, r.past.lines[to], func(a, b beforeLine) bool { return a.rule.Equal(&b.rule) }) {
			return false
		}
	}
	return count == r.past.leadsTo(name)
}
