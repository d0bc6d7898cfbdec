package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Model is a set of iptables tables in memory with the semantics of iptables-restore. Rules are stored as iptables-save
// prints them. It does not match packets.
type Model struct {
	family corev1.IPFamily
	tables map[Table]map[string][]string
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
func NewModel(family corev1.IPFamily) *Model {
	m := &Model{family: family, tables: map[Table]map[string][]string{}}
	for table, chains := range builtin {
		m.tables[table] = map[string][]string{}
		for _, chain := range chains {
			m.tables[table][chain] = nil
		}
	}
	return m
}

// Clone returns an independent copy, without Fail and Committed.
func (m *Model) Clone() *Model {
	c := &Model{family: m.family, tables: map[Table]map[string][]string{}}
	for table, chains := range m.tables {
		c.tables[table] = maps.Clone(chains)
	}
	return c
}

// Family of the tables.
func (m *Model) Family() corev1.IPFamily { return m.family }

// Restore applies a payload, table by table. A table that fails stays unchanged; the tables before it are applied.
func (m *Model) Restore(_ context.Context, p *Payload) (Run, error) {
	run := Run{Tool: "model", Bytes: p.Size()}
	if m.Fail != nil {
		if err := m.Fail(p); err != nil {
			run.ExitCode = 1
			return run, err
		}
	}
	line, err := m.apply(bytes.NewReader(p.Text()))
	if err != nil {
		run.ExitCode = 1
		if line == 0 {
			run.ExitCode = -1
		}
		return run, &RestoreError{Tool: run.Tool, ExitCode: run.ExitCode, Line: line, Owner: p.OwnerOf(line), Err: err}
	}
	return run, nil
}

func (m *Model) apply(r io.Reader) (line int, err error) {
	var table Table
	var chains map[string][]string
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		line++
		text := scanner.Text()
		switch {
		case strings.HasPrefix(text, "*"):
			table = Table(text[1:])
			chains = maps.Clone(m.tables[table])
		case text == "COMMIT":
			if err := checkJumps(chains); err != nil {
				return line, err
			}
			m.tables[table] = chains
			if m.Committed != nil {
				if err := m.Committed(); err != nil {
					return 0, err
				}
			}
		default:
			if err := m.line(table, chains, text); err != nil {
				return line, err
			}
		}
	}
	return line, scanner.Err()
}

func (m *Model) line(table Table, chains map[string][]string, text string) error {
	switch {
	case strings.HasPrefix(text, ":"):
		name, _, _ := strings.Cut(text[1:], " ")
		chains[name] = nil
	case strings.HasPrefix(text, "-A "):
		chain := strings.Fields(text)[1]
		if _, there := chains[chain]; !there {
			return fmt.Errorf("no chain %s in %s", chain, table)
		}
		chains[chain] = append(slices.Clip(chains[chain]), Canonical(text, m.family))
	case strings.HasPrefix(text, "-X "):
		chain := text[3:]
		if _, there := chains[chain]; !there {
			return fmt.Errorf("no chain %s in %s", chain, table)
		}
		if len(chains[chain]) > 0 {
			return fmt.Errorf("chain %s in %s is not empty", chain, table)
		}
		if user := referrer(chains, chain); user != "" {
			return fmt.Errorf("chain %s in %s is referred to by %s", chain, table, user)
		}
		delete(chains, chain)
	default:
		return fmt.Errorf("cannot parse the line %q", text)
	}
	return nil
}

// jumpTarget of a rule; empty when it has none.
func jumpTarget(rule string) string {
	_, after, ok := strings.Cut(rule, " -j ")
	if !ok {
		_, after, ok = strings.Cut(rule, " -g ")
	}
	if !ok {
		return ""
	}
	target, _, _ := strings.Cut(after, " ")
	return target
}

func referrer(chains map[string][]string, target string) string {
	for name, rules := range chains {
		for _, rule := range rules {
			if jumpTarget(rule) == target {
				return name
			}
		}
	}
	return ""
}

// targets are the verdicts and extensions that a rule may end in.
var targets = map[string]bool{
	"ACCEPT": true, "DROP": true, "RETURN": true, "REJECT": true, "MARK": true, "MASQUERADE": true, "DNAT": true, "": true,
}

func checkJumps(chains map[string][]string) error {
	for name, rules := range chains {
		for _, rule := range rules {
			if target := jumpTarget(rule); !targets[target] {
				if _, there := chains[target]; !there {
					return fmt.Errorf("chain %s jumps to the missing chain %s", name, target)
				}
			}
		}
	}
	return nil
}

// EnsureJumps creates missing base chains and missing jumps to them.
func (m *Model) EnsureJumps(context.Context) error {
	for _, chains := range m.tables {
		if _, there := chains[chainCanary]; !there {
			chains[chainCanary] = nil
		}
	}
	for table, chains := range m.tables {
		base := BaseJumps(table)
		at := places(base, slices.Concat(slices.Collect(maps.Values(chains))...), m.family)
		for i, j := range base {
			if _, there := chains[j.To]; !there {
				chains[j.To] = nil
			}
			if at[i] < 0 {
				rule := Canonical("-A "+j.From+" "+j.Rule, m.family)
				chains[j.From] = slices.Insert(slices.Clone(chains[j.From]), Place(base, at, i), rule)
			}
		}
	}
	return nil
}

func (m *Model) jumpRule(j jump) string {
	var l lines
	spec := j.spec()
	for i, word := range spec {
		if strings.Contains(word, " ") {
			spec[i] = `"` + word + `"`
		}
	}
	l.rule(j.from, "", spec...)
	return Canonical(strings.TrimSpace(string(l.text)), m.family)
}

// Chains returns the names of the user-defined chains of a table.
func (m *Model) Chains(table Table) ([]string, error) {
	var names []string
	for name := range m.tables[table] {
		if !slices.Contains(builtin[table], name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// Stamp returns a hash of the content of all tables.
func (m *Model) Stamp() (Stamp, error) {
	h := fnv.New64a()
	if err := m.Save(h); err != nil {
		return Stamp{}, err
	}
	return Stamp{h.Sum64()}, nil
}

// Others counts rules once and chains twice, minus those of own, as Installed does.
func (m *Model) Others(own map[Table]Count) (others Stamp, err error) {
	for n, table := range []Table{NAT, Filter, Mangle} {
		entries := 2 * (len(m.tables[table]) - own[table].Chains)
		for _, rules := range m.tables[table] {
			entries += len(rules)
		}
		others[n] = uint64(entries - own[table].Rules)
	}
	return others, nil
}

// Drift compares the tables with the expected content.
func (m *Model) Drift(_ context.Context, want Expected) (string, error) {
	for _, table := range []Table{Mangle, NAT, Filter} {
		tally := map[string]int{}
		for chain, rules := range m.tables[table] {
			tally[chain] = len(rules)
		}
		if found := driftIn(table, tally, want); found != "" {
			return found, nil
		}
	}
	for _, j := range jumps {
		if !slices.Contains(m.tables[j.table][j.from], m.jumpRule(j)) {
			return fmt.Sprintf("jump from %s to %s in %s is missing", j.from, j.to, j.table), nil
		}
	}
	return "", nil
}

// Flush empties the chains of a table, as iptables -F does.
func (m *Model) Flush(table Table) {
	for chain := range m.tables[table] {
		m.tables[table][chain] = nil
	}
}

// Rules returns the rules of the named chains of a table, or of all chains when none is named.
func (m *Model) Rules(table Table, chains ...string) ([]string, error) {
	if len(chains) == 0 {
		chains = slices.Sorted(maps.Keys(m.tables[table]))
	}
	var rules []string
	for _, c := range chains {
		own, there := m.tables[table][c]
		if !there && !slices.Contains(builtin[table], c) {
			return nil, fmt.Errorf("chain %s in %s: there is no such chain", c, table) // the tools fail too
		}
		rules = append(rules, own...)
	}
	return rules, nil
}

// Chain returns the rules of a chain as iptables-save prints them, and whether the chain exists.
func (m *Model) Chain(table Table, chain string) ([]string, bool) {
	rules, there := m.tables[table][chain]
	return rules, there
}

// Save writes the tables in the format of iptables-save, with sorted chains and counters of zero.
func (m *Model) Save(w io.Writer) error {
	b := bufio.NewWriter(w)
	for _, table := range []Table{Mangle, Filter, NAT} {
		fmt.Fprintf(b, "*%s\n", table)
		names := slices.Sorted(maps.Keys(m.tables[table]))
		for _, chain := range builtin[table] {
			fmt.Fprintf(b, ":%s ACCEPT [0:0]\n", chain)
		}
		for _, chain := range names {
			if !slices.Contains(builtin[table], chain) {
				fmt.Fprintf(b, ":%s - [0:0]\n", chain)
			}
		}
		for _, chain := range names {
			for _, rule := range m.tables[table][chain] {
				fmt.Fprintln(b, rule)
			}
		}
		fmt.Fprintln(b, "COMMIT")
	}
	return b.Flush()
}

// ReadSaved reads the output of iptables-save into a Model, in canonical form.
func ReadSaved(r io.Reader, family corev1.IPFamily) (*Model, error) {
	m := NewModel(family)
	var table map[string][]string
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		text := scanner.Text()
		switch {
		case text == "" || text[0] == '#' || text == "COMMIT":
		case text[0] == '*':
			table = m.tables[Table(text[1:])]
			if table == nil {
				table = map[string][]string{}
				m.tables[Table(text[1:])] = table
			}
		case table == nil:
			return nil, errors.New("iptables-save output has a rule before its *table line")
		case text[0] == ':':
			name, _, _ := strings.Cut(text[1:], " ")
			table[name] = nil
		default:
			chain := strings.Fields(text)[1]
			table[chain] = append(table[chain], Canonical(text, family))
		}
	}
	return m, scanner.Err()
}
