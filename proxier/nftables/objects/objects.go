// Package objects has the content of one table of nf_tables as data. Model of package nftables keeps such a table in
// memory, and the ruleset evaluator compiles it.
//
// Not modelled: what the proxier's table does not use, such as intervals, counters and policies.
package objects

import (
	"maps"
	"slices"

	"github.com/google/nftables/expr"
)

// Table with its chains and its sets, by name.
type Table struct {
	Name   string
	Chains map[string]*Chain
	Sets   map[string]*Set
}

// Chain of a Table.
type Chain struct {
	// Type is "nat" or "filter" and Hook NF_INET_* for a base chain. Other chains have no Type.
	Type     string
	Hook     uint32
	Priority int32
	Rules    [][]expr.Any
}

// Set or map of a Table.
type Set struct {
	KeyLen, ValueLen int // bytes; of a set and of a map of verdicts, ValueLen is 0
	Verdicts         bool
	Dynamic          bool // written by rules
	Elements         map[string]Element
}

// Element of a Set: its value or its verdict.
type Element struct {
	Value   []byte
	Verdict expr.Verdict
}

// Clone returns a copy. It shares rules and values, which never change.
func (t *Table) Clone() Table {
	c := Table{Name: t.Name, Chains: map[string]*Chain{}, Sets: map[string]*Set{}}
	for name, chain := range t.Chains {
		copied := *chain
		copied.Rules = slices.Clone(chain.Rules)
		c.Chains[name] = &copied
	}
	for name, s := range t.Sets {
		copied := *s
		copied.Elements = maps.Clone(s.Elements)
		c.Sets[name] = &copied
	}
	return c
}
