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

// before is what the dispatch of a table led packets to, when the sync began.
type before struct {
	// lines for each destination, in their order.
	lines map[destination][]beforeLine
	// targets counts the lines that lead to each chain.
	targets map[string]int
	// hairpin, of filter: what an endpoint sends to itself passed without a mark. Then chains of Services may be flat.
	hairpin bool
}

type beforeLine struct {
	dispatch dispatch
	text     string // canonical, from behind the chain's name on
	target   string
}

func newBefore() *before {
	return &before{lines: map[destination][]beforeLine{}, targets: map[string]int{}}
}

func (b *before) add(to destination, l beforeLine) {
	b.lines[to] = append(b.lines[to], l)
	b.targets[l.target]++
}

// canonicalLine is a dispatch line as iptables prints it, from behind the chain's name on.
func (s *settings) canonicalLine(text []byte) string {
	return strings.TrimPrefix(Canonical("-A X"+strings.TrimSuffix(string(text), "\n"), s.Family), "-A X")
}

// installedBefore is what the installed rules of dirty Service ports lead to.
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

// readBefore reads what a table leads to out of rules as iptables prints them. Chains of a layout that nothing leads to
// are those of a sync that did not get further.
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

// found are the Service ports of which the tables hold all rules as they are wanted.
func (r *Ruleset) found(tables Tables, req backend.Request) (map[tracker.ServicePortName]bool, error) {
	past, chains := map[Table]*before{}, map[string][]string{}
	for _, table := range []Table{NAT, Filter} {
		rules, err := tables.Rules(table)
		if err != nil {
			return nil, fmt.Errorf("rules of an earlier proxier: %w", err)
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

// leadsAs says whether each line of a Service port is among those of its destination.
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

// translatesAs says whether the chains of a Service port hold the wanted rules.
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

// destinationOf reads the destination that a dispatch line captures.
func destinationOf(words []string) (to destination, ok bool) {
	for i := 0; i+1 < len(words); i++ {
		switch value := words[i+1]; words[i] {
		case "-d":
			// A wider prefix is a match beside a NodePort's.
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

// readTable asks what a table led to. Which chains it has is asked, too: after a restore that failed, nobody knows whether
// those are there that it would have made or deleted.
func readTable(tables Tables, table Table) (*before, error) {
	existing, err := tables.Chains(table)
	if err != nil {
		return nil, fmt.Errorf("chains of an earlier proxier: %w", err)
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
		chains = nil // all of them: it holds little else
	case services == 0: // then nothing leads anywhere
		return newBefore(), nil
	}
	rules, err := tables.Rules(table, chains...)
	if err != nil {
		return nil, fmt.Errorf("rules of an earlier proxier: %w", err)
	}
	return readBefore(table, rules), nil
}

// leadsTo says how many lines led to the chains of a Service port.
func (b *before) leadsTo(name tracker.ServicePortName) int {
	c := ChainsOf(name)
	return b.targets[c.Cluster] + b.targets[c.Local] + b.targets[c.External] + b.targets[c.Firewall]
}
