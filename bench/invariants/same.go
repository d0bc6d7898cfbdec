package invariants

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// checkSame holds what is in the kernel against what a fresh full sync would put there.
func checkSame(ctx context.Context, e *Evidence, r *report) error {
	x, err := e.expect(ctx)
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		switch {
		case e.Subject.nftables():
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

// size counts rules.
func (s Saved) size() int {
	n := 0
	for _, chains := range s {
		for _, c := range chains {
			n += len(c.Rules)
		}
	}
	return n
}

// size counts rules and elements.
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

// difference is a chain that is not as wanted.
type difference struct {
	Table, Chain string
	Text         string
}

func (d difference) String() string {
	return fmt.Sprintf("table %s chain %s %s", d.Table, d.Chain, d.Text)
}

// differences compares the chains that are wanted with those that are there. In chains that others write to, too, the
// wanted rules must be there in their order, each once. Chains that are there besides are no matter of this.
func differences(want, have Saved) []difference {
	var found []difference
	for _, table := range slices.Sorted(maps.Keys(want)) {
		for _, name := range slices.Sorted(maps.Keys(want[table])) {
			wanted := want[table][name].texts()
			c := have[table][name]
			if c == nil {
				if ownChain(name) || len(wanted) > 0 { // a table that was never used has no chain
					found = append(found, difference{table, name, "is not there"})
				}
				continue
			}
			there := c.texts()
			if shared(name) {
				there = slices.DeleteFunc(there, func(rule string) bool { return !slices.Contains(wanted, rule) })
			}
			if shared(name) && !ownChain(name) { // jumps: each proxier puts its own in front
				slices.Sort(wanted)
				slices.Sort(there)
			}
			if text := diffRules(wanted, there); text != "" {
				found = append(found, difference{table, name, text})
			}
		}
	}
	return found
}

// diffRules describes the first difference of two lists of rules; empty: none.
func diffRules(want, have []string) string {
	for i := range max(len(want), len(have)) {
		switch {
		case i >= len(have):
			return fmt.Sprintf("has %d rules, not %d: it lacks %q", len(have), len(want), want[i])
		case i >= len(want):
			return fmt.Sprintf("has %d rules, not %d: there is %q too", len(have), len(want), have[i])
		case want[i] != have[i]:
			return fmt.Sprintf("has %q as rule %d, not %q", have[i], i+1, want[i])
		}
	}
	return ""
}

// differencesNft compares tables of the lab's own backend nftables.
func differencesNft(want, have *NftTable) []string {
	if have.Name == "" {
		return []string{"there is no table that packets meet"}
	}
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, other := range have.Beside {
		add("table %s is there too", other)
	}
	for _, set := range entrySets {
		for _, key := range union(want.Sets[set], have.Sets[set]) {
			wanted, inWant := want.Sets[set][key]
			there, inHave := have.Sets[set][key]
			switch {
			case !inHave:
				add("set %s lacks %s", set, spell(key))
			case !inWant:
				add("set %s has %s, which nothing wants", set, spell(key))
			case want.means(set, wanted) != have.means(set, there):
				add("set %s: %s leads to %s, not %s", set, spell(key), have.means(set, there), want.means(set, wanted))
			}
		}
	}
	found = append(found, differingLists(want, have)...)
	for _, key := range slices.Sorted(maps.Keys(want.Sets[hairpinSet])) {
		if _, there := have.Sets[hairpinSet][key]; !there {
			add("set %s lacks %s", hairpinSet, spell(key))
		}
	}
	for _, chain := range slices.Sorted(maps.Keys(want.Rules)) {
		if isClass(chain) { // those that are not used may be there or not
			continue
		}
		if rules, there := have.Rules[chain]; !there || rules != want.Rules[chain] {
			add("chain %s has %d rules, not %d", chain, rules, want.Rules[chain])
		}
	}
	return found
}

// means is what the value of an entry says, whatever numbers stand for it.
func (t *NftTable) means(set, value string) string {
	switch {
	case set == "frontends" || set == "nodeports":
		return fmt.Sprintf("class %x", bare(class(value)))
	case strings.HasPrefix(set, "refused-") && len(value) >= 2*wordLen:
		return "chain " + t.Sets[refusalsSet][value[wordLen:2*wordLen]]
	}
	return spell(value)
}

// isClass says whether a chain is of a class: fixed ones are named by what they do.
func isClass(chain string) bool {
	for _, kind := range []string{"cluster-", "external-", "nodeport-", "frontend-"} {
		if strings.HasPrefix(chain, kind) {
			return true
		}
	}
	return false
}

// differingLists compares where frontends lead: to the same Service port, with the same endpoints.
func differingLists(want, have *NftTable) []string {
	var found []string
	add := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, set := range []string{"frontends", "nodeports"} {
		for _, key := range slices.Sorted(maps.Keys(want.Sets[set])) {
			mine, theirs := class(want.Sets[set][key]), class(have.Sets[set][key])
			if theirs == 0 || mine>>kindShift == kindOwn {
				continue // missing, or found in a chain, whose ways packets tell
			}
			at := key
			if set == "nodeports" {
				at = anyAddress(want) + key
			}
			wanted := want.Sets[listsSet][at+classKey(mine)]
			there, ok := have.Sets[listsSet][at+classKey(theirs)]
			if !ok || wanted != there {
				add("set %s: frontend %s leads to Service port %s, not %s", listsSet, spell(key), spell(there), spell(wanted))
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

// anyAddress is the unspecified address, which stands for a NodePort's in lists: as long as addresses are there.
func anyAddress(t *NftTable) string {
	const protoAndPort = 2 * wordLen
	for key := range t.Sets[listsSet] {
		return string(make([]byte, len(key)-idLen-protoAndPort))
	}
	return ""
}

func union(a, b map[string]string) []string {
	keys := slices.AppendSeq(slices.Collect(maps.Keys(a)), maps.Keys(b))
	slices.Sort(keys)
	return slices.Compact(keys)
}
