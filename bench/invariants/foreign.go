package invariants

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// foreignChain is the sentinels' chain in each table.
const foreignChain = "SYNCLAB-FOREIGN"

// Sentinels are rules, tables and flows that Synclab writes before the subject starts. The subject must not change
// them.
type Sentinels struct {
	// Rules by family and table, in their order within a chain. Packets never match them.
	Rules map[corev1.IPFamily]map[string][]Rule
	// Nft names the objects of the foreign table of nf_tables, by family.
	Nft map[corev1.IPFamily][]string
	// Flows are UDP entries that belong to no Service.
	Flows map[corev1.IPFamily][]conntrack.Flow
}

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
func foreignRules(family corev1.IPFamily, table string) []Rule {
	var rules []Rule
	add := func(chain, what, target string) {
		n := uint64(len(rules))
		match := fmt.Sprintf(`-s %s -d %s -m comment --comment "foreign %s" -j %s`, foreignFrom[family], foreignTo[family], what, target)
		rules = append(rules, Rule{
			Text: iptables.Canonical("-A "+chain+" "+match, family), Packets: 7 + n, Bytes: 700 + 10*n,
		})
	}
	add(foreignChain, "first", "RETURN")
	add(foreignChain, "second", "RETURN")
	for _, hook := range foreignHooks[table] {
		add(hook, "first in "+hook, foreignChain)
		add(hook, "second in "+hook, "ACCEPT")
	}
	return rules
}

// payload returns the input of iptables-restore --noflush --counters that plants the rules of one family and table.
func payload(table string, rules []Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", table, foreignChain)
	for _, r := range rules {
		fmt.Fprintf(&b, "[%d:%d] %s\n", r.Packets, r.Bytes, r.Text)
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

func foreignTable(family corev1.IPFamily, table string, planted []Rule, chains map[string]*Chain, r *report) {
	last := map[string]int{} // chain: position of the previous sentinel
	for _, want := range planted {
		r.checked++
		chain := strings.Fields(want.Text)[1]
		if chains[chain] == nil {
			r.violated("", "%s table %s: chain %s with a foreign rule was deleted", family, table, chain)
			continue
		}
		at := slices.IndexFunc(chains[chain].Rules, func(have Rule) bool { return have.Text == want.Text })
		switch {
		case at < 0:
			r.violated("", "%s table %s: foreign rule %q was deleted", family, table, want.Text)
			continue
		case at < last[chain]:
			r.violated("", "%s table %s: foreign rule %q was moved behind another rule", family, table, want.Text)
		}
		last[chain] = at
		if have := chains[chain].Rules[at]; have.Packets != want.Packets || have.Bytes != want.Bytes {
			r.violated("", "%s table %s: counters of foreign rule %q are [%d:%d], not [%d:%d]",
				family, table, want.Text, have.Packets, have.Bytes, want.Packets, want.Bytes)
		}
	}
	for name, c := range chains {
		if c.Policy != "-" && c.Policy != "ACCEPT" {
			r.violated("", "%s table %s: chain %s has policy %s, not ACCEPT", family, table, name, c.Policy)
		}
	}
}
