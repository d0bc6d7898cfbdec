package walk

import (
	"fmt"
	"maps"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
	"synclab/proxier/nftables/objects"
)

// CompileNftables compiles tables of nf_tables in memory. Packets cross the base chains of one priority in the order of
// their tables.
func CompileNftables(family corev1.IPFamily, tables ...*objects.Table) (*Rules, error) {
	n := newNftables(family)
	for _, t := range tables {
		if err := n.add(t); err != nil {
			return nil, fmt.Errorf("table %s: %w", t.Name, err)
		}
	}
	return n.rules()
}

// add adds a table's sets and chains, sorted by name.
func (n *nftables) add(t *objects.Table) error {
	for _, name := range slices.Sorted(maps.Keys(t.Sets)) {
		from := t.Sets[name]
		to := n.addSet(t.Name, nftSet{name: name, keySize: from.KeyLen, valueSize: from.ValueLen, verdicts: from.Verdicts})
		for key, e := range from.Elements {
			verdict := namedVerdict{code: int32(e.Verdict.Kind), chain: e.Verdict.Chain}
			to.listed = append(to.listed, nftElement{key: attributes(key), data: e.Value, verdict: verdict})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(t.Chains)) {
		from := t.Chains[name]
		var b *baseChain
		if from.Type != "" {
			b = &baseChain{kind: from.Type, hook: from.Hook, priority: from.Priority}
		}
		to, err := n.addChain(t.Name, name, b)
		if err != nil {
			return err
		}
		for _, exprs := range from.Rules {
			rule, err := n.marshal(exprs)
			if err != nil {
				return fmt.Errorf("chain %s: %w", name, err)
			}
			to.rules = append(to.rules, rule)
		}
	}
	return nil
}

// marshal returns a rule as the kernel reads it.
func (n *nftables) marshal(exprs []expr.Any) (rule attributes, err error) {
	protocol := byte(unix.NFPROTO_IPV6)
	if n.ipv4 {
		protocol = unix.NFPROTO_IPV4
	}
	for _, e := range exprs {
		text, err := expr.Marshal(protocol, e)
		if err != nil {
			return nil, fmt.Errorf("%T: %w", e, err)
		}
		rule = attr.Append(rule, unix.NFTA_LIST_ELEM, text)
	}
	return rule, nil
}
