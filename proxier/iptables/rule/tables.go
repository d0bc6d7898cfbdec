package rule

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Tables are the chains of one family, by table and name.
type Tables map[string]map[string]*Chain

// Chain is a chain of a table.
type Chain struct {
	Policy string // of a base chain; "-" of others
	Rules  []Rule
}

// ParseTables parses the output of iptables-save of either variant, with or without counters. Names in the result are
// parts of one copy of the text. Errors name the line, and the option of a rule.
func ParseTables(f corev1.IPFamily, text []byte) (Tables, error) {
	const many = 1024
	r := tablesReader{tables: Tables{}, parser: NewParser(f)}
	r.parser.many = many
	number := 0
	for line := range strings.Lines(string(text)) {
		number++
		if err := r.line(strings.Trim(line, " \t\r\n")); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if r.name != "" {
		return nil, fmt.Errorf("table %s has no COMMIT", r.name) // the output was cut off
	}
	return r.tables, nil
}

type tablesReader struct {
	tables Tables
	parser *Parser
	name   string // of the table; empty between tables
}

func (r *tablesReader) line(line string) error {
	switch {
	case line == "" || line[0] == '#':
		return nil
	case line[0] == '*' && r.name != "":
		return fmt.Errorf("table %s has no COMMIT", r.name)
	case line[0] == '*':
		if r.name = line[1:]; r.name == "" {
			return errors.New("a table without a name")
		}
		if r.tables[r.name] == nil {
			r.tables[r.name] = map[string]*Chain{}
		}
		return nil
	case r.name == "":
		return fmt.Errorf("%q is outside of a table", line)
	case line == "COMMIT":
		r.name = ""
		return nil
	case line[0] == ':':
		name, rest, _ := strings.Cut(line[1:], " ")
		policy, _, _ := strings.Cut(rest, " ")
		if name == "" || policy == "" {
			return fmt.Errorf("%q is not a chain", line)
		}
		r.tables[r.name][name] = &Chain{Policy: policy}
		return nil
	}
	name, rule, err := r.parser.Parse(line)
	if err != nil {
		return err
	}
	chain := r.tables[r.name][name]
	if chain == nil {
		return fmt.Errorf("chain %s is not declared: %q", name, line)
	}
	chain.Rules = append(chain.Rules, rule)
	return nil
}

// baseChains in the order in which iptables-save prints them.
var baseChains = []string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}

// Chains returns the names of a table's chains: the base chains first, as iptables-save prints them, then the others,
// sorted.
func (t Tables) Chains(table string) []string {
	return slices.SortedFunc(maps.Keys(t[table]), func(a, b string) int {
		if x, y := basePlace(a), basePlace(b); x != y {
			return x - y
		}
		return strings.Compare(a, b)
	})
}

// Clone returns a copy. Its rules can be inserted and deleted, but a rule's Matches are shared.
func (t Tables) Clone() Tables {
	c := make(Tables, len(t))
	for table, chains := range t {
		c[table] = make(map[string]*Chain, len(chains))
		for name, chain := range chains {
			c[table][name] = &Chain{Policy: chain.Policy, Rules: slices.Clone(chain.Rules)}
		}
	}
	return c
}

// basePlace returns the position of a base chain; those of all other chains are equal, behind it.
func basePlace(name string) int {
	if i := slices.Index(baseChains, name); i >= 0 {
		return i
	}
	return len(baseChains)
}
