package iptables

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
)

// Model is a set of iptables tables in memory with the semantics of iptables-restore. It does not match packets.
type Model struct {
	family corev1.IPFamily
	tables rule.Tables
	// Fail, when set, is called before each payload. Its error fails the restore with nothing applied.
	Fail func(*Payload) error
	// Committed, when set, is called after each table of a payload. Its error kills the restore there.
	Committed func() error
}

// builtin chains by table.
var builtin = map[Table][]string{
	Filter: {"INPUT", "FORWARD", "OUTPUT"},
	NAT:    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	Mangle: {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
}

// NewModel makes empty tables.
func NewModel(family corev1.IPFamily) *Model { return ModelOf(family, rule.Tables{}) }

// ModelOf makes a Model with the given tables, which it may change. It adds missing tables and base chains.
func ModelOf(family corev1.IPFamily, tables rule.Tables) *Model {
	for table, chains := range builtin {
		if tables[string(table)] == nil {
			tables[string(table)] = map[string]*rule.Chain{}
		}
		for _, name := range chains {
			if tables[string(table)][name] == nil {
				tables[string(table)][name] = &rule.Chain{Policy: "ACCEPT"}
			}
		}
	}
	return &Model{family: family, tables: tables}
}

// Clone returns an independent copy, without Fail and Committed.
func (m *Model) Clone() *Model { return &Model{family: m.family, tables: m.tables.Clone()} }

// Family of the tables.
func (m *Model) Family() corev1.IPFamily { return m.family }

// Tables returns the content. Later restores change the maps, but not the chains in them.
func (m *Model) Tables() rule.Tables { return m.tables }

// Restore applies a payload, table by table. A table that fails stays unchanged; the tables before it are applied.
func (m *Model) Restore(_ context.Context, p *Payload) (Run, error) {
	run := Run{Tool: "model", Bytes: p.Size()}
	if m.Fail != nil {
		if err := m.Fail(p); err != nil {
			run.ExitCode = 1
			return run, err
		}
	}
	line, err := m.apply(p.Text())
	if err != nil {
		run.ExitCode = 1
		if line == 0 {
			run.ExitCode = -1
		}
		return run, &RestoreError{Tool: run.Tool, ExitCode: run.ExitCode, Line: line, Owner: p.OwnerOf(line), Err: err}
	}
	return run, nil
}

func (m *Model) apply(text []byte) (line int, err error) {
	var t *transaction
	parser := rule.NewParser(m.family)
	for b := range bytes.Lines(text) { // a string for each line, or a rule would keep the whole payload in memory
		line++
		text := string(bytes.TrimSuffix(b, []byte("\n")))
		switch {
		case strings.HasPrefix(text, "*"):
			t = &transaction{table: text[1:], chains: maps.Clone(m.tables[text[1:]]), own: map[string]bool{}, parser: parser}
		case t == nil:
			return line, fmt.Errorf("%q is outside of a table", text)
		case text == "COMMIT":
			if err := t.checkJumps(); err != nil {
				return line, err
			}
			m.tables[t.table], t = t.chains, nil
			if m.Committed != nil {
				if err := m.Committed(); err != nil {
					return 0, err
				}
			}
		default:
			if err := t.line(text); err != nil {
				return line, err
			}
		}
	}
	return line, nil
}

// transaction changes one table. The chains of own are not those of the Model.
type transaction struct {
	table  string
	chains map[string]*rule.Chain
	own    map[string]bool
	parser *rule.Parser
}

func (t *transaction) line(text string) error {
	switch {
	case strings.HasPrefix(text, ":"):
		name, _, _ := strings.Cut(text[1:], " ")
		policy := "-"
		if c := t.chains[name]; c != nil {
			policy = c.Policy
		}
		t.chains[name], t.own[name] = &rule.Chain{Policy: policy}, true
	case strings.HasPrefix(text, "-A "):
		name, r, err := t.parser.Parse(text)
		if err != nil {
			return err
		}
		c := t.chains[name]
		if c == nil {
			return fmt.Errorf("no chain %s in %s", name, t.table)
		}
		if !t.own[name] {
			c = &rule.Chain{Policy: c.Policy, Rules: slices.Clone(c.Rules)}
			t.chains[name], t.own[name] = c, true
		}
		c.Rules = append(c.Rules, r)
	case strings.HasPrefix(text, "-X "):
		return t.deleteChain(text[3:])
	default:
		return fmt.Errorf("cannot parse the line %q", text)
	}
	return nil
}

func (t *transaction) deleteChain(name string) error {
	c := t.chains[name]
	switch {
	case c == nil:
		return fmt.Errorf("no chain %s in %s", name, t.table)
	case len(c.Rules) > 0:
		return fmt.Errorf("chain %s in %s is not empty", name, t.table)
	}
	for from, c := range t.chains {
		for i := range c.Rules {
			if c.Rules[i].Target.Chain == name {
				return fmt.Errorf("chain %s in %s is referred to by %s", name, t.table, from)
			}
		}
	}
	delete(t.chains, name)
	return nil
}

func (t *transaction) checkJumps() error {
	for name, c := range t.chains {
		for i := range c.Rules {
			if to := &c.Rules[i].Target; to.Kind == rule.TargetJump && t.chains[to.Chain] == nil {
				return fmt.Errorf("chain %s jumps to the missing chain %s", name, to.Chain)
			}
		}
	}
	return nil
}

// EnsureJumps creates missing base chains and missing jumps to them.
func (m *Model) EnsureJumps(context.Context, map[Table][]string) error {
	for table := range builtin {
		chains := m.tables[string(table)]
		for _, name := range fixedBase(table) {
			if chains[name] == nil {
				chains[name] = &rule.Chain{Policy: "-"}
			}
		}
		base := baseJumps(table, m.family)
		at := positions(base, rulesOf(chains))
		for i, j := range base {
			if at[i] < 0 {
				c := chains[j.from]
				chains[j.from] = &rule.Chain{Policy: c.Policy, Rules: slices.Insert(slices.Clone(c.Rules), place(base, at, i), j.Rule)}
			}
		}
	}
	return nil
}

func rulesOf(chains map[string]*rule.Chain) map[string][]rule.Rule {
	rules := make(map[string][]rule.Rule, len(chains))
	for name, c := range chains {
		rules[name] = c.Rules
	}
	return rules
}

// Chains returns the names of the user-defined chains of a table.
func (m *Model) Chains(table Table) ([]string, error) {
	var names []string
	for name := range m.tables[string(table)] {
		if !slices.Contains(builtin[table], name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Fingerprint returns a hash of the content of all tables.
func (m *Model) Fingerprint() (Fingerprint, error) {
	h := fnv.New64a()
	if err := m.Save(h); err != nil {
		return Fingerprint{}, err
	}
	return Fingerprint{h.Sum64()}, nil
}

// Others counts rules once and chains twice, minus those of own, as Installed does.
func (m *Model) Others(own map[Table]Count) (others Fingerprint, err error) {
	for n, table := range []Table{NAT, Filter, Mangle} {
		chains := m.tables[string(table)]
		entries := 2 * (len(chains) - own[table].Chains)
		for _, c := range chains {
			entries += len(c.Rules)
		}
		others[n] = uint64(entries - own[table].Rules)
	}
	return others, nil
}

// Drift compares the tables with the expected content, at once: a later restore changes the model.
func (m *Model) Drift(want Expected) backend.Comparison { return backend.Compared(m.drift(want), nil) }

func (m *Model) drift(want Expected) string {
	for _, table := range []Table{Mangle, NAT, Filter} {
		tally := map[string]int{}
		for name, c := range m.tables[string(table)] {
			tally[name] = len(c.Rules)
		}
		if found := driftIn(table, tally, want); found != "" {
			return found
		}
	}
	for _, j := range jumps {
		jump := j.rule(m.family)
		if !slices.ContainsFunc(m.Chain(j.table, j.from), func(r rule.Rule) bool { return r.Equal(&jump) }) {
			return fmt.Sprintf("jump from %s to %s in %s is missing", j.from, j.to, j.table)
		}
	}
	return ""
}

// Flush empties the chains of a table, as iptables -F does.
func (m *Model) Flush(table Table) {
	for name, c := range m.tables[string(table)] {
		m.tables[string(table)][name] = &rule.Chain{Policy: c.Policy}
	}
}

// Rules returns the rules of the named chains of a table by chain, or of all chains when none is named.
func (m *Model) Rules(table Table, chains ...string) (map[string][]rule.Rule, error) {
	if len(chains) == 0 {
		return rulesOf(m.tables[string(table)]), nil
	}
	rules := map[string][]rule.Rule{}
	for _, name := range chains {
		c := m.tables[string(table)][name]
		if c == nil {
			return nil, fmt.Errorf("chain %s in %s: there is no such chain", name, table) // the tools fail too
		}
		rules[name] = c.Rules
	}
	return rules, nil
}

// Chain returns the rules of a chain; none if the chain does not exist.
func (m *Model) Chain(table Table, name string) []rule.Rule {
	if c := m.tables[string(table)][name]; c != nil {
		return c.Rules
	}
	return nil
}

// Save writes the tables in the format of iptables-save, with sorted chains and counters of zero.
func (m *Model) Save(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, table := range []Table{Mangle, Filter, NAT} {
		chains := m.tables[string(table)]
		fmt.Fprintf(b, "*%s\n", table)
		for _, name := range m.tables.Chains(string(table)) {
			fmt.Fprintf(b, ":%s %s [0:0]\n", name, chains[name].Policy)
		}
		for _, name := range slices.Sorted(maps.Keys(chains)) {
			for i := range chains[name].Rules {
				line := append(append(b.AvailableBuffer(), "-A "...), name...)
				b.Write(append(chains[name].Rules[i].Append(line), '\n'))
			}
		}
		fmt.Fprintln(b, "COMMIT")
	}
	return b.Flush()
}
