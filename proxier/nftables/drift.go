package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/kernel"
	"synclab/proxier/plan"
)

func addrPort(p *plan.ServicePort) netip.AddrPort { return netip.AddrPortFrom(p.ClusterIP, p.Port) }

// Total is what the table holds; elements count as rules.
func (r *Ruleset) Total() backend.Count {
	c := backend.Count{Chains: len(r.chains) + len(fixedChains) + len(baseChains), Rules: r.fixedRules}
	for _, rules := range r.chains {
		c.Rules += rules
	}
	for s := range sets {
		c.Rules += r.elements[s]
	}
	return c
}

var errNotOpen = errors.New("not synced yet")

// Stamp changes when somebody else may have changed the table. As long as the kernel's generation is that of the last
// commit of ours, nobody did: one short question. What others commit, the other family's proxier for one, is most often
// about tables of their own: so then the table's outline is compared with what it should be, and its content is not.
func (b *Backend) Stamp() (backend.Stamp, error) {
	if b.model != nil {
		if b.model.Meddled != b.seen { // as below
			if b.rules != nil && b.driftOfModel() != "" {
				b.meddled++
			} else {
				b.seen = b.model.Meddled
			}
		}
		return backend.Stamp{b.model.Meddled, b.meddled}, nil
	}
	if b.kernel == nil || b.rules == nil {
		return backend.Stamp{}, errNotOpen
	}
	generation, err := b.kernel.Generation()
	if err != nil {
		return backend.Stamp{}, err
	}
	if generation != b.generation+b.socket.commits {
		b.foreign = true
		found, err := b.outline(b.kernel.ToldSizes) // counting would cost more than a sync
		if err != nil {
			return backend.Stamp{}, err
		}
		if found != "" {
			// The stamp goes on changing until that is mended: who took note of this one after a sync, without
			// knowing that somebody had been quicker, learns of it by the next.
			b.meddled++
			return backend.Stamp{b.handle, b.meddled}, nil
		}
	}
	b.generation, b.socket.commits = generation, 0
	return backend.Stamp{b.handle, b.meddled}, nil
}

// Glance compares the rules of each chain with what should be there, if somebody committed anything since it did so last.
// That is what a Stamp leaves out, because it is asked for in each sync: there are some hundred rules, however large the
// cluster, and reading them takes longer than writing a few changes.
func (b *Backend) Glance() (string, error) {
	if b.model != nil || b.kernel == nil || b.rules == nil || !b.foreign {
		return "", nil
	}
	found, err := b.countedRules()
	if err == nil && found == "" {
		b.foreign = false
	}
	return found, err
}

// countedRules compares the rules by chain.
func (b *Backend) countedRules() (string, error) {
	tally, err := b.kernel.RulesByChain(b.opts.Family, b.encoder.table)
	if err != nil {
		return "", err
	}
	return b.rules.driftOfRules(tally), nil
}

// outline compares what the kernel says of the table without looking into it: its handle, the rules of the chains that
// the kernel calls, and the sizes of its sets as far as they are known.
func (b *Backend) outline(sizesOf func(corev1.IPFamily, string) ([]kernel.NftSize, error)) (string, error) {
	family, table := b.opts.Family, b.encoder.table
	handle, there, err := b.kernel.Table(family, table)
	switch {
	case err != nil:
		return "", err
	case !there:
		return fmt.Sprintf("table %s is gone", table), nil
	case handle != b.handle:
		return fmt.Sprintf("table %s is another", table), nil
	}
	for i := range baseChains {
		name := baseChains[i].name
		rules, there, err := b.kernel.Uses(family, table, name)
		if err != nil {
			return "", err
		}
		if want := len(b.rules.rules.fixed(name)); !there || rules != want {
			return fmt.Sprintf("chain %s has %d rules, not %d", name, rules, want), nil
		}
	}
	sizes, err := sizesOf(family, table)
	if err != nil {
		return "", err
	}
	have := map[string]int{}
	for _, size := range sizes {
		have[size.Set] = size.Elements
	}
	for s := range sets {
		n, there := have[s.String()]
		if !there || s != setAffinity && n >= 0 && n != b.rules.elements[s] { // packets write affinity
			return fmt.Sprintf("set %s has %d elements, not %d", s, n, b.rules.elements[s]), nil
		}
	}
	return "", nil
}

// Drift counts what the table holds and describes the first difference; empty: none. Elements that somebody replaced
// by others do not show.
func (b *Backend) Drift(context.Context) (string, error) {
	if b.model != nil {
		return b.driftOfModel(), nil
	}
	if b.kernel == nil || b.rules == nil {
		return "", errNotOpen
	}
	if found, err := b.outline(b.kernel.Sizes); err != nil || found != "" {
		return found, err
	}
	family, table := b.opts.Family, b.encoder.table
	for _, other := range tableNames {
		if _, there, err := b.kernel.Table(family, other); err != nil || there && other != table {
			return fmt.Sprintf("table %s is there too", other), err
		}
	}
	return b.countedRules()
}

// driftOfRules compares the rules by chain with what is expected.
func (r *Ruleset) driftOfRules(tally map[string]int) string {
	want := map[string]int{}
	for _, chain := range fixedChains {
		want[chain] = len(r.rules.fixed(chain))
	}
	for i := range baseChains {
		want[baseChains[i].name] = len(r.rules.fixed(baseChains[i].name))
	}
	for class, rules := range r.chains {
		want[class.Chain()] = rules
	}
	for chain, rules := range want {
		if have, there := tally[chain]; !there || have != rules {
			return fmt.Sprintf("chain %s has %d rules, not %d", chain, have, rules)
		}
	}
	for chain := range tally {
		if _, known := want[chain]; !known {
			return fmt.Sprintf("chain %s is nobody's", chain)
		}
	}
	return ""
}
