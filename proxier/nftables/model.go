package nftables

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/google/nftables/expr"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/nftables/objects"
)

// Model is one table in memory: the kernel's content after the same transactions. The ruleset evaluator evaluates it.
// It refuses what the kernel would refuse.
type Model struct {
	objects.Table
	Family corev1.IPFamily
	Exists bool

	// Committed, when set, is called after every transaction.
	Committed func(*Model)
	// Fail, when set, is called before each sync writes. Its error fails the sync with nothing written. With Fail, the
	// model refuses a transaction as a whole, as the kernel does, and the sync writes everything.
	Fail func(context.Context) error
	// ExternalWrites counts external writes to the model.
	ExternalWrites uint64
	err            error
}

// NewModel returns a Model without a table.
func NewModel(family corev1.IPFamily) *Model {
	return &Model{Family: family, Table: objects.Table{Name: tableNames[0]}}
}

// Clone returns a copy. It shares rules and values, which never change.
func (m *Model) Clone() *Model {
	c := *m
	c.Table = m.Table.Clone()
	return &c
}

func (m *Model) fail(format string, args ...any) {
	if m.err == nil {
		m.err = fmt.Errorf("table %s: "+format, append([]any{m.Name}, args...)...)
	}
}

func (m *Model) createTable() {
	if m.Exists {
		m.fail("already exists")
	}
	m.Exists, m.Chains, m.Sets = true, map[string]*objects.Chain{}, map[string]*objects.Set{}
}

func (m *Model) deleteTable() { m.Exists, m.Chains, m.Sets = false, nil, nil }

func (m *Model) createSet(s set) {
	m.Sets[s.String()] = &objects.Set{
		KeyLen: s.keyLen(m.Family), ValueLen: s.valueLen(m.Family), Verdicts: s.verdicts(),
		Dynamic: specs[s].dynamic, Elements: map[string]objects.Element{},
	}
}

func (m *Model) createChain(name string, h *hook) {
	if m.Chains[name] != nil {
		m.fail("chain %s already exists", name)
	}
	c := &objects.Chain{}
	if h != nil {
		c.Type, c.Hook, c.Priority = h.typ, h.number, h.priority
	}
	m.Chains[name] = c
}

func (m *Model) deleteChain(name string) {
	c := m.Chains[name]
	if c == nil || len(c.Rules) > 0 || m.leadsTo(name) {
		m.fail("chain %s is in use or missing", name)
	}
	delete(m.Chains, name)
}

// leadsTo reports whether a rule or an element jumps to a chain.
func (m *Model) leadsTo(name string) bool {
	for _, c := range m.Chains {
		for _, rule := range c.Rules {
			for _, e := range rule {
				if v, ok := e.(*expr.Verdict); ok && v.Chain == name {
					return true
				}
			}
		}
	}
	for _, s := range m.Sets {
		for _, e := range s.Elements {
			if s.Verdicts && e.Verdict.Chain == name {
				return true
			}
		}
	}
	return false
}

func (m *Model) flush(chain string) {
	if m.Chains[chain] == nil {
		m.fail("chain %s is missing", chain)
		return
	}
	m.Chains[chain].Rules = nil
}

func (m *Model) rule(chain string, exprs []expr.Any) {
	c := m.Chains[chain]
	if c == nil {
		m.fail("chain %s is missing", chain)
		return
	}
	for _, e := range exprs {
		switch e := e.(type) {
		case *expr.Verdict:
			if e.Chain != "" && m.Chains[e.Chain] == nil {
				m.fail("chain %s: chain %s is missing", chain, e.Chain)
			}
		case *expr.Lookup:
			if m.Sets[e.SetName] == nil {
				m.fail("chain %s: set %s is missing", chain, e.SetName)
			}
		}
	}
	c.Rules = append(c.Rules, exprs)
}

func (m *Model) add(s set, elements []byte) {
	to := m.Sets[s.String()]
	for e := range slices.Chunk(elements, to.KeyLen+to.ValueLen) {
		key, value := string(e[:to.KeyLen]), slices.Clone(e[to.KeyLen:])
		if old, there := to.Elements[key]; there && !bytes.Equal(old.Value, value) {
			m.fail("set %s: element %x already exists with another value", s, key)
		}
		to.Elements[key] = objects.Element{Value: value}
	}
}

func (m *Model) addVerdict(s set, key []byte, v expr.Verdict) {
	if v.Chain != "" && m.Chains[v.Chain] == nil {
		m.fail("set %s: chain %s is missing", s, v.Chain)
	}
	m.Sets[s.String()].Elements[string(key)] = objects.Element{Verdict: v}
}

func (m *Model) remove(s set, keys []byte) {
	from := m.Sets[s.String()]
	for key := range slices.Chunk(keys, from.KeyLen) {
		if _, there := from.Elements[string(key)]; !there {
			m.fail("set %s: element %x is missing", s, key)
		}
		delete(from.Elements, string(key))
	}
}

func (m *Model) commit() error {
	if m.err == nil && m.Committed != nil {
		m.Committed(m)
	}
	return m.err
}
