package invariants

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
	"synclab/proxier/walk"
)

// Saved are the chains of one family by table and chain name.
type Saved map[string]map[string]*Chain

// Chain is a chain of a table.
type Chain struct {
	Policy string // policy of a base chain, else "-"
	Rules  []Rule
}

// Rule is a rule of a Chain.
type Rule struct {
	// Text is spelled as by iptables.Canonical, with the chain's name.
	Text           string
	Packets, Bytes uint64
}

// ParseSaved parses the output of iptables-save, with or without counters.
func ParseSaved(family corev1.IPFamily, text []byte) (Saved, error) {
	s := Saved{}
	var table map[string]*Chain
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, 1<<20)
	for n := 1; scanner.Scan(); n++ {
		line := scanner.Text()
		switch {
		case line == "" || line[0] == '#' || line == "COMMIT":
		case line[0] == '*':
			if table = s[line[1:]]; table == nil {
				table = map[string]*Chain{}
				s[line[1:]] = table
			}
		case table == nil:
			return nil, fmt.Errorf("iptables-save: line %d: %q before any table", n, line)
		case line[0] == ':':
			words := strings.Fields(line[1:])
			if len(words) < 2 {
				return nil, fmt.Errorf("iptables-save: line %d: %q is not a chain", n, line)
			}
			table[words[0]] = &Chain{Policy: words[1]}
		default:
			rule, chain, err := parseRule(family, line)
			if err != nil || table[chain] == nil {
				return nil, fmt.Errorf("iptables-save: line %d: %q is not a rule of a declared chain", n, line)
			}
			table[chain].Rules = append(table[chain].Rules, rule)
		}
	}
	return s, scanner.Err()
}

func parseRule(family corev1.IPFamily, line string) (rule Rule, chain string, err error) {
	if strings.HasPrefix(line, "[") {
		if _, err := fmt.Sscanf(line, "[%d:%d]", &rule.Packets, &rule.Bytes); err != nil {
			return rule, "", err
		}
		_, line, _ = strings.Cut(line, "] ")
	}
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "-A" {
		return rule, "", fmt.Errorf("%q is not a rule", line)
	}
	rule.Text = iptables.Canonical(line, family)
	return rule, words[1], nil
}

// fromModel converts a model of the tables.
func fromModel(m *iptables.Model) (Saved, error) {
	var text bytes.Buffer
	if err := m.Save(&text); err != nil {
		return nil, err
	}
	return ParseSaved(m.Family(), text.Bytes())
}

// ownPrefix is the prefix of kube-proxy's chain names. All proxiers with kube-proxy's rules use it.
const ownPrefix = "KUBE-"

// notTheirs are chains with that prefix that the kubelet makes, or made in older versions.
var notTheirs = []string{"KUBE-KUBELET-CANARY", "KUBE-MARK-DROP"}

// ownChain reports whether a chain belongs to the proxier.
func ownChain(name string) bool {
	return strings.HasPrefix(name, ownPrefix) && !slices.Contains(notTheirs, name)
}

// shared reports whether other programs also write rules into a chain: base chains, and KUBE-FIREWALL, which has a rule
// of the kubelet.
func shared(name string) bool { return !ownChain(name) || name == "KUBE-FIREWALL" }

// target returns the chain or verdict that a rule jumps to.
func (r Rule) target() string {
	for _, flag := range []string{" -j ", " -g "} {
		if _, after, found := strings.Cut(r.Text, flag); found {
			target, _, _ := strings.Cut(after, " ")
			return target
		}
	}
	return ""
}

// texts returns the rules' texts.
func (c *Chain) texts() []string {
	texts := make([]string, len(c.Rules))
	for i, r := range c.Rules {
		texts[i] = r.Text
	}
	return texts
}

// own keeps only what belongs to the proxier: its chains, and the rules of base chains that jump to them.
func (s Saved) own() Saved {
	mine := Saved{}
	for table, chains := range s {
		mine[table] = map[string]*Chain{}
		for name, c := range chains {
			switch {
			case ownChain(name):
				mine[table][name] = c
			case c.Policy != "-":
				kept := &Chain{Policy: c.Policy}
				for _, r := range c.Rules {
					if ownChain(r.target()) {
						kept.Rules = append(kept.Rules, r)
					}
				}
				mine[table][name] = kept
			}
		}
	}
	return mine
}

// Reachable keeps only the proxier's chains that a packet can reach. It drops chains that were written before a jump to
// them, or that are not deleted yet.
func (s Saved) Reachable() Saved {
	reachable := Saved{}
	for table, chains := range s.own() {
		kept := map[string]*Chain{}
		var keep func(name string)
		keep = func(name string) {
			c := chains[name]
			if c == nil || kept[name] != nil {
				return
			}
			kept[name] = c
			for _, rule := range c.Rules {
				keep(rule.target())
			}
		}
		for name, c := range chains {
			if c.Policy != "-" {
				keep(name)
			}
		}
		reachable[table] = kept
	}
	return reachable
}

// Clone returns a deep copy.
func (s Saved) Clone() Saved {
	c := Saved{}
	for table, chains := range s {
		c[table] = map[string]*Chain{}
		for name, chain := range chains {
			c[table][name] = &Chain{Policy: chain.Policy, Rules: slices.Clone(chain.Rules)}
		}
	}
	return c
}

// text returns the tables in the format of iptables-save.
func (s Saved) text() []byte {
	var b bytes.Buffer
	for _, table := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "*%s\n", table)
		names := slices.Sorted(maps.Keys(s[table]))
		for _, name := range names {
			fmt.Fprintf(&b, ":%s %s [0:0]\n", name, s[table][name].Policy)
		}
		for _, name := range names {
			for _, r := range s[table][name].Rules {
				b.WriteString(r.Text + "\n")
			}
		}
		b.WriteString("COMMIT\n")
	}
	return b.Bytes()
}

// Compile prepares the proxier's own rules for the ruleset evaluator.
func (s Saved) Compile(family corev1.IPFamily) (*walk.Rules, error) {
	return walk.ParseIptables(family, s.own().text())
}
