package walk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/owner"
	"synclab/proxier/iptables/rule"
)

// The iptables tables that a proxier writes, with their priorities in the hooks of their built-in chains.
var iptablesTables = map[string]map[string]int{
	"mangle": {"PREROUTING": -150, "INPUT": -150, "FORWARD": -150, "OUTPUT": -150, "POSTROUTING": -150},
	"nat":    {"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100},
	"filter": {"INPUT": 0, "FORWARD": 0, "OUTPUT": 0},
}

// iptablesCompiler compiles typed rules to Rules.
type iptablesCompiler struct {
	rules  *Rules
	chains map[string]int32 // of the table that is compiled, by name
	lists  map[string]int32 // of xt_recent
}

// ParseIptables compiles the output of iptables-save, of either variant, with counters or without. It also compiles the
// output of iptables.Model.Save, and a payload of iptables-restore that begins with empty tables. Errors name the line
// or the table, and the rule.
func ParseIptables(family corev1.IPFamily, text []byte) (*Rules, error) {
	tables, err := rule.ParseTables(family, text)
	if err != nil {
		return nil, err
	}
	return CompileIptables(family, tables)
}

// CompileIptables compiles the tables of a family. Errors name the table and the rule.
func CompileIptables(family corev1.IPFamily, tables rule.Tables) (*Rules, error) {
	c := &iptablesCompiler{rules: &Rules{ipv4: family == corev1.IPv4Protocol}, lists: map[string]int32{}}
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		if err := c.table(name, tables[name]); err != nil {
			return nil, fmt.Errorf("table %s: %w", name, err)
		}
	}
	for hook := range hooks {
		slices.SortStableFunc(c.rules.bases[hook], func(a, b base) int { return cmp.Compare(a.priority, b.priority) })
	}
	return c.rules, nil
}

func (c *iptablesCompiler) table(table string, chains map[string]*rule.Chain) error {
	priorities, known := iptablesTables[table]
	if !known {
		return errors.New("the table is not known")
	}
	first, names := len(c.rules.chains), slices.Sorted(maps.Keys(chains))
	c.chains = make(map[string]int32, len(names))
	for i, name := range names {
		c.chains[name] = int32(first + i)
		c.rules.chains = append(c.rules.chains, chain{table: table, name: name, service: owner.OfService(name)})
	}
	for i, name := range names {
		compiled, err := c.chain(name, chains[name])
		if err != nil {
			return err
		}
		c.rules.chains[first+i].rules = compiled
	}
	for hook := range hooks {
		name := hook.String()
		priority, built := priorities[name]
		if from := chains[name]; from != nil && built {
			c.rules.bases[hook] = append(c.rules.bases[hook], base{
				chain: c.chains[name], priority: priority, nat: table == "nat", drop: from.Policy == "DROP",
			})
		}
	}
	return nil
}

func (c *iptablesCompiler) chain(name string, from *rule.Chain) (iptablesRules, error) {
	if !slices.Contains([]string{"ACCEPT", "DROP", "-"}, from.Policy) {
		return nil, fmt.Errorf("chain %s: policy %s is not known", name, from.Policy)
	}
	rules := make(iptablesRules, len(from.Rules))
	for i := range from.Rules {
		if err := c.rule(&rules[i], &from.Rules[i]); err != nil {
			return nil, fmt.Errorf("%w: %q", err, from.Rules[i].Line(name))
		}
	}
	return rules, nil
}

func (c *iptablesCompiler) rule(to *iptablesRule, from *rule.Rule) error {
	switch {
	case from.Words != "":
		return fmt.Errorf("%q is %w", from.Words, errNotKnown)
	case from.Out != "":
		return fmt.Errorf("option -o is %w", errNotKnown)
	case !slices.Contains([]Protocol{0, TCP, UDP, SCTP}, Protocol(from.Proto)):
		return fmt.Errorf("protocol %s is %w", from.Proto, errNotKnown)
	}
	*to = iptablesRule{not: from.Not, protocol: Protocol(from.Proto), in: from.In, sport: from.SrcPorts, dport: from.DstPorts}
	if from.Src.IsValid() {
		to.src = networkOf(from.Src)
	}
	if from.Dst.IsValid() {
		to.dst = networkOf(from.Dst)
	}
	for i := range from.Matches {
		if err := c.match(to, &from.Matches[i]); err != nil {
			return err
		}
	}
	return c.target(to, &from.Target)
}

// match adds a match to a rule, unless it matches every packet or is compiled with the rule itself.
func (c *iptablesCompiler) match(to *iptablesRule, from *rule.Match) (err error) {
	m := match{kind: from.Kind, not: from.Not, bits: from.Bits, mask: from.Mask}
	switch from.Kind {
	case rule.MatchForeign:
		return fmt.Errorf("match %q is %w", from.Words, errNotKnown)
	case rule.MatchComment, rule.MatchPorts, rule.MatchAccounting:
		return nil
	case rule.MatchState:
		if m.bits&rule.StateSNAT != 0 {
			return fmt.Errorf("state SNAT is %w", errNotKnown)
		}
	case rule.MatchRandom:
		if m.part = float64(m.bits) / rule.ProbabilityUnit; m.not {
			m.part, m.not = 1-m.part, false // the complementary probability
		}
		if m.part == 0 {
			return errors.New("probability 0")
		}
	case rule.MatchRecent:
		// A client is remembered or not: the evaluator knows no time.
		list, there := c.lists[from.Name]
		if !there {
			list = int32(len(c.lists))
			c.lists[from.Name] = list
		}
		m.list = list
	case rule.MatchProgram:
		m.program, err = compileProgram(from.Program, c.rules.ipv4)
	}
	to.matches = append(to.matches, m)
	return err
}

func (c *iptablesCompiler) target(to *iptablesRule, from *rule.Target) error {
	to.target, to.goTo = from.Kind, from.Goto
	switch from.Kind {
	case rule.TargetForeign:
		return fmt.Errorf("target %q is %w", from.Words, errNotKnown)
	case rule.TargetJump:
		chain, there := c.chains[from.Chain]
		if !there {
			return fmt.Errorf("target %s is %w", from.Chain, errNotKnown)
		}
		to.chain = chain
	case rule.TargetMark:
		to.mark = [2]uint32{from.Mask, from.Bits}
	case rule.TargetDNAT:
		if from.To.Port() == 0 {
			return errors.New("target DNAT without a port")
		}
		to.to, to.toPort = addressOf(from.To.Addr()), from.To.Port()
	}
	return nil
}
