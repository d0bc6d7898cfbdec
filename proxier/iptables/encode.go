package iptables

import (
	"slices"
	"strings"

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
	port       tracker.ServicePortName
}

// Encode writes the payload that brings the kernel from what is installed to what is wanted. ports is the whole plan,
// in order. Same state, same bytes. Nothing of the Ruleset changes until Commit.
func (r *Ruleset) Encode(ports []*plan.ServicePort, scope Scope) *Payload {
	large := scope.Endpoints > LargeCluster
	p := &Payload{Written: map[Table]Count{}}
	effective := r.effectiveAll(ports)
	r.encodeFilter(p, effective)
	r.encodeNAT(p, effective, scope, large)
	p.commit = func() { r.commit(effective, scope, large) }
	return p
}

// Commit makes a payload that the kernel took the installed state.
func (r *Ruleset) Commit(p *Payload) { p.commit() }

func (r *Ruleset) commit(effective []*Rendered, scope Scope, large bool) {
	r.large = large
	if scope.Full {
		r.installed = make(map[tracker.ServicePortName]*Rendered, len(effective))
		for _, rendered := range effective {
			r.installed[rendered.port.Name] = rendered
		}
		clear(r.dirty)
		return
	}
	for name := range r.dirty {
		if rendered := r.effective(name); rendered != nil {
			r.installed[name] = rendered
		} else {
			delete(r.installed, name)
		}
	}
	clear(r.dirty)
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

// Total is what the Ruleset would leave in each table, base chains included.
func (r *Ruleset) Total(ports []*plan.ServicePort) map[Table]Count {
	s := &r.settings
	filter := Count{Chains: len(s.sharedFilterChains()), Rules: s.filterFixed().count}
	nat := Count{Chains: len(natChains), Rules: s.natFixed().count + s.natTail().count}
	for _, rendered := range r.effectiveAll(ports) {
		for d, l := range rendered.dispatch {
			if dispatch(d) <= natNodePorts {
				nat.Rules += l.count
			} else {
				filter.Rules += l.count
			}
		}
		nat.Chains += len(rendered.chains)
		for _, c := range rendered.chains {
			nat.Rules += c.rules
		}
	}
	return map[Table]Count{Filter: filter, NAT: nat}
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

// dispatchLines writes the lines of all Service ports in one dispatch chain.
func dispatchLines(p *Payload, table Table, effective []*Rendered, d dispatch) {
	size, rules := 0, 0
	for _, rendered := range effective {
		size += len(rendered.dispatch[d].text)
	}
	if size == 0 {
		return
	}
	buf := make([]byte, 0, size)
	first := p.lines
	for _, rendered := range effective {
		l := &rendered.dispatch[d]
		if l.count == 0 {
			continue
		}
		p.spans = append(p.spans, span{first: first + rules + 1, owner: Owner{Table: table, Port: rendered.port.Name}})
		buf = append(buf, l.text...)
		rules += l.count
	}
	p.add(buf, rules)
	p.count(table, 0, rules)
	p.own(Owner{Table: table})
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

func (r *Ruleset) encodeFilter(p *Payload, effective []*Rendered) {
	begin(p, Filter)
	declare(p, Filter, r.settings.sharedFilterChains())
	dispatchLines(p, Filter, effective, filterServices)
	dispatchLines(p, Filter, effective, filterExternal)
	dispatchLines(p, Filter, effective, filterNodePorts)
	dispatchLines(p, Filter, effective, filterFirewall)
	fixedLines(p, Filter, r.settings.filterFixed())
	end(p, Filter)
}

func (r *Ruleset) encodeNAT(p *Payload, effective []*Rendered, scope Scope, large bool) {
	buf, texts := r.chainTexts(effective, scope, large)
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
	dispatchLines(p, NAT, effective, natServices)
	fixedLines(p, NAT, r.settings.natTail())
	dispatchLines(p, NAT, effective, natNodePorts)
	for _, t := range texts {
		p.own(Owner{Table: NAT, Port: t.port})
		p.add(buf[t.start:t.end], t.rules)
		p.count(NAT, 0, t.rules)
	}
	for _, chain := range stale {
		if !r.stuck[chain] {
			p.own(Owner{Table: NAT, Deletes: chain})
			p.add([]byte("-X "+chain+"\n"), 1)
			p.Deleted++
		}
	}
	end(p, NAT)
}

// chainTexts renders the chains in scope, sorted by name: iptables-restore finds its place in sorted input far faster.
func (r *Ruleset) chainTexts(effective []*Rendered, scope Scope, large bool) ([]byte, []text) {
	if !scope.Full {
		effective = effective[:0:0]
		for name := range r.dirty {
			if rendered := r.effective(name); rendered != nil {
				effective = append(effective, rendered)
			}
		}
	}
	chains := 0
	for _, rendered := range effective {
		chains += len(rendered.chains)
	}
	const bytesPerChain = 320 // measured: an endpoint chain with comments has about 300
	buf := make([]byte, 0, chains*bytesPerChain)
	texts := make([]text, 0, chains)
	for _, rendered := range effective {
		n := namesOf(rendered.port)
		r.settings.writeChains(&n, large, func(chain string, l *lines) {
			start := len(buf)
			buf = append(buf, l.text...)
			texts = append(texts, text{chain: chain, start: start, end: len(buf), rules: l.count, port: rendered.port.Name})
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
