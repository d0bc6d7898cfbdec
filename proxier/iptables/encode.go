package iptables

import (
	"slices"
	"strings"
	"sync"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Scope is what a payload covers.
type Scope struct {
	// Full writes every chain. Otherwise only those of Service ports that are dirty.
	Full bool
	// Existing are the Service chains that the kernel holds, for a full payload to delete what is not wanted.
	Existing []string
	// Endpoints known to the cluster, which decides on comments.
	Endpoints int
}

// text is one chain's rules, somewhere in an encoder's buffer.
type text struct {
	chain      string
	start, end int
	rules      int
	port       *plan.ServicePort
}

// Encode writes the payload that brings the kernel from what is installed to what is wanted. ports is the whole plan,
// in order. Same state, same bytes. Nothing of the Ruleset changes until Commit.
func (r *Ruleset) Encode(ports []*plan.ServicePort, scope Scope) *Payload {
	large := scope.Endpoints > LargeCluster
	p := &Payload{Written: map[Table]Count{}}
	all := sync.OnceValue(func() []*Rendered { return r.effectiveAll(ports) })
	r.rebuild(all)
	covered := r.dirtyRules()
	if scope.Full {
		covered = all()
	}
	r.encodeFilter(p)
	r.encodeNAT(p, covered, scope, large)
	p.commit = func() { r.commit(covered, scope, large) }
	return p
}

// Commit makes a payload that the kernel took the installed state.
func (r *Ruleset) Commit(p *Payload) { p.commit() }

// commit touches what is installed of Service ports, but not what is effective of any: that of a refused one is what was
// installed already.
func (r *Ruleset) commit(covered []*Rendered, scope Scope, large bool) {
	r.large = large
	if scope.Full {
		r.installed = make(map[tracker.ServicePortName]*Rendered, len(covered))
	} else {
		for name := range r.dirty {
			delete(r.installed, name)
		}
	}
	for _, rendered := range covered {
		r.installed[rendered.port.Name] = rendered
	}
	clear(r.dirty)
}

// dirtyRules are those that a partial payload writes, in any order.
func (r *Ruleset) dirtyRules() []*Rendered {
	var covered []*Rendered
	for name := range r.dirty {
		if rendered := r.effective(name); rendered != nil {
			covered = append(covered, rendered)
		}
	}
	return covered
}

func (r *Ruleset) effectiveAll(ports []*plan.ServicePort) []*Rendered {
	effective := make([]*Rendered, 0, len(ports))
	for _, port := range ports {
		if rendered := r.effective(port.Name); rendered != nil {
			effective = append(effective, rendered)
		}
	}
	return effective
}

// declare writes chain lines: each makes the chain, or empties it.
func declare(p *Payload, table Table, chains []string) {
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
	p.count(table, len(chains), 0)
}

// block holds the lines of all Service ports in one dispatch chain. It is never changed after it was made.
type block struct {
	lines
	ports []linePort
}

func newBlock(effective []*Rendered, d dispatch) *block {
	size, ports := 0, 0
	for _, rendered := range effective {
		if l := &rendered.dispatch[d]; l.count > 0 {
			size += len(l.text)
			ports++
		}
	}
	b := &block{lines: lines{text: make([]byte, 0, size)}, ports: make([]linePort, 0, ports)}
	for _, rendered := range effective {
		if l := &rendered.dispatch[d]; l.count > 0 {
			b.ports = append(b.ports, linePort{b.count, rendered.port})
			b.text = append(b.text, l.text...)
			b.count += l.count
		}
	}
	return b
}

// rebuild puts the blocks together that a change has touched.
func (r *Ruleset) rebuild(effective func() []*Rendered) {
	for d := range dispatches {
		if r.blocks[d] == nil {
			r.blocks[d] = newBlock(effective(), d)
		}
	}
}

// dispatchLines writes the lines of all Service ports in one dispatch chain.
func (r *Ruleset) dispatchLines(p *Payload, d dispatch) {
	b := r.blocks[d]
	if b.count == 0 {
		return
	}
	p.share(d.table(), b.ports)
	p.add(b.text, b.count)
	p.count(d.table(), 0, b.count)
}

func fixedLines(p *Payload, table Table, l lines) {
	p.own(Owner{Table: table})
	p.add(l.text, l.count)
	p.count(table, 0, l.count)
}

func begin(p *Payload, table Table) {
	p.own(Owner{Table: table})
	p.add([]byte("*"+string(table)+"\n"), 1)
}

func end(p *Payload, table Table) {
	p.own(Owner{Table: table, Commit: true})
	p.add([]byte("COMMIT\n"), 1)
}

func (r *Ruleset) encodeFilter(p *Payload) {
	begin(p, Filter)
	declare(p, Filter, r.settings.sharedFilterChains())
	r.dispatchLines(p, filterServices)
	r.dispatchLines(p, filterExternal)
	r.dispatchLines(p, filterNodePorts)
	r.dispatchLines(p, filterFirewall)
	fixedLines(p, Filter, r.settings.filterFixed())
	end(p, Filter)
}

func (r *Ruleset) encodeNAT(p *Payload, covered []*Rendered, scope Scope, large bool) {
	buf, texts := r.chainTexts(covered, large)
	stale := r.staleChains(texts, scope)
	begin(p, NAT)
	declare(p, NAT, natChains)
	chains := make([]string, 0, len(texts)+len(stale))
	for _, t := range texts {
		chains = append(chains, t.chain)
	}
	declare(p, NAT, chains)
	declare(p, NAT, stale) // emptied first: chains that refer to one another can then go in any order
	p.count(NAT, -len(stale), 0)
	fixedLines(p, NAT, r.settings.natFixed())
	r.dispatchLines(p, natServices)
	fixedLines(p, NAT, r.settings.natTail())
	r.dispatchLines(p, natNodePorts)
	chainLines(p, buf, texts)
	for _, chain := range stale {
		if !r.stuck[chain] {
			p.own(Owner{Table: NAT, Deletes: chain})
			p.add([]byte("-X "+chain+"\n"), 1)
			p.Deleted++
		}
	}
	end(p, NAT)
}

// chainLines writes the rules of chains.
func chainLines(p *Payload, buf []byte, texts []text) {
	ports, rules := make([]linePort, 0, len(texts)), 0
	for _, t := range texts {
		if t.rules > 0 {
			ports = append(ports, linePort{rules, t.port})
			rules += t.rules
		}
	}
	if rules == 0 {
		return
	}
	p.share(NAT, ports)
	p.count(NAT, 0, rules)
	p.segments = slices.Grow(p.segments, len(texts))
	for _, t := range texts {
		p.add(buf[t.start:t.end], t.rules)
	}
}

// chainTexts renders the chains of some Service ports, sorted by name: iptables-restore finds its place in sorted input
// far faster.
func (r *Ruleset) chainTexts(covered []*Rendered, large bool) ([]byte, []text) {
	chains := 0
	for _, rendered := range covered {
		chains += len(rendered.chains)
	}
	const bytesPerChain = 320 // measured: an endpoint chain with comments has about 300
	buf := make([]byte, 0, chains*bytesPerChain)
	texts := make([]text, 0, chains)
	for _, rendered := range covered {
		n := rendered.names()
		r.settings.writeChains(&n, large, func(chain string, l *lines) {
			start := len(buf)
			buf = append(buf, l.text...)
			texts = append(texts, text{chain: chain, start: start, end: len(buf), rules: l.count, port: rendered.port})
		})
	}
	slices.SortFunc(texts, func(a, b text) int { return strings.Compare(a.chain, b.chain) })
	return buf, texts
}

// staleChains are those to delete, sorted.
func (r *Ruleset) staleChains(texts []text, scope Scope) []string {
	var stale []string
	written := func(chain string) bool {
		_, found := slices.BinarySearchFunc(texts, chain, func(t text, c string) int { return strings.Compare(t.chain, c) })
		return found
	}
	add := func(chain string) {
		if !written(chain) {
			stale = append(stale, chain)
		}
	}
	for _, chain := range scope.Existing {
		add(chain)
	}
	if !scope.Full {
		for name := range r.dirty {
			if old := r.installed[name]; old != nil {
				for _, c := range old.chains {
					add(c.name)
				}
			}
		}
	}
	slices.Sort(stale)
	return slices.Compact(stale)
}
