package nftables

import (
	"maps"
	"slices"

	"synclab/proxier/walk"
)

// Rules compiles the model for the ruleset evaluator.
func (m *Model) Rules() (*walk.Rules, error) {
	n := walk.NewNftables(m.Family)
	if err := m.fill(n, func(string) *Model { return m }); err != nil {
		return nil, err
	}
	return n.Rules()
}

// AddTo adds the table to others.
func (m *Model) AddTo(n *walk.Nftables) error { return m.fill(n, func(string) *Model { return m }) }

// fill adds the table to others, with the sets of other models of the same table: these are what a packet sees that is
// on its way when a transaction is committed.
func (m *Model) fill(n *walk.Nftables, of func(set string) *Model) error {
	for _, name := range slices.Sorted(maps.Keys(m.Sets)) {
		s := of(name).Sets[name]
		n.Set(m.Name, walk.Set{Name: name, KeySize: s.KeyLen, ValueSize: s.ValueLen, Verdicts: s.Verdicts})
		for key, e := range s.Elements {
			var err error
			if s.Verdicts {
				err = n.Verdict(m.Name, name, []byte(key), e.Verdict)
			} else {
				err = n.Element(m.Name, name, []byte(key), e.Value)
			}
			if err != nil {
				return err
			}
		}
	}
	names := slices.Sorted(maps.Keys(m.Chains))
	for _, name := range names {
		c := m.Chains[name]
		var base *walk.BaseChain
		if c.Type != "" {
			base = &walk.BaseChain{Type: c.Type, Hook: c.Hook, Priority: c.Priority}
		}
		if err := n.Chain(m.Name, name, base); err != nil {
			return err
		}
	}
	for _, name := range names {
		for _, rule := range m.Chains[name].Rules {
			if err := n.Rule(m.Name, name, rule); err != nil {
				return err
			}
		}
	}
	return nil
}
