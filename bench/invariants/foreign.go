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

// foreignChain is the sentinels' own, in each table.
const foreignChain = "SYNCLAB-FOREIGN"

// Sentinels are what a foreign hand wrote before the subject started, and what must still be there.
type Sentinels struct {
	// Rules by family and table, in the order in which they stand within a chain. Packets never match them.
	Rules map[corev1.IPFamily]map[string][]Rule
	// Nft are the names of what stands in a foreign table of nf_tables, by family.
	Nft map[corev1.IPFamily][]string
	// Flows are UDP entries of nobody's Service.
	Flows map[corev1.IPFamily][]conntrack.Flow
}

// The sentinels' rules speak of two addresses that nobody has: of the range for benchmarks (RFC 2544), and of the one for
// documentation (RFC 3849).
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

// foreignRules are those of one family and table, with counters that differ from rule to rule.
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

// payload is what iptables-restore --noflush --counters takes to plant the rules of one family and table.
func payload(table string, rules []Rule) string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n:%s - [0:0]\n", table, foreignChain)
	for _, r := range rules {
		fmt.Fprintf(&b, "[%d:%d] %s\n", r.Packets, r.Bytes, r.Text)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// checkForeign: foreign chains and rules are there, in their order, with their counters, policies are what they were, and
// so is the foreign table of nf_tables.
func checkForeign(_ context.Context, e *Evidence, r *report) error {
	for _, family := range e.Families {
		for _, table := range slices.Sorted(maps.Keys(e.Planted.Rules[family])) {
			foreignTable(family, table, e.Planted.Rules[family][table], e.Saved[family][table], r)
		}
		for _, name := range e.Planted.Nft[family] {
			r.checked++
			if !slices.Contains(e.ForeignNft[family], name) {
				r.violated("", "%s: foreign %s of nf_tables is gone, or another", family, name)
			}
		}
	}
	return nil
}

func foreignTable(family corev1.IPFamily, table string, planted []Rule, chains map[string]*Chain, r *report) {
	last := map[string]int{} // chain: place of the sentinel before
	for _, want := range planted {
		r.checked++
		chain := strings.Fields(want.Text)[1]
		if chains[chain] == nil {
			r.violated("", "%s table %s: chain %s with a foreign rule is gone", family, table, chain)
			continue
		}
		at := slices.IndexFunc(chains[chain].Rules, func(have Rule) bool { return have.Text == want.Text })
		switch {
		case at < 0:
			r.violated("", "%s table %s: foreign rule %q is gone", family, table, want.Text)
			continue
		case at < last[chain]:
			r.violated("", "%s table %s: foreign rule %q came before another, and comes after it now", family, table, want.Text)
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
