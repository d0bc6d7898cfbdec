package iptables

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// chainText is the desired text of one chain.
type chainText struct {
	name  string
	text  []byte
	hash  uint64
	rules int32
	level int32             // chains jump only to chains of a lower level, or to fixed ones
	port  *plan.ServicePort // the owner; nil: a shared chain
	lines *block            // of a layout's chain: its dispatch rules, which come first in text
}

// difference is what a sync has to write and delete so that the kernel has the desired rules.
type difference struct {
	rules  *Ruleset
	tables Tables
	// write are the chains whose text differs, or may differ, from the installed one; gone those to delete. Both are
	// sorted.
	write map[Table][]chainText
	gone  map[Table][]string
	// covered are the rules of the dirty Service ports, which settle makes the installed ones; ordered those of all.
	covered []*Rendered
	ordered func() []*Rendered
	large   bool
	past    map[Table]*before
}

// Levels of the chains of a Service port. Chains that translate (DNAT) jump only to fixed chains.
const (
	levelEndpoint = iota
	levelPolicy   // SVC, SVL
	levelExternal
	levelFirewall
	levelLayout // plus the level within the layout
)

func levelOf(name string) int32 {
	switch {
	case strings.HasPrefix(name, prefixEndpoint):
		return levelEndpoint
	case strings.HasPrefix(name, prefixExternal):
		return levelExternal
	case strings.HasPrefix(name, prefixFirewall):
		return levelFirewall
	}
	return levelPolicy
}

// level returns the level of a Service port's chain. Where endpoints have no chains, the chains of policies translate.
func (n *names) level(chain string) int32 {
	if level := levelOf(chain); level != levelPolicy || n.usesEndpoints {
		return level
	}
	return levelEndpoint
}

// difference computes the difference. ports is the whole plan, in order. The number of endpoints in the cluster decides
// on comments. The same state gives the same texts.
func (r *Ruleset) difference(ports []*plan.ServicePort, endpoints int) *difference {
	d := &difference{
		rules: r, write: map[Table][]chainText{}, gone: map[Table][]string{}, large: endpoints > backend.LargeCluster,
		ordered: sync.OnceValue(func() []*Rendered { return r.effectiveAll(ports) }), past: map[Table]*before{},
	}
	// All these chains are to be deleted, unless they turn out to be desired.
	gone := map[Table]map[string]bool{NAT: {}, Filter: {}}
	for table, k := range r.known {
		for name := range k.unsettled {
			if ownChain(name) {
				gone[table][name] = true
			}
		}
	}
	for name := range r.dirty {
		if rendered := r.effective(name); rendered != nil {
			d.covered = append(d.covered, rendered)
		}
		if old := r.installed[name]; old != nil {
			for _, c := range old.chains {
				if _, there := r.known[NAT].content[c.name]; there {
					gone[NAT][c.name] = true
				}
			}
		}
	}
	d.portChains(gone[NAT])
	d.sharedChains(gone)
	for table, names := range gone {
		for name := range names {
			d.gone[table] = append(d.gone[table], name)
		}
		slices.Sort(d.gone[table])
	}
	return d
}

// sortTexts sorts by name: iptables-restore finds its place in sorted input far faster.
func sortTexts(texts []chainText) {
	slices.SortFunc(texts, func(a, b chainText) int { return strings.Compare(a.name, b.name) })
}

// before returns the dispatch of a table when the sync began.
func (d *difference) before(table Table) (*before, error) {
	if d.past[table] != nil {
		return d.past[table], nil
	}
	past := d.rules.installedBefore(table)
	switch d.rules.known[table].staleness {
	case void:
		past = newBefore()
	case unread:
		var err error
		if past, err = readTable(d.tables, table); err != nil {
			return nil, err
		}
	}
	d.past[table] = past
	return past, nil
}

// manyChains is the number of chains from which rendering is worth a second processor.
const manyChains = 2000

// portChains renders the chains of the covered Service ports that differ from the installed ones, sorted by name.
func (d *difference) portChains(gone map[string]bool) {
	chains := 0
	for _, rendered := range d.covered {
		chains += len(rendered.chains)
		if len(gone) > 0 {
			for _, c := range rendered.chains {
				delete(gone, c.name)
			}
		}
	}
	if chains < manyChains {
		d.write[NAT] = d.render(d.covered)
		return
	}
	var halves [2][]chainText
	var done sync.WaitGroup
	middle := len(d.covered) / 2
	done.Go(func() { halves[0] = d.render(d.covered[:middle]) })
	done.Go(func() { halves[1] = d.render(d.covered[middle:]) })
	done.Wait()
	d.write[NAT] = mergeTexts(halves[0], halves[1])
}

// render returns the chains of some Service ports that differ from the installed ones, sorted by name. It changes
// nothing.
func (d *difference) render(covered []*Rendered) []chainText {
	chains := 0
	for _, rendered := range covered {
		chains += len(rendered.chains)
	}
	// Texts are in blocks that do not grow, because any text keeps its whole block in memory. The chain of an endpoint
	// with comments has about 300 bytes.
	const bytesPerChain, mostBytes = 320, 1 << 20
	block := min(chains*bytesPerChain, mostBytes)
	buf := make([]byte, 0, block)
	known := d.rules.known[NAT]
	texts := make([]chainText, 0, chains)
	for _, rendered := range covered {
		n := d.rules.settings.names(rendered)
		d.rules.settings.writeChains(&n, d.large, func(chain string, l *lines) {
			hash := hashText(l.text)
			if known.is(chain, hash) {
				return
			}
			if len(buf)+len(l.text) > cap(buf) {
				buf = make([]byte, 0, max(block, len(l.text)))
			}
			start := len(buf)
			buf = append(buf, l.text...)
			texts = append(texts, chainText{
				name: chain, text: buf[start:len(buf):len(buf)], hash: hash, rules: int32(l.count), level: n.level(chain), port: rendered.port,
			})
		})
	}
	sortTexts(texts)
	return texts
}

func mergeTexts(a, b []chainText) []chainText {
	if len(a) == 0 {
		return b
	}
	merged := make([]chainText, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if strings.Compare(a[0].name, b[0].name) <= 0 {
			merged, a = append(merged, a[0]), a[1:]
		} else {
			merged, b = append(merged, b[0]), b[1:]
		}
	}
	return append(append(merged, a...), b...)
}

// sharedChains renders the fixed chains and the layout's chains that may have changed.
func (d *difference) sharedChains(gone map[Table]map[string]bool) {
	r := d.rules
	shared := map[Table][]chainText{}
	add := func(c chain, t chainText) {
		delete(gone[c.table], c.name)
		if !r.known[c.table].is(c.name, t.hash) {
			shared[c.table] = append(shared[c.table], t)
		}
	}
	for c, l := range r.settings.fixedChains() {
		add(c, d.sharedText(c, l, nil, levelEndpoint))
	}
	touched := r.layout.touched()
	if r.staleness() > current {
		touched = append(touched, r.layout.chains()...)
	}
	seen := make(map[chain]bool, len(touched))
	for _, c := range touched {
		if seen[c] {
			continue
		}
		seen[c] = true
		if b, wanted := r.layout.lines(c, d.ordered); wanted {
			add(c, d.sharedText(c, b.lines, &b, levelLayout+r.layout.level(c)))
		} else if _, there := r.known[c.table].content[c.name]; there {
			gone[c.table][c.name] = true
		}
	}
	for table, texts := range shared {
		sortTexts(texts)
		d.write[table] = mergeTexts(d.write[table], texts)
	}
}

func (d *difference) sharedText(c chain, l lines, of *block, level int) chainText {
	l = d.rules.finished(c, l)
	return chainText{name: c.name, text: l.text, hash: hashText(l.text), rules: int32(l.count), level: int32(level), lines: of}
}

// finished adds the rules that must come last in a layout's chain.
func (r *Ruleset) finished(c chain, l lines) lines {
	if c != dispatchChains[natServices] {
		return l
	}
	tail := r.settings.natTail()
	return lines{slices.Concat(l.text, tail.text), l.count + tail.count}
}

// step is a part of a difference, in one table.
type step struct {
	table Table
	write []chainText
	gone  []string
}

// payload writes each step as a separate section, which the kernel commits at once.
func (d *difference) payload(steps ...step) *Payload {
	p := &Payload{Written: map[Table]Count{}, steps: steps}
	for _, s := range steps {
		d.section(p, s)
	}
	return p
}

func (d *difference) section(p *Payload, s step) {
	p.own(Owner{Table: s.table})
	p.add([]byte("*"+string(s.table)+"\n"), 1)
	names := make([]string, 0, len(s.write)+len(s.gone))
	for i := range s.write {
		names = append(names, s.write[i].name)
	}
	names = append(names, s.gone...)
	declare(p, names) // chains to delete are emptied first, so that any order works
	p.count(s.table, len(s.write), 0)
	p.spans = slices.Grow(p.spans, len(s.write)+len(s.gone)+1)
	p.segments = slices.Grow(p.segments, len(s.write)+len(s.gone)+1)
	for i := range s.write {
		t := &s.write[i]
		switch {
		case t.port != nil:
			p.own(Owner{Table: s.table, Port: t.port.Name})
		case t.lines != nil:
			p.share(s.table, t.lines.ports, t.lines.count)
		default:
			p.own(Owner{Table: s.table})
		}
		p.add(t.text, int(t.rules))
		p.count(s.table, 0, int(t.rules))
	}
	known := d.rules.known[s.table]
	for _, name := range s.gone {
		if !known.stuck[name] {
			p.own(Owner{Table: s.table, Deletes: name})
			p.add([]byte("-X "+name+"\n"), 1)
			p.Deleted++
		}
	}
	p.commits++
	p.own(Owner{Table: s.table, Commit: true})
	p.add([]byte("COMMIT\n"), 1)
	p.ends = append(p.ends, p.lines)
}

// declare writes chain lines: each creates a chain, or empties an existing one.
func declare(p *Payload, chains []string) {
	size := 0
	for _, c := range chains {
		size += len(c) + len(": - [0:0]\n")
	}
	buf := make([]byte, 0, size)
	for _, c := range chains {
		buf = append(buf, ':')
		buf = append(buf, c...)
		buf = append(buf, " - [0:0]\n"...)
	}
	p.add(buf, len(chains))
}

// took records a payload that the kernel accepted. live: packets reach the chains in it.
func (d *difference) took(p *Payload, live bool) {
	for _, s := range p.steps {
		d.tookStep(s, live, p.last)
	}
}

func (d *difference) tookStep(s step, live, last bool) {
	k := d.rules.known[s.table]
	if len(k.content) < len(s.write)/2 { // most are new: allocate room for all of them at once
		grown := make(map[string]content, len(k.content)+len(s.write))
		maps.Copy(grown, k.content)
		k.content = grown
	}
	written, round := d.rules.written[s.table], d.rules.round
	count := func(change Count) {
		written.Chains += change.Chains
		written.Rules += change.Rules
	}
	for i := range s.write {
		t := &s.write[i]
		count(k.wrote(t, round))
		if !last {
			k.unsettled[t.name] = live
		}
	}
	for _, name := range s.gone {
		count(k.deleted(name, round))
	}
	d.rules.written[s.table] = written
}

// failed records a payload that failed. If a line was refused, the tables before that line's table were committed, and
// nothing after. Otherwise it is unknown which tables were committed.
func (d *difference) failed(p *Payload, live bool, err error) {
	d.rules.raise(behind)
	if live {
		d.rules.raise(unread)
	}
	if refused := refusal(err); refused != nil {
		for i, s := range p.steps {
			if p.ends[i] < refused.Line {
				d.tookStep(s, live, false)
			}
		}
		return
	}
	for _, s := range p.steps {
		k := d.rules.known[s.table]
		for i := range s.write {
			k.doubt(s.write[i].name, live)
		}
		for _, name := range s.gone {
			k.doubt(name, live)
		}
	}
	if live {
		for _, k := range d.rules.known {
			for name := range k.unsettled {
				k.unsettled[name] = true // the chains that may have been written may jump there
			}
		}
	}
}

// keep records the Service ports whose new rules of nat were accepted although a later part was refused. These rules
// stay: the old ones would send packets to removed endpoints again.
func (d *difference) keep() {
	r, k := d.rules, d.rules.known[NAT]
	dispatched, waiting := true, map[tracker.ServicePortName]bool{}
	for i := range d.write[NAT] {
		switch t := &d.write[NAT][i]; {
		case k.is(t.name, t.hash):
		case t.port == nil:
			dispatched = false
		default:
			waiting[t.port.Name] = true
		}
	}
	for _, now := range d.covered {
		name, old := now.port.Name, r.installed[now.port.Name]
		if now == old || waiting[name] || !dispatched && !equalDispatch(NAT, now, old) {
			continue
		}
		if old != nil {
			for _, c := range old.chains {
				if _, there := k.content[c.name]; there {
					k.unsettled[c.name] = true
				}
			}
		}
		r.change(name, func() { r.installed[name] = now.over(old) })
	}
}

// settle makes the desired state the installed one. left are chains that still have to be deleted; nothing jumps to
// them.
func (d *difference) settle(left map[Table][]string) {
	r := d.rules
	r.large = d.large
	for name := range r.dirty {
		delete(r.installed, name)
	}
	for _, rendered := range d.covered {
		r.installed[rendered.port.Name] = rendered
	}
	clear(r.dirty)
	r.layout.settle()
	d.allCurrent()
	for table, k := range r.known {
		clear(k.unsettled)
		for _, name := range left[table] {
			k.unsettled[name] = false
		}
	}
	if len(left[NAT])+len(left[Filter]) > 0 {
		r.raise(behind)
	}
}

// allCurrent records that both tables have the installed rules, and no chain that has to be deleted.
func (d *difference) allCurrent() {
	for _, k := range d.rules.known {
		k.staleness = current
	}
}
