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

// chainText is one chain as it shall be.
type chainText struct {
	name  string
	text  []byte
	hash  uint64
	rules int32
	level int32             // chains lead only to chains of a lower level, or to fixed ones
	port  *plan.ServicePort // whose it is; nil: a shared chain
	lines *block            // of a layout's chain: its lines, which come first in text
}

// difference is what has to be done to bring the kernel from what it holds to what is wanted.
type difference struct {
	rules  *Ruleset
	tables Tables
	// write are the chains whose text is not, or may not be, as installed, sorted by name; gone those to delete, sorted.
	write map[Table][]chainText
	gone  map[Table][]string
	// covered are the rules of the Service ports that are settled when all is done; ordered those of all.
	covered []*Rendered
	ordered func() []*Rendered
	large   bool
	past    map[Table]*before
}

// Levels of the chains of a Service port: those that translate lead nowhere but to fixed chains.
const (
	levelEndpoint = iota
	levelPolicy   // SVC, SVL
	levelExternal
	levelFirewall
	levelLayout // and what a layout adds to it
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

// level of a chain of a Service port. Where endpoints have no chains, those that lead to them translate.
func (n *names) level(chain string) int32 {
	if level := levelOf(chain); level != levelPolicy || n.usesEndpoints {
		return level
	}
	return levelEndpoint
}

// difference finds it. ports is the whole plan, in order; endpoints known to the cluster decide on comments. Same state,
// same texts.
func (r *Ruleset) difference(ports []*plan.ServicePort, endpoints int) *difference {
	d := &difference{
		rules: r, write: map[Table][]chainText{}, gone: map[Table][]string{}, large: endpoints > backend.LargeCluster,
		ordered: sync.OnceValue(func() []*Rendered { return r.effectiveAll(ports) }), past: map[Table]*before{},
	}
	// Whatever may be there is to go, unless it turns out to be wanted.
	gone := map[Table]map[string]bool{NAT: {}, Filter: {}}
	for table, h := range r.held {
		for name := range h.loose {
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
				if _, there := r.held[NAT].content[c.name]; there {
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

// sortTexts by name: iptables-restore finds its place in sorted input far faster.
func sortTexts(texts []chainText) {
	slices.SortFunc(texts, func(a, b chainText) int { return strings.Compare(a.name, b.name) })
}

// before is what a table's dispatch led to when the sync began.
func (d *difference) before(table Table) (*before, error) {
	if d.past[table] != nil {
		return d.past[table], nil
	}
	past := d.rules.installedBefore(table)
	switch {
	case d.rules.unread && d.rules.void[table]:
		past = newBefore()
	case d.rules.unread:
		var err error
		if past, err = readTable(d.tables, table); err != nil {
			return nil, err
		}
	}
	d.past[table] = past
	return past, nil
}

// manyChains is when rendering is worth a second processor.
const manyChains = 2000

// portChains renders the chains of the covered Service ports that are not as installed, sorted.
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

// render gives the chains of some Service ports that are not as installed, sorted. It changes nothing.
func (d *difference) render(covered []*Rendered) []chainText {
	chains := 0
	for _, rendered := range covered {
		chains += len(rendered.chains)
	}
	// Texts lie in blocks, which do not grow: what a text lies in is kept as long as the text. An endpoint chain with
	// comments has about 300 bytes.
	const bytesPerChain, mostBytes = 320, 1 << 20
	block := min(chains*bytesPerChain, mostBytes)
	buf := make([]byte, 0, block)
	held := d.rules.held[NAT]
	texts := make([]chainText, 0, chains)
	for _, rendered := range covered {
		n := d.rules.settings.names(rendered)
		d.rules.settings.writeChains(&n, d.large, func(chain string, l *lines) {
			hash := hashText(l.text)
			if held.is(chain, hash) {
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

// sharedChains renders the fixed chains, and those of the layout that may have changed.
func (d *difference) sharedChains(gone map[Table]map[string]bool) {
	r := d.rules
	shared := map[Table][]chainText{}
	add := func(c chain, t chainText) {
		delete(gone[c.table], c.name)
		if !r.held[c.table].is(c.name, t.hash) {
			shared[c.table] = append(shared[c.table], t)
		}
	}
	for c, l := range r.settings.fixedChains() {
		add(c, d.sharedText(c, l, nil, levelEndpoint))
	}
	touched := r.layout.touched()
	if r.behind {
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
		} else if _, there := r.held[c.table].content[c.name]; there {
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

// finished adds to the lines of a layout's chain what must stand last in it.
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

// payload writes steps, each a section of its own, which the kernel takes at once.
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
	declare(p, names) // what is to go is emptied first: then it can go in any order
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
	for _, name := range s.gone {
		if !d.rules.stuck[chain{s.table, name}] {
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

// declare writes chain lines: each makes the chain, or empties it.
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

// took takes note of a payload that the kernel took. live: packets reach what it wrote.
func (d *difference) took(p *Payload, live bool) {
	for _, s := range p.steps {
		d.tookStep(s, live, p.last)
	}
}

func (d *difference) tookStep(s step, live, last bool) {
	h := d.rules.held[s.table]
	if len(h.content) < len(s.write)/2 { // most are new: room for all of them at once
		grown := make(map[string]content, len(h.content)+len(s.write))
		maps.Copy(grown, h.content)
		h.content = grown
	}
	written, round := d.rules.written[s.table], d.rules.round
	count := func(change Count) {
		written.Chains += change.Chains
		written.Rules += change.Rules
	}
	for i := range s.write {
		t := &s.write[i]
		count(h.wrote(t, round))
		if !last {
			h.loose[t.name] = live
		}
	}
	for _, name := range s.gone {
		count(h.deleted(name, round))
	}
	d.rules.written[s.table] = written
}

// failed takes note of a payload that failed. If a line was refused, then what stands before that line's table was
// taken, and nothing from there on; else nobody knows which of its tables were.
func (d *difference) failed(p *Payload, live bool, err error) {
	d.rules.behind = true
	d.rules.unread = d.rules.unread || live
	if live {
		d.rules.void = nil
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
		h := d.rules.held[s.table]
		for i := range s.write {
			h.doubt(s.write[i].name, live)
		}
		for _, name := range s.gone {
			h.doubt(name, live)
		}
	}
	if live {
		for _, h := range d.rules.held {
			for name := range h.loose {
				h.loose[name] = true // what it may have written may lead there
			}
		}
	}
}

// keep takes note of the Service ports whose rules of nat are as wanted although something was refused afterwards. They
// stay: to hold a port back would lead packets to endpoints again that were removed.
func (d *difference) keep() {
	r, h := d.rules, d.rules.held[NAT]
	dispatched, waiting := true, map[tracker.ServicePortName]bool{}
	for i := range d.write[NAT] {
		switch t := &d.write[NAT][i]; {
		case h.is(t.name, t.hash):
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
				if _, there := h.content[c.name]; there {
					h.loose[c.name] = true
				}
			}
		}
		r.change(name, func() { r.installed[name] = now.over(old) })
	}
}

// settle makes what was wanted the installed state, when all of it was taken but the deletion of some chains, to which
// nothing leads any more.
func (d *difference) settle(left map[Table][]string) {
	r := d.rules
	r.large, r.behind, r.unread, r.void = d.large, false, false, nil
	for name := range r.dirty {
		delete(r.installed, name)
	}
	for _, rendered := range d.covered {
		r.installed[rendered.port.Name] = rendered
	}
	clear(r.dirty)
	r.layout.settle()
	for table, h := range r.held {
		clear(h.loose)
		for _, name := range left[table] {
			h.loose[name] = false
			r.behind = true
		}
	}
}

// swept says that the chains that settle left are gone as well.
func (d *difference) swept() { d.rules.behind = false }
