package invariants

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"synclab/bench/verify/conform"
	"synclab/proxier/iptables/rule"
)

// checkSame compares the kernel's rules with a fresh full sync.
func checkSame(ctx context.Context, e *Evidence, r *report) error {
	x, err := e.expect(ctx)
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		switch {
		case e.Subject.Nftables():
			r.checked += e.Nft[family].size()
			for _, text := range differencesNft(x.nft[family], e.Nft[family]) {
				r.violated("", "%s: %s", family, text)
			}
		case e.Subject.Own:
			r.checked += x.saved[family].size()
			for _, d := range differences(x.saved[family], e.Saved[family]) {
				r.violated("", "%s %s", family, d)
			}
		default:
			r.checked += x.saved[family].size()
			if err := e.checkConform(ctx, family, x, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// size returns the number of rules.
func (s Saved) size() int {
	n := 0
	for _, chains := range s {
		for _, c := range chains {
			n += len(c.Rules)
		}
	}
	return n
}

// size returns the number of rules and elements.
func (t *NftTable) size() int {
	n := 0
	for _, rules := range t.Rules {
		n += rules
	}
	for _, elements := range t.Sets {
		n += len(elements)
	}
	return n
}

// difference is a chain that differs from the desired one.
type difference struct {
	Table, Chain string
	Text         string
}

func (d difference) String() string {
	return fmt.Sprintf("table %s chain %s %s", d.Table, d.Chain, d.Text)
}

// differences compares the desired chains with the kernel's. Chains that other programs write to must have each desired
// rule once, in order. Other chains of the kernel are ignored.
func differences(want, have Saved) []difference {
	var found []difference
	for _, table := range slices.Sorted(maps.Keys(want)) {
		for _, name := range slices.Sorted(maps.Keys(want[table])) {
			wanted := want[table][name].Rules
			c := have[table][name]
			if c == nil {
				if ownChain(name) || len(wanted) > 0 { // a table that was never used has no chain
					found = append(found, difference{table, name, "is missing"})
				}
				continue
			}
			there := c.Rules
			if shared(name) {
				there = slices.DeleteFunc(slices.Clone(there), func(r rule.Rule) bool {
					return !slices.ContainsFunc(wanted, func(w rule.Rule) bool { return w.Equal(&r) })
				})
			}
			if shared(name) && !ownChain(name) { // jumps: each proxier inserts its own jumps first
				wanted, there = sorted(wanted), sorted(there)
			}
			if text := diffRules(name, wanted, there); text != "" {
				found = append(found, difference{table, name, text})
			}
		}
	}
	return found
}

// sorted returns the rules in the order of their lines.
func sorted(rules []rule.Rule) []rule.Rule {
	return slices.SortedFunc(slices.Values(rules), func(a, b rule.Rule) int { return bytes.Compare(a.Append(nil), b.Append(nil)) })
}

// diffRules describes the first difference between two lists of rules of a chain; empty if there is none.
func diffRules(chain string, want, have []rule.Rule) string {
	for i := range max(len(want), len(have)) {
		switch {
		case i >= len(have):
			return fmt.Sprintf("has %d rules, not %d: missing %q", len(have), len(want), want[i].Line(chain))
		case i >= len(want):
			return fmt.Sprintf("has %d rules, not %d: unexpected %q", len(have), len(want), have[i].Line(chain))
		case !want[i].Equal(&have[i]):
			return fmt.Sprintf("has %q as rule %d, not %q", have[i].Line(chain), i+1, want[i].Line(chain))
		}
	}
	return ""
}

// differencesNft compares tables of Synclab's backend nftables.
func differencesNft(want, have *NftTable) []string {
	if have.Name == "" {
		return []string{"packets traverse no table of Synclab"}
	}
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, other := range have.Beside {
		add("unexpected table %s", other)
	}
	for _, set := range entrySets {
		for _, key := range conform.Union(want.Sets[set], have.Sets[set]) {
			wanted, inWant := want.Sets[set][key]
			there, inHave := have.Sets[set][key]
			switch {
			case !inHave:
				add("set %s: missing element %s", set, spell(key))
			case !inWant:
				add("set %s: unexpected element %s", set, spell(key))
			case means(set, wanted) != means(set, there):
				add("set %s: %s maps to %s, not %s", set, spell(key), means(set, there), means(set, wanted))
			}
		}
	}
	found = append(found, differingLists(want, have)...)
	for _, key := range slices.Sorted(maps.Keys(want.Sets[hairpinSet])) {
		if _, there := have.Sets[hairpinSet][key]; !there {
			add("set %s: missing element %s", hairpinSet, spell(key))
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(want.Rules)) {
		if isClass(chain) { // unused class chains may exist or not
			continue
		}
		if rules, there := have.Rules[chain]; !there || rules != want.Rules[chain] {
			add("chain %s has %d rules, not %d", chain, rules, want.Rules[chain])
		}
	}
	return found
}

// means returns the meaning of an entry's value, independent of assigned numbers.
func means(set, value string) string {
	if set == "frontends" || set == "nodeports" {
		return fmt.Sprintf("class %x", bare(class(value)))
	}
	return spell(value)
}

// isClass reports whether a chain belongs to a class. Fixed chains are named after their purpose.
func isClass(chain string) bool {
	kinds := []string{"cluster-", "external-", "nodeport-", "frontend-"}
	return slices.ContainsFunc(kinds, func(kind string) bool { return strings.HasPrefix(chain, kind) })
}

// differingLists compares the Service port and the endpoints of each frontend.
func differingLists(want, have *NftTable) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, set := range []string{"frontends", "nodeports"} {
		for _, key := range slices.Sorted(maps.Keys(want.Sets[set])) {
			mine, theirs := class(want.Sets[set][key]), class(have.Sets[set][key])
			if theirs == 0 || mine>>kindShift == kindOwn {
				continue // missing, or resolved in a chain, which the packet checks cover
			}
			at := key
			if set == "nodeports" {
				at = anyAddress(want) + key
			}
			wanted := want.Sets[listsSet][at+classKey(mine)]
			there, ok := have.Sets[listsSet][at+classKey(theirs)]
			if !ok || wanted != there {
				add("set %s: frontend %s maps to Service port %s, not %s", listsSet, spell(key), spell(there), spell(wanted))
			}
			if chain := have.Sets[classesSet][classKey(theirs)]; have.Rules[chain] == 0 {
				add("class %x of frontend %s has no chain with rules", theirs, spell(key))
			}
		}
	}
	wanted, there := want.slots(), have.slots()
	for _, list := range slices.Sorted(maps.Keys(wanted)) {
		n := uint32(len(wanted[list]))
		var a, b []string
		for i := range n {
			a, b = append(a, wanted[list][i]), append(b, there[list][i])
		}
		slices.Sort(a)
		slices.Sort(b)
		if !slices.Equal(a, b) {
			add("Service port %s, %s: endpoints %x, not %x", spell(list[:idLen]), list[idLen:], b, a)
		}
	}
	return found
}

// anyAddress returns the unspecified address, which stands for a NodePort in lists. It has the length of the addresses.
func anyAddress(t *NftTable) string {
	const protoAndPort = 2 * wordLen
	for key := range t.Sets[listsSet] {
		return string(make([]byte, len(key)-idLen-protoAndPort))
	}
	return ""
}
