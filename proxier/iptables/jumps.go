package iptables

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	goiptables "github.com/coreos/go-iptables/iptables"
	corev1 "k8s.io/api/core/v1"
)

// jump is a rule by which a built-in chain jumps to a chain of the proxier.
type jump struct {
	table   Table
	from    string
	to      string
	comment string
	states  []string // match before the comment
}

var newConnections = []string{"-m", "conntrack", "--ctstate", "NEW"}

// jumps in the order in which they are inserted at the top of their chain: the last one ends up on top.
var jumps = []jump{
	{Filter, "INPUT", chainExternalServices, "kubernetes externally-visible service portals", newConnections},
	{Filter, "FORWARD", chainExternalServices, "kubernetes externally-visible service portals", newConnections},
	{Filter, "INPUT", chainNodePorts, "kubernetes health check service ports", nil},
	{Filter, "FORWARD", chainServices, "kubernetes service portals", newConnections},
	{Filter, "OUTPUT", chainServices, "kubernetes service portals", newConnections},
	{Filter, "FORWARD", chainForward, "kubernetes forwarding rules", nil},
	{Filter, "INPUT", chainProxyFirewall, "kubernetes load balancer firewall", newConnections},
	{Filter, "OUTPUT", chainProxyFirewall, "kubernetes load balancer firewall", newConnections},
	{Filter, "FORWARD", chainProxyFirewall, "kubernetes load balancer firewall", newConnections},
	{NAT, "OUTPUT", chainServices, "kubernetes service portals", nil},
	{NAT, "PREROUTING", chainServices, "kubernetes service portals", nil},
	{NAT, "POSTROUTING", chainPostrouting, "kubernetes postrouting rules", nil},
	{Filter, "INPUT", chainFirewall, "", nil},
	{Filter, "OUTPUT", chainFirewall, "", nil},
}

// Canary is the empty chain that every table of the proxier has, mangle included.
const Canary = chainCanary

// Jump is a rule by which a built-in chain jumps to a chain of the proxier.
type Jump struct {
	From, To string
	Rule     string // the text after "-A FROM"
}

// BaseJumps returns the jumps that a table must have, in the order in which they are inserted at the top of their
// chain.
func BaseJumps(table Table) []Jump {
	var base []Jump
	for _, j := range jumps {
		if j.table != table {
			continue
		}
		rule := strings.Join(j.states, " ")
		if j.comment != "" {
			rule += ` -m comment --comment "` + j.comment + `"`
		}
		base = append(base, Jump{j.from, j.to, strings.TrimSpace(rule + " -j " + j.to)})
	}
	return base
}

func (j jump) spec() []string {
	spec := slices.Clone(j.states)
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
func missingBase(p *Payload, table Table, family corev1.IPFamily, chains, rules []string) {
	var text []byte
	lines := 0
	line := func(parts ...string) {
		text = append(append(text, strings.Join(parts, " ")...), '\n')
		lines++
	}
	there := func(name string) bool { return slices.Contains(chains, name) }
	for _, name := range append([]string{chainCanary}, jumpsTo(table)...) {
		if !there(name) {
			line(":"+name, "- [0:0]")
		}
	}
	base := BaseJumps(table)
	at := places(base, rules, family)
	for i, j := range base {
		if at[i] < 0 {
			line("-I", j.From, strconv.Itoa(Place(base, at, i)+1), j.Rule)
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

// places returns how many rules of its chain are above each jump; -1: the jump is missing.
func places(jumps []Jump, rules []string, family corev1.IPFamily) []int {
	at, wanted := make([]int, len(jumps)), make([]string, len(jumps))
	for i, j := range jumps {
		at[i], wanted[i] = -1, Canonical("-A "+j.From+" "+j.Rule, family)
	}
	above := map[string]int{} // rules so far, by chain
	for _, rule := range rules {
		if i := slices.Index(wanted, rule); i >= 0 && at[i] < 0 {
			at[i] = above[jumps[i].From]
		}
		from, _, _ := strings.Cut(strings.TrimPrefix(rule, "-A "), " ")
		above[from]++
	}
	return at
}

// Place returns where a missing jump belongs in its chain: right below the jumps that belong above it. So the verdict
// on a packet does not depend on which jump was missing. at is how many rules of its chain are above each jump, -1 for
// a missing one. Place updates at for the missing jump and for the jumps that move down.
func Place(jumps []Jump, at []int, missing int) int {
	place := 0
	for i := missing + 1; i < len(jumps); i++ { // the jumps that belong above
		if jumps[i].From == jumps[missing].From {
			place = max(place, at[i]+1)
		}
	}
	for i := range at {
		if jumps[i].From == jumps[missing].From && at[i] >= place {
			at[i]++
		}
	}
	at[missing] = place
	return place
}

// jumpsTo returns the chains of a table that built-in chains jump to, each once.
func jumpsTo(table Table) []string {
	var chains []string
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
