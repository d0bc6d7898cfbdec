package invariants

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables/rule"
)

// foreignChain is the sentinels' chain in each table.
const foreignChain = "SYNCLAB-FOREIGN"

// Sentinels are rules, tables and flows that Synclab writes before the subject starts. The subject must not change
// them.
type Sentinels struct {
	// Rules by family and table, in their order within a chain. Packets never match them.
	Rules map[corev1.IPFamily]map[string][]PlantedRule
	// Nft names the objects of the foreign table of nf_tables, by family.
	Nft map[corev1.IPFamily][]string
	// Flows are UDP entries that belong to no Service.
	Flows map[corev1.IPFamily][]conntrack.Flow
}

// PlantedRule is a rule of a chain, with its counters.
type PlantedRule struct {
	Chain string
	rule.Rule
}

func (p *PlantedRule) equal(o rule.Rule) bool { return p.Rule.Equal(&o) }

// The sentinels' rules match two addresses that no host has: from the range for benchmarks (RFC 2544), and from the
// range for documentation (RFC 3849).
var (
	foreignFrom = map[corev1.IPFamily]string{corev1.IPv4Protocol: "198.18.0.251", corev1.IPv6Protocol: "2001:db8:5ab::251"}
	foreignTo   = map[corev1.IPFamily]string{corev1.IPv4Protocol: "198.18.0.252", corev1.IPv6Protocol: "2001:db8:5ab::252"}
)

// foreignHooks are the chains of each table that get a foreign rule.
var foreignHooks = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"nat":    {"PREROUTING", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "FORWARD"},
}

// foreignRules returns the rules for one family and table. Counters differ from rule to rule.
func foreignRules(family corev1.IPFamily, table string) []PlantedRule {
	var rules []PlantedRule
	from, to := netip.MustParseAddr(foreignFrom[family]), netip.MustParseAddr(foreignTo[family])
	add := func(chain, what string, target rule.Target) {
		n := uint64(len(rules))
		rules = append(rules, PlantedRule{chain, rule.Rule{
			IPv6: from.Is6(), Src: netip.PrefixFrom(from, from.BitLen()), Dst: netip.PrefixFrom(to, to.BitLen()),
			Matches:  []rule.Match{{Kind: rule.MatchComment, Name: "foreign " + what}},
			Target:   target,
			Counters: [2]uint64{7 + n, 700 + 10*n},
		}})
	}
	add(foreignChain, "first", rule.Target{Kind: rule.TargetReturn})
	add(foreignChain, "second", rule.Target{Kind: rule.TargetReturn})
	for _, hook := range foreignHooks[table] {
		add(hook, "first in "+hook, rule.Target{Kind: rule.TargetJump, Chain: foreignChain})
		add(hook, "second in "+hook, rule.Target{Kind: rule.TargetAccept})
	}
	return rules
}

// payload returns the input of iptables-restore --noflush --counters that plants the rules of one family and table.
func payload(table string, rules []PlantedRule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", table, foreignChain)
	for _, r := range rules {
		fmt.Fprintf(&b, "[%d:%d] %s\n", r.Counters[0], r.Counters[1], r.Line(r.Chain))
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// checkForeign: foreign chains, rules and the foreign table of nf_tables are still there. Order, counters and policies
// are unchanged.
func checkForeign(_ context.Context, e *Evidence, r *report) error {
	for _, family := range e.Families {
		for _, table := range slices.Sorted(maps.Keys(e.Planted.Rules[family])) {
			foreignTable(family, table, e.Planted.Rules[family][table], e.Saved[family][table], r)
		}
		for _, name := range e.Planted.Nft[family] {
			r.checked++
			if !slices.Contains(e.ForeignNft[family], name) {
				r.violated("", "%s: foreign %s of nf_tables was deleted or changed", family, name)
			}
		}
	}
	return nil
}

func foreignTable(family corev1.IPFamily, table string, planted []PlantedRule, chains map[string]*rule.Chain, r *report) {
	last := map[string]int{} // chain: position of the previous sentinel
	for _, want := range planted {
		r.checked++
		chain := want.Chain
		if chains[chain] == nil {
			r.violated("", "%s table %s: chain %s with a foreign rule was deleted", family, table, chain)
			continue
		}
		at := slices.IndexFunc(chains[chain].Rules, want.equal)
		switch {
		case at < 0:
			r.violated("", "%s table %s: foreign rule %q was deleted", family, table, want.Line(chain))
			continue
		case at < last[chain]:
			r.violated("", "%s table %s: foreign rule %q was moved behind another rule", family, table, want.Line(chain))
		}
		last[chain] = at
		if have := chains[chain].Rules[at].Counters; have != want.Counters {
			r.violated("", "%s table %s: counters of foreign rule %q are %d, not %d", family, table, want.Line(chain), have, want.Counters)
		}
	}
	for name, c := range chains {
		if c.Policy != "-" && c.Policy != "ACCEPT" {
			r.violated("", "%s table %s: chain %s has policy %s, not ACCEPT", family, table, name, c.Policy)
		}
	}
}
