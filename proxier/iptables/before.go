package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"synclab/proxier/iptables/prefix"
	"synclab/proxier/tracker"
)

// before is what the dispatch of a table led packets to, when the sync began.
type before struct {
	// lines for each destination, in their order.
	lines map[destination][]beforeLine
	// targets counts the lines that lead to each chain.
	targets map[string]int
	// known: nothing is missing.
	known bool
}

type beforeLine struct {
	dispatch dispatch
	text     string // canonical, from behind the chain's name on
	target   string
}

func newBefore() *before {
	return &before{lines: map[destination][]beforeLine{}, targets: map[string]int{}, known: true}
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

// readBefore reads what a table leads to out of rules as iptables prints them.
func readBefore(table Table, rules []string) *before {
	b := newBefore()
	for _, rule := range rules {
		words, err := splitWords(rule)
		if err != nil || len(words) < 2 || words[0] != "-A" {
			continue
		}
		d, ours := dispatchOf(chain{table, words[1]})
		to, captures := destinationOf(words[2:])
		text := strings.TrimPrefix(rule, "-A "+words[1])
		if target := jumpTarget(rule); ours && captures && !isLayoutChain(target) {
			b.add(to, beforeLine{d, text, target})
		}
	}
	return b
}

// dispatchOf says which dispatch a chain belongs to, in whatever layout.
func dispatchOf(c chain) (dispatch, bool) {
	if d := slices.Index(dispatchChains[:], c); d >= 0 {
		return dispatch(d), true
	}
	use, ok := prefix.Use(c.name)
	for d, uses := range treeUses {
		if ok && dispatch(d).table() == c.table && (use == uses.addrs || use == uses.ports) {
			return dispatch(d), true
		}
	}
	return 0, false
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

// mostChainsRead bounds how many dispatch chains of nat are read, a run of the tool each. A layout with more of them
// stays unknown.
const mostChainsRead = 16

// readTable asks what a table led to. existing are its chains.
func readTable(tables Tables, table Table, existing map[string]content) (*before, error) {
	var chains []string
	for _, c := range dispatchChains {
		if _, there := existing[c.name]; there && c.table == table {
			chains = append(chains, c.name)
		}
	}
	branches, services := 0, 0
	for name := range existing {
		if isLayoutChain(name) {
			branches++
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
	case branches > mostChainsRead:
		return &before{}, nil
	case branches > 0:
		for name := range existing {
			if isLayoutChain(name) {
				chains = append(chains, name)
			}
		}
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
