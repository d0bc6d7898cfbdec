package iptables

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel"
)

// Tables are the iptables tables that a proxier works on: the kernel's (Host), or a model of them (Model).
type Tables interface {
	// Restore applies a payload, atomically for each table.
	Restore(ctx context.Context, p *Payload) (Run, error)
	// EnsureJumps makes what is missing of the base chains and of the jumps to them.
	EnsureJumps(ctx context.Context) error
	// Chains are the names of the user-defined chains of a table.
	Chains(table Table) ([]string, error)
	// Rules are those of some chains of a table, or of all when none is named, each as iptables-save prints it.
	Rules(table Table, chains ...string) ([]string, error)
	// Leads are the rules of nat, to be followed.
	Leads() (Leads, error)
	// Stamp changes when a table may have changed; comparing two costs next to nothing.
	Stamp() (Stamp, error)
	// Others changes when somebody else wrote to a table, whatever was restored meanwhile; own is what the proxier has there.
	Others(own map[Table]Count) (Stamp, error)
	// Drift compares the tables with what should be there and describes the first difference; empty: none.
	Drift(ctx context.Context, want Expected) (string, error)
}

// Expected is what the tables hold when nobody meddled.
type Expected struct {
	// Chains of the proxier, by table, with the number of rules of each.
	Chains map[Table]map[string]int
	// Stuck chains may be there, empty.
	Stuck map[Table]map[string]bool
	// Firewall: KUBE-FIREWALL has a rule of the proxier, besides those of the kubelet.
	Firewall bool
}

// Installed asks the kernel about the tables of the network namespace that the process is in, without any tool.
type Installed struct {
	Variant Variant
	Family  corev1.IPFamily
}

// Host are the tables of the network namespace that the process is in, written through the tools.
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

// EnsureJumps makes what is missing of the base chains and of the jumps to them, in one restore.
func (h *Host) EnsureJumps(ctx context.Context) error {
	p := &Payload{Written: map[Table]Count{}}
	for _, table := range []Table{Mangle, NAT, Filter} {
		if ctx.Err() != nil {
			return fmt.Errorf("jumps in %s: %w", table, context.Cause(ctx))
		}
		chains, err := h.Chains(table)
		if err != nil {
			return fmt.Errorf("listing the chains of %s: %w", table, err)
		}
		var rules []string
		switch from := baseChains(table); {
		case len(chains) == 0 || len(from) == 0: // nothing jumps to chains that are not there
		case table == Filter:
			rules, err = h.Rules(table) // all of it: one run of the tool
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

// Chains are the names of the user-defined chains of a table.
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

// oneByOne decides how the nft variant reads chains: printing a table costs the square of its chains, since the tool looks
// for each from the beginning of its list; printing one chain alone costs as much as oneByOne of those. Measured with
// iptables 1.8.9: some 10 ns and 2 ms.
const oneByOne = 200_000

// fewChains are read one by one whatever the table.
const fewChains = 16

// Rules are those of some chains of a table, or of all when none is named. It runs the tool: once, or once a chain. The
// legacy variant reads the whole table each time, the nft variant needs minutes to print a large one.
func (i Installed) Rules(table Table, chains ...string) ([]string, error) {
	run := func(tool string, args ...string) ([]string, error) {
		path, err := FindBinary(Binary(i.Variant, i.Family, tool))
		if err != nil {
			return nil, err
		}
		out, err := exec.Command(path, append(args, "-t", string(table))...).Output()
		if err != nil {
			return nil, fmt.Errorf("reading %s: %s: %w", table, path, err)
		}
		var rules []string
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "-A ") {
				rules = append(rules, strings.TrimSuffix(line, "\n"))
			}
		}
		return rules, nil
	}
	if len(chains) == 0 {
		return run("save")
	}
	whole, err := i.readWhole(table, len(chains))
	if err != nil {
		return nil, err
	}
	if whole {
		asked := make(map[string]bool, len(chains))
		for _, c := range chains {
			asked[c] = true
		}
		all, err := run("save")
		return slices.DeleteFunc(all, func(rule string) bool { return !asked[strings.Fields(rule)[1]] }), err
	}
	var all []string
	for _, c := range chains {
		rules, err := run("", "-w", "5", "-S", c)
		if err != nil {
			return nil, fmt.Errorf("chain %s: %w", c, err)
		}
		all = append(all, rules...)
	}
	return all, nil
}

// readWhole says whether so many chains are read faster with all others of the table than one by one.
func (i Installed) readWhole(table Table, chains int) (bool, error) {
	if i.Variant == Legacy || chains <= fewChains {
		return i.Variant == Legacy && chains > 1, nil
	}
	all, err := kernel.Chains(string(i.Variant), i.Family, string(table))
	return len(all)*len(all) < chains*oneByOne, err
}

// Stamp of the three tables.
func (i Installed) Stamp() (Stamp, error) {
	var stamp Stamp
	for n, table := range []Table{NAT, Filter, Mangle} {
		s, err := kernel.Stamp(string(i.Variant), i.Family, string(table))
		if err != nil {
			return stamp, err
		}
		stamp[n] = s
		if i.Variant == Nft {
			break // one number for all tables
		}
	}
	return stamp, nil
}

// Others counts the entries of legacy tables beside own, which is what a proxier takes for its own in them: a rule is one
// entry, and a chain two. As long as nobody else writes, its restores change both alike.
func (i Installed) Others(own map[Table]Count) (others Stamp, err error) {
	stamp, err := i.Stamp()
	for n, table := range []Table{NAT, Filter, Mangle} {
		others[n] = stamp[n]>>32 - uint64(own[table].Rules+2*own[table].Chains)
	}
	return others, err
}

// Others of the nft variant is the Stamp, which is the same whatever the Restorers commit.
func (h *Host) Others(own map[Table]Count) (Stamp, error) {
	if h.Variant == Nft {
		return h.Stamp()
	}
	return h.Installed.Others(own)
}

// Stamp of the tables. Of the nft variant it is the namespace's generation less what the Restorers committed, so it stays
// the same as long as nobody else commits anything: with the other family's proxier, or after each sync, tables need not
// be read.
func (h *Host) Stamp() (Stamp, error) {
	made := h.opts.Commits.made.Load() // first: a commit that comes in between looks like somebody else's, and not the reverse
	stamp, err := h.Installed.Stamp()
	if h.Variant == Nft {
		stamp[0] = uint64(uint32(stamp[0]) - made)
	}
	return stamp, err
}

// Drift counts the rules of every chain in the kernel, and asks for every jump. An error that kernel.Changed knows says
// that the tables changed meanwhile.
func (h *Host) Drift(ctx context.Context, want Expected) (string, error) {
	if found, err := h.Differing(ctx, want); found != "" || err != nil {
		return found, err
	}
	missing, err := h.Missing(ctx)
	if missing != "" {
		missing += " is gone"
	}
	return missing, err
}

// Differing describes the first chain that does not hold as many rules as it should; empty: there is none.
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

// driftIn compares the tally of a table, rules by chain, with what is expected in it.
func driftIn(table Table, tally map[string]int, want Expected) string {
	if _, there := tally[chainCanary]; !there {
		return fmt.Sprintf("chain %s in %s is gone", chainCanary, table)
	}
	for _, j := range jumps {
		// An empty one counts no rules, and iptables -C cannot ask for a jump to a chain that is not there.
		if _, there := tally[j.to]; j.table == table && !there {
			return fmt.Sprintf("chain %s in %s is gone", j.to, table)
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
			return fmt.Sprintf("chain %s in %s is nobody's", chain, table)
		}
	}
	return ""
}
