package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
		found, err := b.expected().outline(b.kernel, b.kernel.ReportedSizes) // counting would cost more than a sync
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
	want := b.expected()
	want.chains = b.rules.chains
	found, err := want.countedRules(b.kernel)
	if err == nil && found == "" {
		b.foreign = false
	}
	return found, err
}

// expected is the table as the last sync left it. It shares nothing that a sync changes.
type expected struct {
	family   corev1.IPFamily
	table    string
	handle   uint64
	rules    *rules
	elements [sets]int
	chains   map[Class]int // of classes, with the number of their rules; nil: not compared
}

func (b *Backend) expected() *expected {
	return &expected{family: b.opts.Family, table: b.encoder.table, handle: b.handle, rules: b.rules.rules, elements: b.rules.elements}
}

// outline compares what the kernel reports of the table without a dump: its handle, the rules of the base chains, and
// the sizes of its sets as far as they are known.
func (e *expected) outline(k *kernel.Nftables, sizesOf func(corev1.IPFamily, string) ([]kernel.NftSize, error)) (string, error) {
	handle, there, err := k.Table(e.family, e.table)
	switch {
	case err != nil:
		return "", err
	case !there:
		return fmt.Sprintf("table %s is missing", e.table), nil
	case handle != e.handle:
		return fmt.Sprintf("table %s was replaced", e.table), nil
	}
	for i := range baseChains {
		name := baseChains[i].name
		rules, there, err := k.Uses(e.family, e.table, name)
		if err != nil {
			return "", err
		}
		if want := len(e.rules.fixed(name)); !there || rules != want {
			return fmt.Sprintf("chain %s has %d rules, not %d", name, rules, want), nil
		}
	}
	sizes, err := sizesOf(e.family, e.table)
	if err != nil {
		return "", err
	}
	have := map[string]int{}
	for _, size := range sizes {
		have[size.Set] = size.Elements
	}
	for s := range sets {
		n, there := have[s.String()]
		if !there || s != setAffinity && n >= 0 && n != e.elements[s] { // packets write affinity
			return fmt.Sprintf("set %s has %d elements, not %d", s, n, e.elements[s]), nil
		}
	}
	return "", nil
}

// Drift returns a comparison that counts the content of the table. It does not see elements that an external write
// replaced by others.
func (b *Backend) Drift() backend.Comparison {
	if b.model != nil {
		return backend.Compared(b.driftOfModel(), nil)
	}
	if b.kernel == nil || b.rules == nil {
		return backend.Compared("", errNotOpen)
	}
	want, k := b.expected(), b.beside
	want.chains = maps.Clone(b.rules.chains)
	return func(context.Context) (string, error) { return want.compare(k) }
}

func (e *expected) compare(k *kernel.Nftables) (string, error) {
	if found, err := e.outline(k, k.Sizes); err != nil || found != "" {
		return found, err
	}
	for _, other := range tableNames {
		if _, there, err := k.Table(e.family, other); err != nil || there && other != e.table {
			return fmt.Sprintf("table %s exists too", other), err
		}
	}
	return e.countedRules(k)
}

// countedRules compares the number of rules in each chain.
func (e *expected) countedRules(k *kernel.Nftables) (string, error) {
	tally, err := k.RulesByChain(e.family, e.table)
	if err != nil {
		return "", err
	}
	return driftOfRules(e.rules, e.chains, tally), nil
}

// driftOfRules compares the number of rules in each chain with the expected one.
func driftOfRules(r *rules, classes map[Class]int, tally map[string]int) string {
	want := map[string]int{}
	for _, chain := range fixedChains {
		want[chain] = len(r.fixed(chain))
	}
	for i := range baseChains {
		want[baseChains[i].name] = len(r.fixed(baseChains[i].name))
	}
	for class, rules := range classes {
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
