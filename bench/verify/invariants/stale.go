package invariants

import (
	"context"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
)

// checkStale: the subject has no chain that a fresh full sync would not write. Chains without a jump to them are
// allowed only if a full sync leaves them so. A chain with a foreign jump to it cannot be deleted: it may stay, empty.
func checkStale(ctx context.Context, e *Evidence, r *report) error {
	x, err := e.expect(ctx)
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		if e.Subject.Nftables() {
			e.staleNft(family, x.nft[family], e.Nft[family], r)
			continue
		}
		if !e.Subject.Own && e.plan(family).KnownEndpoints() > backend.LargeCluster {
			continue // there kube-proxy cleans up once a sync period, and only if something changes
		}
		staleChains(family, x.saved[family], e.Saved[family], r)
	}
	return nil
}

func staleChains(family corev1.IPFamily, want, have Saved, r *report) {
	for _, table := range slices.Sorted(maps.Keys(have)) {
		led, wouldLead := leads(have[table]), leads(want[table])
		for _, name := range slices.Sorted(maps.Keys(have[table])) {
			if !ownChain(name) {
				continue
			}
			r.checked++
			c, wanted := have[table][name], want[table][name] != nil
			switch {
			case !wanted && len(c.Rules) == 0 && led[name] == byOthers:
			case !wanted:
				r.violated("", "%s table %s: unexpected chain %s with %d rules", family, table, name, len(c.Rules))
			case led[name] == byNone && wouldLead[name] != byNone:
				r.violated("", "%s table %s: no rule jumps to chain %s", family, table, name)
			}
		}
	}
}

// The owners of jumps to a chain.
const (
	byNone = iota
	byOthers
	byOwn
)

// leads returns, for each chain of a table, the owner of the jumps to it.
func leads(chains map[string]*rule.Chain) map[string]int {
	by := map[string]int{}
	for name, c := range chains {
		who := byOthers
		if ownChain(name) {
			who = byOwn
		}
		for i := range c.Rules {
			if target := c.Rules[i].Target.Chain; ownChain(target) {
				by[target] = max(by[target], who)
			}
		}
	}
	return by
}

// Leftover are unreachable elements of Synclab's table after a number of syncs. The next sync deletes them, so that
// packets in flight still find the elements they refer to (package proxier/nftables).
type Leftover struct {
	Syncs uint64
	Keys  map[string]bool
}

// leftoverSyncs is the number of syncs after which deferred deletes must be done.
const leftoverSyncs = 2

// Left returns the current deferred deletes.
func (e *Evidence) Left(ctx context.Context) (*Leftover, error) {
	if e.Nft == nil {
		return nil, nil
	}
	x, err := e.expect(ctx)
	if err != nil {
		return nil, err
	}
	left := &Leftover{Syncs: e.Syncs, Keys: map[string]bool{}}
	for _, family := range e.Families {
		for _, key := range leftovers(x.nft[family], e.Nft[family]) {
			left.Keys[string(family)+" "+key] = true
		}
	}
	return left, nil
}

// leftovers returns the table's deferred deletes: endpoints of Service ports without endpoints, hairpin elements of
// removed addresses, and lists of removed frontends. Chains of unused classes may stay, up to a number. So may endpoints of
// a list that is in another map now: one that keeps moving between two maps leaves the same again and again.
func leftovers(want, have *NftTable) []string {
	var found []string
	used := map[string]bool{}
	for list := range want.slots() {
		name, _, _ := strings.Cut(list, inMap)
		used[name] = true
	}
	for list := range have.slots() {
		if name, _, _ := strings.Cut(list, inMap); !used[name] {
			found = append(found, "endpoints of Service port "+spell(list[:idLen])+", "+list[idLen:])
		}
	}
	for key := range have.Sets[hairpinSet] {
		if _, there := want.Sets[hairpinSet][key]; !there {
			found = append(found, "element "+spell(key)+" of set "+hairpinSet)
		}
	}
	entries := map[string]bool{}
	for _, set := range []string{"frontends", "nodeports"} {
		for key := range want.Sets[set] {
			entries[key] = true
		}
	}
	for key := range have.Sets[listsSet] {
		place := key[:len(key)-idLen]
		if !entries[place] && !entries[place[len(anyAddress(have)):]] {
			found = append(found, "element "+spell(key)+" of set "+listsSet)
		}
	}
	slices.Sort(found)
	return found
}

func (e *Evidence) staleNft(family corev1.IPFamily, want, have *NftTable, r *report) {
	for _, left := range leftovers(want, have) {
		r.checked++
		if before := e.LeftBefore; before != nil && before.Keys[string(family)+" "+left] && e.Syncs >= before.Syncs+leftoverSyncs {
			r.violated("", "%s: %s has been unused for %d syncs, but was not deleted", family, left, e.Syncs-before.Syncs)
		}
	}
	r.checked += have.size()
	for _, name := range have.Beside {
		r.violated("", "%s: unexpected table %s besides %s", family, name, have.Name)
	}
}
