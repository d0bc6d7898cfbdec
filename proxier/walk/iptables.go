package walk

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

type iptablesTable struct {
	name     string
	priority map[string]int // by built-in chain
}

// The iptables tables that a proxier writes, with their priorities in the hooks of their built-in chains.
var iptablesTables = []iptablesTable{
	{"mangle", map[string]int{"PREROUTING": -150, "INPUT": -150, "FORWARD": -150, "OUTPUT": -150, "POSTROUTING": -150}},
	{"nat", map[string]int{"PREROUTING": -100, "OUTPUT": -100, "INPUT": 100, "POSTROUTING": 100}},
	{"filter", map[string]int{"INPUT": 0, "FORWARD": 0, "OUTPUT": 0}},
}

// iptablesCompiler compiles text to Rules.
type iptablesCompiler struct {
	rules  *Rules
	chains []iptablesRules // the rules of rules.chains
	table  string
	tables map[string]map[string]int32 // chains by table and name
	lists  map[string]int32            // of xt_recent
	// policies that are not ACCEPT, by table and chain.
	dropping map[[2]string]bool
	// pending are jumps whose chain is not known before the end of the table.
	pending []pendingJump
}

type pendingJump struct {
	from   int32
	rule   int
	target string
	line   int
}

// ParseIptables compiles the output of iptables-save, of either variant, with counters or without. It also compiles the
// output of iptables.Model.Save, and a payload of iptables-restore that begins with empty tables. Errors name the line
// and the rule.
func ParseIptables(family corev1.IPFamily, text []byte) (*Rules, error) {
	c := &iptablesCompiler{
		rules:  &Rules{ipv4: family == corev1.IPv4Protocol},
		tables: map[string]map[string]int32{}, lists: map[string]int32{}, dropping: map[[2]string]bool{},
	}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		if err := c.line(strings.TrimSpace(string(line)), number); err != nil {
			return nil, fmt.Errorf("line %d: %w: %q", number, err, bytes.TrimSpace(line))
		}
	}
	if c.table != "" {
		return nil, fmt.Errorf("table %s: no COMMIT", c.table)
	}
	c.enter()
	return c.rules, nil
}

func (c *iptablesCompiler) line(text string, number int) error {
	switch {
	case text == "" || text[0] == '#':
		return nil
	case text[0] == '*':
		c.table = text[1:]
		if !slices.ContainsFunc(iptablesTables, func(t iptablesTable) bool { return t.name == c.table }) {
			return errors.New("the table is not known")
		}
		if c.tables[c.table] == nil {
			c.tables[c.table] = map[string]int32{}
		}
		return nil
	case c.table == "":
		return errors.New("it stands before the first table")
	case text == "COMMIT":
		err := c.resolve()
		c.table = ""
		return err
	case text[0] == ':':
		return c.chainLine(text[1:])
	}
	if text[0] == '[' { // counters of iptables-save -c
		_, text, _ = strings.Cut(text, "] ")
	}
	return c.ruleLine(text, number)
}

func (c *iptablesCompiler) chainLine(text string) error {
	words := strings.Fields(text)
	if len(words) == 0 {
		return errors.New("the chain has no name")
	}
	if len(words) > 1 {
		switch words[1] {
		case "ACCEPT", "-":
		case "DROP":
			c.dropping[[2]string{c.table, words[0]}] = true
		default:
			return fmt.Errorf("policy %s is not known", words[1])
		}
	}
	if i, there := c.tables[c.table][words[0]]; there {
		c.chains[i] = nil // iptables-restore empties an existing chain too
		return nil
	}
	c.tables[c.table][words[0]] = int32(len(c.rules.chains))
	c.rules.chains = append(c.rules.chains, chain{table: c.table, name: words[0], service: isServiceChain(words[0])})
	c.chains = append(c.chains, nil)
	return nil
}

// isServiceChain reports whether an iptables chain belongs to a Service.
func isServiceChain(name string) bool {
	for _, prefix := range []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func (c *iptablesCompiler) ruleLine(text string, number int) error {
	words, err := splitWords(text)
	if err != nil {
		return err
	}
	if len(words) < 2 || words[0] != "-A" {
		return errors.New("not a rule")
	}
	i, there := c.tables[c.table][words[1]]
	if !there {
		return fmt.Errorf("chain %s is missing", words[1])
	}
	p := &ruleParser{compiler: c, words: words[2:]}
	if err := p.parse(); err != nil {
		return err
	}
	c.chains[i] = append(c.chains[i], p.rule)
	if p.jump != "" {
		c.pending = append(c.pending, pendingJump{from: i, rule: len(c.chains[i]) - 1, target: p.jump, line: number})
	}
	return nil
}

// resolve finds the chains that rules of the table jump to.
func (c *iptablesCompiler) resolve() error {
	chains := c.tables[c.table]
	for _, j := range c.pending {
		to, there := chains[j.target]
		if !there {
			return fmt.Errorf("table %s: line %d: target %s is not known", c.table, j.line, j.target)
		}
		if rules := c.chains[j.from]; j.rule < len(rules) {
			rules[j.rule].chain = to
		}
	}
	c.pending = c.pending[:0]
	return nil
}

// enter registers the built-in chains at their hooks.
func (c *iptablesCompiler) enter() {
	for i, rules := range c.chains {
		c.rules.chains[i].rules = rules
	}
	for _, table := range iptablesTables {
		for hook := range hooks {
			i, there := c.tables[table.name][hook.String()]
			priority, known := table.priority[hook.String()]
			if !there || !known {
				continue
			}
			c.rules.bases[hook] = append(c.rules.bases[hook], base{
				chain: i, priority: priority, nat: table.name == "nat", drop: c.dropping[[2]string{table.name, hook.String()}],
			})
		}
	}
	for hook := range hooks {
		slices.SortStableFunc(c.rules.bases[hook], func(a, b base) int { return a.priority - b.priority })
	}
}

// splitWords splits a rule at spaces and keeps text in double quotes together. Backslashes stay in the text: only
// comments have them, and no match reads comments.
func splitWords(text string) ([]string, error) {
	if strings.IndexByte(text, '"') < 0 {
		return strings.Fields(text), nil
	}
	words := make([]string, 0, 24)
	for i := 0; i < len(text); {
		switch {
		case text[i] == ' ':
			i++
		case text[i] == '"':
			end := i + 1
			for end < len(text) && text[end] != '"' {
				if text[end] == '\\' {
					end++
				}
				end++
			}
			if end >= len(text) {
				return nil, errors.New("unbalanced quote")
			}
			words, i = append(words, text[i+1:end]), end+1
		default:
			end := strings.IndexByte(text[i:], ' ')
			if end < 0 {
				end = len(text) - i
			}
			words, i = append(words, text[i:i+end]), i+end
		}
	}
	return words, nil
}

// parsePrefix parses an address or a prefix of the rules' family.
func (c *iptablesCompiler) parsePrefix(text string) (network, error) {
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		addr, errAddr := netip.ParseAddr(text)
		if errAddr != nil {
			return network{}, err
		}
		prefix = netip.PrefixFrom(addr, addr.BitLen())
	}
	if prefix.Addr().Is4() != c.rules.ipv4 || prefix.Addr().Zone() != "" {
		return network{}, fmt.Errorf("%s is of another family", text)
	}
	return networkOf(prefix), nil
}

// parsePorts parses a port or a range of ports.
func parsePorts(text string) (portRange, error) {
	low, high, isRange := strings.Cut(text, ":")
	if !isRange {
		high = low
	}
	from, err := strconv.ParseUint(low, 10, 16)
	if err != nil {
		return portRange{}, err
	}
	to, err := strconv.ParseUint(high, 10, 16)
	if err != nil {
		return portRange{}, err
	}
	if from == 0 && to == 0 {
		return portRange{}, errors.New("port 0")
	}
	return portRange{uint16(from), uint16(to)}, nil
}

// parseMark parses "value" or "value/mask"; the default mask has all bits.
func parseMark(text string) (value, mask uint32, err error) {
	v, m, masked := strings.Cut(text, "/")
	mask = math.MaxUint32
	value, err = parseWord(v)
	if err == nil && masked {
		mask, err = parseWord(m)
	}
	return value, mask, err
}

func parseWord(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 0, 32)
	return uint32(n), err
}
