package virtualtest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
)

// foreignMark is in the names or comments of foreign chains and rules, which distinguishes them from the proxier's.
// External writes are chosen at random (seeded).
const foreignMark = "FOREIGN"

// writeKind is one kind of external write to tables, with its relative frequency.
type writeKind struct {
	share int
	what  string
	do    func(t *tables, d dump, rng *rand.Rand)
}

var writeKinds = []writeKind{
	{3, "flush nat", func(_ *tables, d dump, _ *rand.Rand) { d.flush(iptables.NAT) }},
	{2, "flush filter", func(_ *tables, d dump, _ *rand.Rand) { d.flush(iptables.Filter) }},
	{2, "wipe mangle", func(_ *tables, d dump, _ *rand.Rand) { d.wipe(iptables.Mangle) }},
	{2, "wipe everything", func(_ *tables, d dump, _ *rand.Rand) {
		for _, table := range dumpTables {
			d.wipe(table)
		}
	}},
	{2, "wipe nat", func(_ *tables, d dump, _ *rand.Rand) { d.wipe(iptables.NAT) }},
	{4, "delete a chain", func(_ *tables, d dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, "KUBE-"); ok {
			d.deleteChain(table, chain)
		}
	}},
	{4, "delete a rule", func(_ *tables, d dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, "KUBE-"); ok && len(d.at(table, chain).Rules) > 0 {
			c := d.at(table, chain)
			i := rng.IntN(len(c.Rules))
			c.Rules = slices.Delete(c.Rules, i, i+1)
		}
	}},
	{3, "delete a jump", func(_ *tables, d dump, rng *rand.Rand) { d.deleteJump(rng) }},
	{3, "add a rule to a chain of the proxier", func(t *tables, d dump, rng *rand.Rand) {
		table, chain, ok := d.ownChain(rng, "KUBE-")
		// The kubelet has rules in KUBE-FIREWALL, and no check covers the canary's rules.
		if ok && chain != "KUBE-FIREWALL" && chain != iptables.Canary {
			d.insert(rng, table, chain, t.returning(9, "external"))
		}
	}},
	{3, "jump to a chain of the proxier", func(t *tables, d dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, ownPrefixes...); ok {
			d.make(table, referrer)
			refers := d.at(table, referrer)
			refers.Rules = append(refers.Rules, t.jumpTo(chain))
			t.referred[string(table)+" "+chain] = true
		}
	}},
	{3, "foreign chains and rules", func(t *tables, d dump, rng *rand.Rand) {
		table := dumpTables[rng.IntN(len(dumpTables))]
		chain := fmt.Sprintf("%s-%d", foreignMark, rng.IntN(20))
		d.make(table, chain)
		d.insert(rng, table, chain, t.returning(rng.IntN(200), foreignMark))
		d.insert(rng, table, "OUTPUT", t.jumpTo(chain))
	}},
}

// ownPrefixes are the prefixes of the chains of Service ports.
var ownPrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-SEP-", "KUBE-FW-", "KUBE-EXT-"}

// writeOf returns the external write for a pick.
func writeOf(pick uint64) (writeKind, *rand.Rand) {
	rng := rand.New(rand.NewPCG(pick, 0x3edd1e))
	sum := 0
	for _, m := range writeKinds {
		sum += m.share
	}
	draw := rng.IntN(sum)
	for _, m := range writeKinds {
		if draw -= m.share; draw < 0 {
			return m, rng
		}
	}
	panic("shares add up to 0")
}

// externalWrite makes an external write to the tables; t.mu must be held.
func (t *tables) externalWrite(pick uint64) string {
	m, rng := writeOf(pick)
	d := dump(t.model.Tables().Clone())
	m.do(t, d, rng)
	t.set(d)
	t.raced = t.raced || t.writers > 0
	return m.what
}

// set replaces the content of the tables by a dump.
func (t *tables) set(d dump) {
	t.model = iptables.ModelOf(t.family, rule.Tables(d))
	t.foreign = foreignOf(t.saved())
}

// foreignOf returns the foreign lines of a dump.
func foreignOf(saved string) string {
	var b strings.Builder
	for line := range strings.Lines(saved) {
		if line[0] == '*' || strings.Contains(line, foreignMark) {
			b.WriteString(line)
		}
	}
	return b.String()
}

// forgetReferences deletes the foreign jumps to the proxier's chains; t.mu must be held.
func (t *tables) forgetReferences() {
	d := dump(t.model.Tables().Clone())
	for _, table := range dumpTables {
		d.deleteChain(table, referrer)
	}
	t.set(d)
}

// dump is a copy of the tables for an external write.
type dump rule.Tables

var dumpTables = []iptables.Table{iptables.Mangle, iptables.Filter, iptables.NAT}

// referrer is the foreign chain with jumps to the proxier's chains.
const referrer = foreignMark + "-REFERS"

func (d dump) at(table iptables.Table, chain string) *rule.Chain { return d[string(table)][chain] }

// names returns the chains of a table, the base chains first.
func (d dump) names(table iptables.Table) []string { return rule.Tables(d).Chains(string(table)) }

func (d dump) flush(table iptables.Table) {
	for _, c := range d[string(table)] {
		c.Rules = nil
	}
}

// wipe flushes a table and deletes its chains.
func (d dump) wipe(table iptables.Table) {
	d.flush(table)
	maps.DeleteFunc(d[string(table)], func(name string, _ *rule.Chain) bool { return userDefined(name) })
}

// userDefined reports whether a chain is not a base chain.
func userDefined(chain string) bool {
	switch chain {
	case "PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING":
		return false
	}
	return true
}

// ownChain returns a random chain of the proxier.
func (d dump) ownChain(rng *rand.Rand, prefixes ...string) (iptables.Table, string, bool) {
	type place struct {
		table iptables.Table
		chain string
	}
	var all []place
	for _, table := range dumpTables {
		for _, chain := range d.names(table) {
			if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(chain, p) }) {
				all = append(all, place{table, chain})
			}
		}
	}
	if len(all) == 0 {
		return "", "", false
	}
	p := all[rng.IntN(len(all))]
	return p.table, p.chain, true
}

// deleteChain deletes a chain. It first deletes the jumps to it, as the kernel requires.
func (d dump) deleteChain(table iptables.Table, chain string) {
	for _, c := range d[string(table)] {
		c.Rules = slices.DeleteFunc(c.Rules, func(r rule.Rule) bool { return r.Target.Chain == chain })
	}
	delete(d[string(table)], chain)
}

// deleteJump deletes a random jump from a base chain to the proxier's chains.
func (d dump) deleteJump(rng *rand.Rand) {
	type place struct {
		table iptables.Table
		chain string
		rule  int
	}
	var all []place
	for _, table := range dumpTables {
		for _, chain := range d.names(table) {
			if userDefined(chain) {
				continue
			}
			for i, r := range d.at(table, chain).Rules {
				if !strings.Contains(r.Line(chain), foreignMark) {
					all = append(all, place{table, chain, i})
				}
			}
		}
	}
	if len(all) == 0 {
		return
	}
	p := all[rng.IntN(len(all))]
	c := d.at(p.table, p.chain)
	c.Rules = slices.Delete(c.Rules, p.rule, p.rule+1)
}

func (d dump) make(table iptables.Table, chain string) {
	if d.at(table, chain) == nil {
		d[string(table)][chain] = &rule.Chain{Policy: "-"}
	}
}

// insert inserts a rule at a random position of a chain.
func (d dump) insert(rng *rand.Rand, table iptables.Table, chain string, r rule.Rule) {
	c := d.at(table, chain)
	c.Rules = slices.Insert(c.Rules, rng.IntN(len(c.Rules)+1), r)
}

func (t *tables) jumpTo(chain string) rule.Rule {
	return rule.Rule{IPv6: t.family == corev1.IPv6Protocol, Target: rule.Target{Kind: rule.TargetJump, Chain: chain}}
}

// returning returns a rule that matches a source address that no packet has.
func (t *tables) returning(source int, comment string) rule.Rule {
	net, ipv6 := "203.0.113.", t.family == corev1.IPv6Protocol
	if ipv6 {
		net = "2001:db8:113::"
	}
	addr := netip.MustParseAddr(net + strconv.Itoa(source))
	return rule.Rule{
		IPv6: ipv6, Src: netip.PrefixFrom(addr, addr.BitLen()), Matches: []rule.Match{{Kind: rule.MatchComment, Name: comment}},
		Target: rule.Target{Kind: rule.TargetReturn},
	}
}
