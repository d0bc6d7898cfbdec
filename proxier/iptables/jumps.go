package iptables

import (
	"context"
	"fmt"
	"slices"

	goiptables "github.com/coreos/go-iptables/iptables"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables/rule"
)

// jump is a rule by which a built-in chain jumps to a chain of the proxier.
type jump struct {
	table   Table
	from    string
	to      string
	comment string
	isNew   bool // matches new connections, before the comment
}

// jumps in the order in which they are inserted at the top of their chain: the last one ends up on top.
var jumps = []jump{
	{Filter, "INPUT", chainExternalServices, "kubernetes externally-visible service portals", true},
	{Filter, "FORWARD", chainExternalServices, "kubernetes externally-visible service portals", true},
	{Filter, "INPUT", chainNodePorts, "kubernetes health check service ports", false},
	{Filter, "FORWARD", chainServices, "kubernetes service portals", true},
	{Filter, "OUTPUT", chainServices, "kubernetes service portals", true},
	{Filter, "FORWARD", chainForward, "kubernetes forwarding rules", false},
	{Filter, "INPUT", chainProxyFirewall, "kubernetes load balancer firewall", true},
	{Filter, "OUTPUT", chainProxyFirewall, "kubernetes load balancer firewall", true},
	{Filter, "FORWARD", chainProxyFirewall, "kubernetes load balancer firewall", true},
	{NAT, "OUTPUT", chainServices, "kubernetes service portals", false},
	{NAT, "PREROUTING", chainServices, "kubernetes service portals", false},
	{NAT, "POSTROUTING", chainPostrouting, "kubernetes postrouting rules", false},
	{Filter, "INPUT", chainFirewall, "", false},
	{Filter, "OUTPUT", chainFirewall, "", false},
}

// Canary is the empty chain that every table of the proxier has, mangle included.
const Canary = chainCanary

// baseJump is the rule of a jump.
type baseJump struct {
	from string
	rule.Rule
}

// baseJumps returns the jumps that a table must have, in the order in which they are inserted at the top of their
// chain.
func baseJumps(table Table, family corev1.IPFamily) []baseJump {
	var base []baseJump
	for _, j := range jumps {
		if j.table == table {
			base = append(base, baseJump{j.from, j.rule(family)})
		}
	}
	return base
}

func (j jump) rule(family corev1.IPFamily) rule.Rule {
	r := rule.Rule{IPv6: family == corev1.IPv6Protocol, Target: rule.Target{Kind: rule.TargetJump, Chain: j.to}}
	if j.isNew {
		r.Matches = append(r.Matches, rule.Match{Kind: rule.MatchState, Bits: rule.StateNew})
	}
	if j.comment != "" {
		r.Matches = append(r.Matches, rule.Match{Kind: rule.MatchComment, Name: j.comment})
	}
	return r
}

// spec returns the rule as words for the iptables command.
func (j jump) spec() []string {
	var spec []string
	if j.isNew {
		spec = append(spec, "-m", "conntrack", "--ctstate", "NEW")
	}
	if j.comment != "" {
		spec = append(spec, "-m", "comment", "--comment", j.comment)
	}
	return append(spec, "-j", j.to)
}

// Jumps checks the jumps to the base chains, through the iptables command.
type Jumps struct {
	ipt *goiptables.IPTables
}

// NewJumps finds the iptables command of a variant and family.
func NewJumps(variant Variant, family corev1.IPFamily) (*Jumps, error) {
	path, err := FindBinary(Binary(variant, family, ""))
	if err != nil {
		return nil, err
	}
	protocol := goiptables.ProtocolIPv4
	if family == corev1.IPv6Protocol {
		protocol = goiptables.ProtocolIPv6
	}
	ipt, err := goiptables.New(goiptables.Path(path), goiptables.IPFamily(protocol), goiptables.Timeout(5))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Jumps{ipt: ipt}, nil
}

// RandomFully reports whether MASQUERADE supports --random-fully.
func (j *Jumps) RandomFully() bool { return j.ipt.HasRandomFully() }

// baseChains returns the built-in chains of a table that have jumps of the proxier.
func baseChains(table Table) []string {
	var chains []string
	for _, j := range jumps {
		if j.table == table && !slices.Contains(chains, j.from) {
			chains = append(chains, j.from)
		}
	}
	return chains
}

// missingBase writes the missing base chains, jumps and canary of a table. chains are the existing chains, rules those
// of the built-in chains.
func missingBase(p *Payload, table Table, family corev1.IPFamily, chains []string, rules map[string][]rule.Rule) {
	var text []byte
	lines := 0
	for _, name := range fixedBase(table) {
		if !slices.Contains(chains, name) {
			text = fmt.Appendf(text, ":%s - [0:0]\n", name)
			lines++
		}
	}
	base := baseJumps(table, family)
	at := positions(base, rules)
	for i, j := range base {
		if at[i] < 0 {
			text = fmt.Appendf(text, "-I %s %d", j.from, place(base, at, i)+1)
			text = append(j.Append(text), '\n')
			lines++
		}
	}
	if lines > 0 {
		p.own(Owner{Table: table})
		p.add([]byte("*"+string(table)+"\n"), 1)
		p.add(text, lines)
		p.add([]byte("COMMIT\n"), 1)
		p.commits++
	}
}

// positions returns how many rules of its chain are above each jump; -1: the jump is missing.
func positions(jumps []baseJump, rules map[string][]rule.Rule) []int {
	at := make([]int, len(jumps))
	for i := range jumps {
		at[i] = slices.IndexFunc(rules[jumps[i].from], func(r rule.Rule) bool { return r.Equal(&jumps[i].Rule) })
	}
	return at
}

// place returns where a missing jump belongs in its chain: right below the jumps that belong above it. So the verdict
// on a packet does not depend on which jump was missing. at is how many rules of its chain are above each jump, -1 for
// a missing one. It updates at for the missing jump and for the jumps that move down.
func place(jumps []baseJump, at []int, missing int) int {
	row := 0
	for i := missing + 1; i < len(jumps); i++ { // the jumps that belong above
		if jumps[i].from == jumps[missing].from {
			row = max(row, at[i]+1)
		}
	}
	for i := range at {
		if jumps[i].from == jumps[missing].from && at[i] >= row {
			at[i]++
		}
	}
	at[missing] = row
	return row
}

// fixedBase returns the canary and the chains of a table that built-in chains jump to, each once.
func fixedBase(table Table) []string {
	chains := []string{chainCanary}
	for _, j := range jumps {
		if j.table == table && !slices.Contains(chains, j.to) {
			chains = append(chains, j.to)
		}
	}
	return chains
}

// Missing describes the first missing jump; empty: there is none.
func (j *Jumps) Missing(ctx context.Context) (string, error) {
	for _, jump := range jumps {
		if ctx.Err() != nil {
			return "", fmt.Errorf("checking the jump from %s to %s in %s: %w", jump.from, jump.to, jump.table, context.Cause(ctx))
		}
		found, err := j.ipt.Exists(string(jump.table), jump.from, jump.spec()...)
		if err != nil {
			return "", fmt.Errorf("checking the jump from %s to %s in %s: %w", jump.from, jump.to, jump.table, err)
		}
		if !found {
			return fmt.Sprintf("jump from %s to %s in %s", jump.from, jump.to, jump.table), nil
		}
	}
	return "", nil
}
