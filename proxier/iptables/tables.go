package iptables

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/iptables/rule"
	"synclab/proxier/kernel"
)

// Tables are the iptables tables that a proxier writes: those of the kernel (Host) or a model of them (Model).
type Tables interface {
	// Restore applies a payload, atomically for each table.
	Restore(ctx context.Context, p *Payload) (Run, error)
	// EnsureJumps creates missing base chains and missing jumps to them. existing are the present user-defined chains of nat
	// and filter: of a table without chains, it expects no jumps.
	EnsureJumps(ctx context.Context, existing map[Table][]string) error
	// Chains returns the names of the user-defined chains of a table.
	Chains(table Table) ([]string, error)
	// Rules returns the rules of the named chains of a table by chain, or of all chains when none is named.
	Rules(table Table, chains ...string) (map[string][]rule.Rule, error)
	// ChainRules opens the rules of nat, to follow jumps from chain to chain.
	ChainRules() (ChainRules, error)
	// Fingerprint returns a fingerprint that changes when a table may have changed. Comparing two costs next to
	// nothing.
	Fingerprint() (Fingerprint, error)
	// Others returns a fingerprint that changes only with external writes. own is the content that the proxier wrote.
	Others(own map[Table]Count) (Fingerprint, error)
	// Drift returns a comparison of the tables with the expected content.
	Drift(want Expected) backend.Comparison
}

// Expected is the table content without external writes.
type Expected struct {
	// Chains of the proxier, by table, with the number of rules in each.
	Chains map[Table]map[string]int
	// Stuck chains may exist without rules.
	Stuck map[Table]map[string]bool
	// Firewall: KUBE-FIREWALL has a rule of the proxier, besides the kubelet's rules.
	Firewall bool
}

// Installed reads the tables of the network namespace that the process is in. Only Rules runs a tool.
type Installed struct {
	Variant Variant
	Family  corev1.IPFamily
}

// Host writes the tables of the network namespace that the process is in, with the iptables tools.
type Host struct {
	*Restorer
	*Jumps
	Installed
}

// NewHost finds the tools of a variant and family.
func NewHost(opts RestorerOptions) (*Host, error) {
	restorer, err := NewRestorer(opts)
	if err != nil {
		return nil, err
	}
	jumps, err := NewJumps(opts.Variant, opts.Family)
	if err != nil {
		return nil, err
	}
	return &Host{restorer, jumps, Installed{opts.Variant, opts.Family}}, nil
}

// EnsureJumps creates missing base chains and missing jumps to them, in one restore.
func (h *Host) EnsureJumps(ctx context.Context, existing map[Table][]string) error {
	p := &Payload{Written: map[Table]Count{}}
	mangle, err := h.Chains(Mangle)
	if err != nil {
		return fmt.Errorf("listing the chains of mangle: %w", err)
	}
	for _, table := range []Table{Mangle, NAT, Filter} {
		if ctx.Err() != nil {
			return fmt.Errorf("jumps in %s: %w", table, context.Cause(ctx))
		}
		chains := existing[table]
		if table == Mangle {
			chains = mangle
		}
		var rules map[string][]rule.Rule
		switch from := baseChains(table); {
		case len(chains) == 0 || len(from) == 0: // without chains there are no jumps to them
		case table == Filter:
			rules, err = h.Rules(table) // all chains: one run of the tool
		default:
			rules, err = h.Rules(table, from...)
		}
		if err != nil {
			return fmt.Errorf("jumps in %s: %w", table, err)
		}
		missingBase(p, table, h.Family, chains, rules)
	}
	if p.Size() == 0 {
		return nil
	}
	if _, err := h.Restore(ctx, p); err != nil {
		return fmt.Errorf("base chains and jumps: %w", err)
	}
	return nil
}

// Chains returns the names of the user-defined chains of a table.
func (i Installed) Chains(table Table) ([]string, error) {
	chains, err := kernel.Chains(string(i.Variant), i.Family, string(table))
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(chains))
	for _, c := range chains {
		if !c.Builtin {
			names = append(names, c.Name)
		}
	}
	return names, nil
}

// oneByOne decides how the nft variant reads chains. To print a table, the tool searches its list from the start for
// each chain: the time grows with the square of the chains. Printing one chain alone takes as long as oneByOne steps of
// that search. Measured with iptables 1.8.9: some 10 ns a step and 2 ms a chain.
const oneByOne = 200_000

// fewChains is the number of chains that are read one by one whatever the size of the table.
const fewChains = 16

// Rules returns the rules of the named chains of a table by chain, or of all chains when none is named. It runs the
// tool once, or once for each chain. The legacy variant reads the whole table each time. The nft variant needs minutes
// to print a large one.
func (i Installed) Rules(table Table, chains ...string) (map[string][]rule.Rule, error) {
	rules, parser := map[string][]rule.Rule{}, rule.NewParser(i.Family)
	asked := make(map[string]bool, len(chains))
	for _, c := range chains {
		asked[c] = true
	}
	// The legacy tool prints the rules of built-in chains first.
	only := i.Variant == Legacy && len(chains) > 0 && !slices.ContainsFunc(chains, func(c string) bool { return !slices.Contains(builtin[table], c) })
	run := func(tool string, args ...string) error {
		path, err := FindBinary(Binary(i.Variant, i.Family, tool))
		if err != nil {
			return err
		}
		err = eachLine(exec.Command(path, append(args, "-t", string(table))...), func(line []byte) (more bool) {
			text, isRule := bytes.CutPrefix(line, []byte("-A "))
			chain, _, _ := bytes.Cut(text, []byte(" "))
			if isRule && (len(chains) == 0 || asked[string(chain)]) {
				name, r := parseRule(parser, string(line))
				rules[name] = append(rules[name], r)
			}
			return !isRule || !only || slices.Contains(builtin[table], string(chain))
		})
		if err != nil {
			return fmt.Errorf("reading %s: %s: %w", table, path, err)
		}
		return nil
	}
	whole, err := i.readWhole(table, len(chains))
	if err != nil {
		return nil, err
	}
	if whole {
		return rules, run("save")
	}
	for _, c := range chains {
		if err := run("", "-w", "5", "-S", c); err != nil {
			return nil, fmt.Errorf("chain %s: %w", c, err)
		}
	}
	return rules, nil
}

// eachLine calls yield with the lines that a command prints, without their ends, until yield wants no more of them.
func eachLine(cmd *exec.Cmd, yield func(line []byte) (more bool)) error {
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	lines, enough := bufio.NewScanner(out), false
	lines.Buffer(nil, 1<<20)
	for !enough && lines.Scan() {
		enough = !yield(lines.Bytes())
	}
	if enough || lines.Err() != nil {
		_ = cmd.Process.Kill() // it waits for a reader, and only reads itself
	}
	err = cmd.Wait()
	if enough {
		return nil
	}
	return errors.Join(lines.Err(), err)
}

// readWhole reports whether reading the whole table is faster than reading so many chains one by one. 0: all chains.
func (i Installed) readWhole(table Table, chains int) (bool, error) {
	if chains == 0 || i.Variant == Legacy || chains <= fewChains {
		return chains == 0 || i.Variant == Legacy && chains > 1, nil
	}
	all, err := kernel.Chains(string(i.Variant), i.Family, string(table))
	return len(all)*len(all) < chains*oneByOne, err
}

// Fingerprint returns the fingerprint of the three tables.
func (i Installed) Fingerprint() (Fingerprint, error) {
	var fingerprint Fingerprint
	for n, table := range []Table{NAT, Filter, Mangle} {
		s, err := kernel.Fingerprint(string(i.Variant), i.Family, string(table))
		if err != nil {
			return fingerprint, err
		}
		fingerprint[n] = s
		if i.Variant == Nft {
			break // one number for all tables
		}
	}
	return fingerprint, nil
}

// Others counts the entries of the legacy tables minus those of own: an entry for each rule and two for each chain. A
// restore of the proxier changes both counts alike, so the result changes only with external writes.
func (i Installed) Others(own map[Table]Count) (others Fingerprint, err error) {
	fingerprint, err := i.Fingerprint()
	for n, table := range []Table{NAT, Filter, Mangle} {
		others[n] = fingerprint[n]>>32 - uint64(own[table].Rules+2*own[table].Chains)
	}
	return others, err
}

// Others returns for the nft variant the Fingerprint, which does not change with commits of the Restorers.
func (h *Host) Others(own map[Table]Count) (Fingerprint, error) {
	if h.Variant == Nft {
		return h.Fingerprint()
	}
	return h.Installed.Others(own)
}

// Fingerprint returns the fingerprint of the tables. For the nft variant it is the namespace's generation minus the
// commits of the Restorers, so it changes only with external commits. Syncs of this proxier and of the other family's
// do not change it.
func (h *Host) Fingerprint() (Fingerprint, error) {
	made := h.opts.Commits.made.Load() // first: a commit in between then looks external, which is the safe error
	fingerprint, err := h.Installed.Fingerprint()
	if h.Variant == Nft {
		fingerprint[0] = uint64(uint32(fingerprint[0]) - made)
	}
	return fingerprint, err
}

// Drift counts the rules of every chain in the kernel and checks every jump. kernel.Changed recognizes the error of a
// read during which the tables changed.
func (h *Host) Drift(want Expected) backend.Comparison {
	return func(ctx context.Context) (string, error) {
		if found, err := h.Differing(ctx, want); found != "" || err != nil {
			return found, err
		}
		missing, err := h.Missing(ctx)
		if missing != "" {
			missing += " is missing"
		}
		return missing, err
	}
}

// Differing describes the first chain with a wrong number of rules; empty: there is none.
func (i Installed) Differing(ctx context.Context, want Expected) (string, error) {
	for _, table := range []Table{Mangle, NAT, Filter} {
		if ctx.Err() != nil {
			return "", fmt.Errorf("reading %s: %w", table, context.Cause(ctx))
		}
		tally, err := kernel.TallyOnce(string(i.Variant), i.Family, string(table))
		if err != nil {
			return "", err
		}
		if found := driftIn(table, tally, want); found != "" {
			return found, nil
		}
	}
	return "", nil
}

// driftIn compares the number of rules in each chain of a table with the expected content.
func driftIn(table Table, tally map[string]int, want Expected) string {
	if _, there := tally[chainCanary]; !there {
		return fmt.Sprintf("chain %s in %s is missing", chainCanary, table)
	}
	for _, j := range jumps {
		// An empty chain counts no rules, and iptables -C cannot check a jump to a missing chain.
		if _, there := tally[j.to]; j.table == table && !there {
			return fmt.Sprintf("chain %s in %s is missing", j.to, table)
		}
	}
	for chain, rules := range want.Chains[table] {
		if have, there := tally[chain]; !there || have != rules {
			return fmt.Sprintf("chain %s in %s has %d rules, not %d", chain, table, have, rules)
		}
	}
	if table == Filter && want.Firewall && tally[chainFirewall] == 0 {
		return fmt.Sprintf("chain %s in filter has no rules", chainFirewall)
	}
	for chain := range tally {
		if _, wanted := want.Chains[table][chain]; ownChain(chain) && !wanted && !want.Stuck[table][chain] {
			return fmt.Sprintf("unexpected chain %s in %s", chain, table)
		}
	}
	return ""
}
