package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/backend"
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

type beforeLine struct {
	dispatch dispatch
	text     string // canonical, without "-A" and the chain's name
	target   string
}

func newBefore() *before {
	return &before{lines: map[destination][]beforeLine{}, targets: map[string]int{}}
}

func (b *before) add(to destination, l beforeLine) {
	b.lines[to] = append(b.lines[to], l)
	b.targets[l.target]++
}

// canonicalLine returns a dispatch rule as iptables prints it, without "-A" and the chain's name.
func (s *settings) canonicalLine(text []byte) string {
	return strings.TrimPrefix(Canonical("-A X"+strings.TrimSuffix(string(text), "\n"), s.Family), "-A X")
}

// installedBefore returns the installed dispatch rules of the dirty Service ports.
func (r *Ruleset) installedBefore(table Table) *before {
	b := newBefore()
	for name := range r.dirty {
		b.addRendered(&r.settings, table, r.installed[name])
	}
	return b
}

func (b *before) addRendered(s *settings, table Table, rendered *Rendered) {
	for d := range dispatches {
		if d.table() != table {
			continue
		}
		for _, l := range rendered.dispatched(d) {
			text := s.canonicalLine(l.text)
			b.add(l.destination, beforeLine{d, text, jumpTarget(text)})
		}
	}
}

// readBefore finds the dispatch of a table in rules as iptables prints them. It skips layout chains without a jump to
// them: an unfinished sync left those.
func readBefore(table Table, rules []string) *before {
	byChain := map[string][]string{}
	for _, rule := range rules {
		if words := strings.Fields(rule); len(words) > 1 && words[0] == "-A" {
			byChain[words[1]] = append(byChain[words[1]], rule)
		}
	}
	b := newBefore()
	b.hairpin = table == Filter && slices.ContainsFunc(byChain[chainForward], func(rule string) bool { return strings.Contains(rule, " -m bpf ") })
	var read func(d dispatch, name string)
	read = func(d dispatch, name string) {
		rules := byChain[name]
		delete(byChain, name)
		for _, rule := range rules {
			target := jumpTarget(rule)
			if isLayoutChain(target) {
				read(d, target)
				continue
			}
			words, err := splitWords(rule)
			if err != nil {
				continue
			}
			if to, captures := destinationOf(words[2:]); captures {
				b.add(to, beforeLine{d, strings.TrimPrefix(rule, "-A "+name), target})
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
	past, chains := map[Table]*before{}, map[string][]string{}
	for _, table := range []Table{NAT, Filter} {
		rules, err := tables.Rules(table)
		if err != nil {
			return nil, fmt.Errorf("reading the installed rules: %w", err)
		}
		past[table] = readBefore(table, rules)
		for _, rule := range rules {
			if words := strings.SplitN(rule, " ", 3); table == NAT && len(words) == 3 && words[0] == "-A" {
				chains[words[1]] = append(chains[words[1]], rule)
			}
		}
	}
	found := map[tracker.ServicePortName]bool{}
	for _, port := range req.Ports {
		if wanted := r.wanted[port.Name]; wanted != nil {
			found[port.Name] = r.leadsAs(wanted, past) && r.translatesAs(wanted, chains, req.Endpoints > backend.LargeCluster)
		}
	}
	return found, nil
}

// leadsAs reports whether the tables contain every dispatch rule of a Service port.
func (r *Ruleset) leadsAs(wanted *Rendered, past map[Table]*before) bool {
	for d := range dispatches {
		for _, l := range wanted.dispatch[d] {
			text := r.settings.canonicalLine(l.text)
			if !slices.Contains(past[d.table()].lines[l.destination], beforeLine{d, text, jumpTarget(text)}) {
				return false
			}
		}
	}
	return true
}

// translatesAs reports whether the chains of a Service port contain the desired rules.
func (r *Ruleset) translatesAs(wanted *Rendered, chains map[string][]string, large bool) bool {
	same := true
	n := r.settings.names(wanted)
	r.settings.writeChains(&n, large, func(chain string, l *lines) {
		rules := chains[chain]
		for line := range strings.Lines(string(l.text)) {
			if !same {
				return
			}
			same = len(rules) > 0 && rules[0] == Canonical(strings.TrimSuffix(line, "\n"), r.settings.Family)
			rules = rules[min(1, len(rules)):]
		}
		same = same && len(rules) == 0
	})
	return same
}

// destinationOf returns the destination that a dispatch rule matches.
func destinationOf(words []string) (to destination, ok bool) {
	for i := 0; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "-d":
			// A wider prefix only narrows a NodePort rule. It is not the destination.
			if p, err := netip.ParsePrefix(value); err == nil && p.IsSingleIP() {
				to.addr = p.Addr()
			}
		case "-p":
			to.protocol = value
		case "--dport":
			port, err := strconv.ParseUint(value, 10, 16)
			to.port, ok = uint16(port), err == nil
		}
	}
	return to, ok && to.protocol != ""
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
