package iptables

import (
	"fmt"
	"slices"
	"strings"

	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/tracker"
)

// before is the dispatch of a table when the sync began.
type before struct {
	// lines are the dispatch rules of each destination, in order.
	lines map[destination][]beforeLine
	// targets counts the rules that jump to each chain.
	targets map[string]int
	// hairpin, of filter: KUBE-FORWARD accepts hairpin packets without a mark, so Services may have flat chains.
	hairpin bool
}

// beforeLine is a dispatch rule of before.
type beforeLine struct {
	dispatch dispatch
	rule     rule.Rule
}

func newBefore() *before {
	return &before{lines: map[destination][]beforeLine{}, targets: map[string]int{}}
}

func (b *before) add(to destination, l beforeLine) {
	b.lines[to] = append(b.lines[to], l)
	b.targets[l.rule.Target.Chain]++
}

// has reports whether a dispatch rule was in the table.
func (b *before) has(to destination, l beforeLine) bool {
	return slices.ContainsFunc(b.lines[to], func(o beforeLine) bool { return o.dispatch == l.dispatch && o.rule.Equal(&l.rule) })
}

// parsed returns a dispatch rule as the kernel has it.
func parsed(p *rule.Parser, d dispatch, l dispatchLine) beforeLine {
	_, r := parseRule(p, "-A "+dispatchChains[d].name+string(l.text))
	return beforeLine{d, r}
}

// parseRule parses a rule of the proxier or of iptables-save. A rule that package rule cannot parse is foreign: its
// text is in Words, so it equals no rule of the proxier. Its target counts as a chain that it refers to.
func parseRule(p *rule.Parser, text string) (chain string, r rule.Rule) {
	chain, r, err := p.Parse(text)
	if err == nil {
		return chain, r
	}
	chain, r.Words, _ = strings.Cut(strings.TrimPrefix(text, "-A "), " ")
	for _, option := range []string{"-j ", "-g "} {
		if at := strings.LastIndex(r.Words, option); at >= 0 {
			r.Target = rule.Target{Kind: rule.TargetJump, Goto: option == "-g "}
			r.Target.Chain, _, _ = strings.Cut(r.Words[at+len(option):], " ")
		}
	}
	return chain, r
}

// installedBefore returns the installed dispatch rules of the dirty Service ports.
func (r *Ruleset) installedBefore(table Table) *before {
	b, parser := newBefore(), rule.NewParser(r.settings.Family)
	for name := range r.dirty {
		b.addRendered(parser, table, r.installed[name])
	}
	return b
}

func (b *before) addRendered(p *rule.Parser, table Table, rendered *Rendered) {
	for d := range dispatches {
		if d.table() != table {
			continue
		}
		for _, l := range rendered.dispatched(d) {
			b.add(l.destination, parsed(p, d, l))
		}
	}
}

// readBefore finds the dispatch of a table in its rules. It skips layout chains without a jump to them: an unfinished
// sync left those.
func readBefore(table Table, rules map[string][]rule.Rule) *before {
	b := newBefore()
	b.hairpin = table == Filter && slices.ContainsFunc(rules[chainForward], func(r rule.Rule) bool {
		return slices.ContainsFunc(r.Matches, func(m rule.Match) bool { return m.Kind == rule.MatchProgram })
	})
	seen := map[string]bool{}
	var read func(d dispatch, name string)
	read = func(d dispatch, name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, r := range rules[name] {
			if isLayoutChain(r.Target.Chain) {
				read(d, r.Target.Chain)
			} else if to, captures := destinationOf(&r); captures {
				b.add(to, beforeLine{d, r})
			}
		}
	}
	for d, c := range dispatchChains {
		if c.table == table {
			read(dispatch(d), c.name)
		}
	}
	return b
}

// found returns the Service ports whose desired rules are all in the tables.
func (r *Ruleset) found(tables Tables, req backend.Request) (map[tracker.ServicePortName]bool, error) {
	past, chains := map[Table]*before{}, map[string][]rule.Rule{}
	for _, table := range []Table{Filter, NAT} {
		rules, err := tables.Rules(table)
		if err != nil {
			return nil, fmt.Errorf("reading the installed rules: %w", err)
		}
		past[table], chains = readBefore(table, rules), rules
	}
	found, parser := map[tracker.ServicePortName]bool{}, rule.NewParser(r.settings.Family)
	for _, port := range req.Ports {
		if wanted := r.wanted[port.Name]; wanted != nil {
			found[port.Name] = leadsAs(parser, wanted, past) && r.translatesAs(parser, wanted, chains, req.Endpoints > backend.LargeCluster)
		}
	}
	return found, nil
}

// leadsAs reports whether the tables contain every dispatch rule of a Service port.
func leadsAs(p *rule.Parser, wanted *Rendered, past map[Table]*before) bool {
	for d := range dispatches {
		for _, l := range wanted.dispatch[d] {
			if !past[d.table()].has(l.destination, parsed(p, d, l)) {
				return false
			}
		}
	}
	return true
}

// translatesAs reports whether the chains of nat for a Service port contain the desired rules.
func (r *Ruleset) translatesAs(p *rule.Parser, wanted *Rendered, chains map[string][]rule.Rule, large bool) bool {
	same := true
	n := r.settings.names(wanted)
	r.settings.writeChains(&n, large, func(chain string, l *lines) {
		rules := chains[chain]
		for line := range strings.Lines(string(l.text)) {
			if !same {
				return
			}
			_, want := parseRule(p, line)
			same = len(rules) > 0 && rules[0].Equal(&want)
			rules = rules[min(1, len(rules)):]
		}
		same = same && len(rules) == 0
	})
	return same
}

// destinationOf returns the destination that a dispatch rule matches.
func destinationOf(r *rule.Rule) (to destination, ok bool) {
	to = destination{port: r.DstPorts.First, protocol: r.Proto.String()}
	// A wider prefix only narrows a NodePort rule. It is not the destination.
	if r.Dst.IsSingleIP() && !r.Not.Has(rule.NotDst) {
		to.addr = r.Dst.Addr()
	}
	return to, r.Proto != 0 && to.port != 0 && to.port == r.DstPorts.Last && !r.Not.Has(rule.NotProto) && !r.Not.Has(rule.NotDstPorts)
}

// readTable reads the dispatch of a table. It lists the chains first, because after a failed restore it is unknown
// which chains exist.
func readTable(tables Tables, table Table) (*before, error) {
	existing, err := tables.Chains(table)
	if err != nil {
		return nil, fmt.Errorf("reading the installed chains: %w", err)
	}
	var chains []string
	for _, c := range dispatchChains {
		if c.table == table && slices.Contains(existing, c.name) {
			chains = append(chains, c.name)
		}
	}
	services := 0
	for _, name := range existing {
		if isLayoutChain(name) {
			chains = append(chains, name)
		}
		if ownChain(name) {
			services++
		}
	}
	switch {
	case table == Filter:
		chains = nil // read all chains: filter has few others
	case services == 0: // then no rule jumps to a Service
		return newBefore(), nil
	}
	rules, err := tables.Rules(table, chains...)
	if err != nil {
		return nil, fmt.Errorf("reading the installed rules: %w", err)
	}
	return readBefore(table, rules), nil
}

// leadsTo returns how many rules jumped to the chains of a Service port.
func (b *before) leadsTo(name tracker.ServicePortName) int {
	c := ChainsOf(name)
	return b.targets[c.Cluster] + b.targets[c.Local] + b.targets[c.External] + b.targets[c.Firewall]
}
