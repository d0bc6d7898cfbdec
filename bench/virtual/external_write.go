package virtual

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"synclab/proxier/iptables"
)

// foreignMark is in the names or comments of foreign chains and rules, which distinguishes them from the proxier's.
// External writes are chosen at random (seeded).
const foreignMark = "FOREIGN"

// writeKind is one kind of external write to tables, with its relative frequency.
type writeKind struct {
	share int
	what  string
	do    func(t *tables, d *dump, rng *rand.Rand)
}

var writeKinds = []writeKind{
	{3, "flush nat", func(_ *tables, d *dump, _ *rand.Rand) { d.flush(iptables.NAT) }},
	{2, "flush filter", func(_ *tables, d *dump, _ *rand.Rand) { d.flush(iptables.Filter) }},
	{2, "wipe mangle", func(_ *tables, d *dump, _ *rand.Rand) { d.wipe(iptables.Mangle) }},
	{2, "wipe everything", func(_ *tables, d *dump, _ *rand.Rand) {
		for _, table := range dumpTables {
			d.wipe(table)
		}
	}},
	{2, "wipe nat", func(_ *tables, d *dump, _ *rand.Rand) { d.wipe(iptables.NAT) }},
	{4, "delete a chain", func(_ *tables, d *dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, "KUBE-"); ok {
			d.deleteChain(table, chain)
		}
	}},
	{4, "delete a rule", func(_ *tables, d *dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, "KUBE-"); ok && len(d.rules[table][chain]) > 0 {
			i := rng.IntN(len(d.rules[table][chain]))
			d.rules[table][chain] = slices.Delete(d.rules[table][chain], i, i+1)
		}
	}},
	{3, "delete a jump", func(_ *tables, d *dump, rng *rand.Rand) { d.deleteJump(rng) }},
	{3, "add a rule to a chain of the proxier", func(_ *tables, d *dump, rng *rand.Rand) {
		table, chain, ok := d.ownChain(rng, "KUBE-")
		// The kubelet has rules in KUBE-FIREWALL, and no check covers the canary's rules.
		if ok && chain != "KUBE-FIREWALL" && chain != iptables.Canary {
			d.insert(rng, table, chain, "-s 203.0.113.9/32 -m comment --comment external -j RETURN")
		}
	}},
	{3, "jump to a chain of the proxier", func(t *tables, d *dump, rng *rand.Rand) {
		if table, chain, ok := d.ownChain(rng, ownPrefixes...); ok {
			d.refer(table, chain)
			t.referred[string(table)+" "+chain] = true
		}
	}},
	{3, "foreign chains and rules", func(_ *tables, d *dump, rng *rand.Rand) {
		table := dumpTables[rng.IntN(len(dumpTables))]
		chain := fmt.Sprintf("%s-%d", foreignMark, rng.IntN(20))
		d.make(table, chain)
		d.insert(rng, table, chain, fmt.Sprintf("-s 203.0.113.%d/32 -m comment --comment %s -j RETURN", rng.IntN(200), foreignMark))
		d.insert(rng, table, "OUTPUT", "-j "+chain)
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
	d := t.dump()
	m.do(t, d, rng)
	t.set(d)
	t.raced = t.raced || t.writers > 0
	return m.what
}

// set replaces the content of the tables by a dump.
func (t *tables) set(d *dump) {
	model, err := iptables.ReadSaved(strings.NewReader(d.String()), t.family)
	if err != nil {
		panic(fmt.Sprintf("cannot parse the dump: %v", err))
	}
	t.model = model
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
	d := t.dump()
	for _, table := range dumpTables {
		d.deleteChain(table, referrer)
	}
	t.set(d)
}

// dump is the output of iptables-save in a form that can be edited.
type dump struct {
	chains map[iptables.Table][]string // in order
	rules  map[iptables.Table]map[string][]string
}

var dumpTables = []iptables.Table{iptables.Mangle, iptables.Filter, iptables.NAT}

// referrer is the foreign chain with jumps to the proxier's chains.
const referrer = foreignMark + "-REFERS"

func (t *tables) dump() *dump {
	d := &dump{chains: map[iptables.Table][]string{}, rules: map[iptables.Table]map[string][]string{}}
	var table iptables.Table
	for line := range strings.Lines(t.saved()) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line[0] == '*':
			table = iptables.Table(line[1:])
			d.rules[table] = map[string][]string{}
		case line[0] == ':':
			name, _, _ := strings.Cut(line[1:], " ")
			d.chains[table] = append(d.chains[table], name)
		case strings.HasPrefix(line, "-A "):
			chain := strings.Fields(line)[1]
			d.rules[table][chain] = append(d.rules[table][chain], line)
		}
	}
	return d
}

// String formats the dump like iptables-save.
func (d *dump) String() string {
	var b strings.Builder
	for _, table := range dumpTables {
		fmt.Fprintf(&b, "*%s\n", table)
		for _, chain := range d.chains[table] {
			fmt.Fprintf(&b, ":%s - [0:0]\n", chain)
		}
		for _, chain := range d.chains[table] {
			for _, rule := range d.rules[table][chain] {
				b.WriteString(rule + "\n")
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func (d *dump) flush(table iptables.Table) { clear(d.rules[table]) }

// wipe flushes a table and deletes its chains.
func (d *dump) wipe(table iptables.Table) {
	d.flush(table)
	d.chains[table] = slices.DeleteFunc(d.chains[table], func(chain string) bool { return userDefined(chain) })
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
func (d *dump) ownChain(rng *rand.Rand, prefixes ...string) (iptables.Table, string, bool) {
	type place struct {
		table iptables.Table
		chain string
	}
	var all []place
	for _, table := range dumpTables {
		for _, chain := range d.chains[table] {
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
func (d *dump) deleteChain(table iptables.Table, chain string) {
	if !slices.Contains(d.chains[table], chain) {
		return
	}
	for name := range d.rules[table] {
		d.rules[table][name] = slices.DeleteFunc(d.rules[table][name], func(rule string) bool { return leadsTo(rule, chain) })
	}
	delete(d.rules[table], chain)
	d.chains[table] = slices.DeleteFunc(d.chains[table], func(c string) bool { return c == chain })
}

func leadsTo(rule, chain string) bool {
	return strings.HasSuffix(rule, " -j "+chain) || strings.HasSuffix(rule, " -g "+chain)
}

// deleteJump deletes a random jump from a base chain to the proxier's chains.
func (d *dump) deleteJump(rng *rand.Rand) {
	type place struct {
		table iptables.Table
		chain string
		rule  int
	}
	var all []place
	for _, table := range dumpTables {
		for _, chain := range d.chains[table] {
			if userDefined(chain) {
				continue
			}
			for i, rule := range d.rules[table][chain] {
				if !strings.Contains(rule, foreignMark) {
					all = append(all, place{table, chain, i})
				}
			}
		}
	}
	if len(all) == 0 {
		return
	}
	p := all[rng.IntN(len(all))]
	d.rules[p.table][p.chain] = slices.Delete(d.rules[p.table][p.chain], p.rule, p.rule+1)
}

func (d *dump) make(table iptables.Table, chain string) {
	if !slices.Contains(d.chains[table], chain) {
		d.chains[table] = append(d.chains[table], chain)
	}
}

// insert inserts a rule at a random position of a chain.
func (d *dump) insert(rng *rand.Rand, table iptables.Table, chain, rule string) {
	i := rng.IntN(len(d.rules[table][chain]) + 1)
	d.rules[table][chain] = slices.Insert(d.rules[table][chain], i, "-A "+chain+" "+rule)
}

// refer adds a foreign jump to one of the proxier's chains.
func (d *dump) refer(table iptables.Table, chain string) {
	d.make(table, referrer)
	d.rules[table][referrer] = append(d.rules[table][referrer], "-A "+referrer+" -j "+chain)
}
