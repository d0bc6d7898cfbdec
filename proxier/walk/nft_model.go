package walk

import (
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/attr"
)

// BaseChain is the hook of a base chain.
type BaseChain struct {
	Type     string // "filter", "nat" or "route"
	Hook     uint32 // NF_INET_PRE_ROUTING and so on
	Priority int32
	Drop     bool // policy
}

// Chain adds a chain, unless it exists; base is nil for a chain that is no base chain.
func (n *Nftables) Chain(table, name string, base *BaseChain) error {
	t := n.table(table)
	if t.chains[name] != nil {
		return nil
	}
	if base != nil && base.Hook > unix.NF_INET_POST_ROUTING {
		return fmt.Errorf("chain %s: hook %d is %w", name, base.Hook, errNotKnown)
	}
	c := &nftChain{table: t, name: name, index: int32(len(n.chains)), base: base}
	t.chains[name] = c
	n.chains = append(n.chains, c)
	return nil
}

// Rule adds a rule at the end of a chain.
func (n *Nftables) Rule(table, chain string, exprs []expr.Any) error {
	c := n.table(table).chains[chain]
	if c == nil {
		return fmt.Errorf("table %s: a rule of chain %s, which is not there", table, chain)
	}
	protocol := byte(unix.NFPROTO_IPV6)
	if n.ipv4 {
		protocol = unix.NFPROTO_IPV4
	}
	var list attributes
	for _, e := range exprs {
		text, err := expr.Marshal(protocol, e)
		if err != nil {
			return fmt.Errorf("table %s: chain %s: %T: %w", table, chain, e, err)
		}
		list = attr.Append(list, unix.NFTA_LIST_ELEM, text)
	}
	c.rules = append(c.rules, list)
	return nil
}

// Set adds a set or a map, unless it exists.
func (n *Nftables) Set(table string, form Set) {
	t := n.table(table)
	if t.sets[form.Name] != nil {
		return
	}
	s := &nftSet{Set: form, table: t, number: int32(len(n.sets))}
	t.sets[form.Name] = s
	n.sets = append(n.sets, s)
}

// Element adds an element; value is for maps only. Of two elements with the same key, the last counts.
func (n *Nftables) Element(table, set string, key, value []byte) error {
	return n.element(table, set, nftElement{key: slices.Clone(key), data: slices.Clone(value)})
}

// Verdict adds an element of a verdict map.
func (n *Nftables) Verdict(table, set string, key []byte, v expr.Verdict) error {
	return n.element(table, set, nftElement{key: slices.Clone(key), verdict: namedVerdict{code: int32(v.Kind), chain: v.Chain}})
}

func (n *Nftables) element(table, set string, e nftElement) error {
	s, err := n.table(table).setNamed(set)
	if err != nil {
		return fmt.Errorf("table %s: elements: %w", table, err)
	}
	s.listed = append(s.listed, e)
	return nil
}
