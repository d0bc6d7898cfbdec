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

// Total counts the content of the table; elements count as rules.
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

var errNotOpen = errors.New("the backend has not synced yet")

// Fingerprint returns a fingerprint that external writes to the table change. While the kernel's generation is that of
// the last own commit, there were none. Other commits, such as those of the other family's proxier, most often change
// other tables: then Fingerprint compares the table's outline, but not its content.
func (b *Backend) Fingerprint() (backend.Fingerprint, error) {
	if b.model != nil {
		if b.model.ExternalWrites != b.seen { // as below
			if b.rules != nil && b.driftOfModel() != "" {
				b.externalWrites++
			} else {
				b.seen = b.model.ExternalWrites
			}
		}
		return backend.Fingerprint{b.model.ExternalWrites, b.externalWrites}, nil
	}
	if b.kernel == nil || b.rules == nil {
		return backend.Fingerprint{}, errNotOpen
	}
	generation, err := b.kernel.Generation()
	if err != nil {
		return backend.Fingerprint{}, err
	}
	if generation != b.generation+b.socket.commits {
		b.foreign = true
		found, err := b.outline(b.kernel.ReportedSizes) // counting would cost more than a sync
		if err != nil {
			return backend.Fingerprint{}, err
		}
		if found != "" {
			// The fingerprint changes until the table is repaired. A sync may have recorded this fingerprint after an
			// external write that it did not notice: the next fingerprint then differs.
			b.externalWrites++
			return backend.Fingerprint{b.handle, b.externalWrites}, nil
		}
	}
	b.generation, b.socket.commits = generation, 0
	return backend.Fingerprint{b.handle, b.externalWrites}, nil
}

// Others counts the external writes that Fingerprint found: a Fingerprint leaves out the own commits.
func (b *Backend) Others() (backend.Fingerprint, error) {
	return backend.Fingerprint{b.externalWrites}, nil
}

// Glance compares the rules of each chain with the expected ones, if there was an external commit since it last did so.
// A Fingerprint leaves that out because every sync reads it. There are some hundred rules, however large the cluster,
// and reading them takes longer than writing a few changes.
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

// countedRules compares the number of rules in each chain.
func (b *Backend) countedRules() (string, error) {
	tally, err := b.kernel.RulesByChain(b.opts.Family, b.encoder.table)
	if err != nil {
		return "", err
	}
	return b.rules.driftOfRules(tally), nil
}

// outline compares what the kernel reports of the table without a dump: its handle, the rules of the base chains, and
// the sizes of its sets as far as they are known.
func (b *Backend) outline(sizesOf func(corev1.IPFamily, string) ([]kernel.NftSize, error)) (string, error) {
	family, table := b.opts.Family, b.encoder.table
	handle, there, err := b.kernel.Table(family, table)
	switch {
	case err != nil:
		return "", err
	case !there:
		return fmt.Sprintf("table %s is missing", table), nil
	case handle != b.handle:
		return fmt.Sprintf("table %s was replaced", table), nil
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

// Drift counts the content of the table and describes the first difference; empty: none. It does not see elements that
// an external write replaced by others.
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
			return fmt.Sprintf("table %s exists too", other), err
		}
	}
	return b.countedRules()
}

// driftOfRules compares the number of rules in each chain with the expected one.
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
			return fmt.Sprintf("unexpected chain %s", chain)
		}
	}
	return ""
}
