package iptables

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Canonical returns a rule as iptables-save prints it: address, interface and protocol matches first, then the
// extensions in their order, then the target. Options come in the order in which their extension prints them. The input
// is a rule as the proxier writes it or as iptables-save prints it. Canonical knows the matches and targets of the
// layouts; all others stay unchanged.
func Canonical(rule string, family corev1.IPFamily) string {
	words, err := splitWords(rule)
	if err != nil || len(words) < 2 || words[0] != "-A" {
		return rule
	}
	c := canonicalizer{family: family, basics: map[string]string{}}
	c.read(words[2:])
	return c.write(words[1])
}

// splitWords splits a rule at spaces and keeps text in double quotes together.
func splitWords(rule string) ([]string, error) {
	var words []string
	for rest := strings.TrimSpace(rule); rest != ""; rest = strings.TrimLeft(rest, " ") {
		if rest[0] != '"' {
			word, after, _ := strings.Cut(rest, " ")
			words, rest = append(words, word), after
			continue
		}
		end := strings.IndexByte(rest[1:], '"')
		if end < 0 {
			return nil, fmt.Errorf("unbalanced quote in %s", rule)
		}
		words, rest = append(words, rest[1:end+1]), rest[end+2:]
	}
	return words, nil
}

// extension is a match or a target with its options, each a line of words such as "! --ctstate NEW".
type extension struct {
	name    string
	options []string
}

func (x *extension) option(name string) (string, bool) {
	for _, o := range x.options {
		if rest, ok := strings.CutPrefix(o, name+" "); ok {
			return rest, true
		}
		if o == name {
			return "", true
		}
	}
	return "", false
}

type canonicalizer struct {
	family  corev1.IPFamily
	basics  map[string]string // -s, -d, -i, -o, -p: "! value" or "value"
	matches []*extension
	target  *extension
	branch  string // -j or -g
}

func (c *canonicalizer) read(words []string) {
	negated := false
	last := &extension{}
	for i := 0; i < len(words); i++ {
		word, next := words[i], ""
		if i+1 < len(words) {
			next = words[i+1]
		}
		switch word {
		case "!":
			negated = true
			continue
		case "-s", "-d", "-i", "-o", "-p":
			// iptables-save does not print a prefix that contains every address.
			if value := c.basic(word, next); negated || !strings.HasSuffix(value, "/0") {
				c.basics[word] = prefixed(negated, value)
			}
			i++
		case "-m":
			last = c.match(next)
			i++
		case "-j", "-g":
			last = &extension{name: next}
			c.target, c.branch = last, word
			i++
		default:
			option := word
			for i+1 < len(words) && !strings.HasPrefix(words[i+1], "-") && words[i+1] != "!" {
				i++
				option += " " + words[i]
			}
			last = c.owner(word, last)
			last.options = append(last.options, prefixed(negated, option))
		}
		negated = false
	}
}

func prefixed(negated bool, text string) string {
	if negated {
		return "! " + text
	}
	return text
}

// match returns the extension of that name and creates it when it is new.
func (c *canonicalizer) match(name string) *extension {
	for _, m := range c.matches {
		if m.name == name {
			return m
		}
	}
	m := &extension{name: name}
	c.matches = append(c.matches, m)
	return m
}

// owner returns the extension of an option: --dport may follow another match's options, since -m tcp came before.
func (c *canonicalizer) owner(option string, last *extension) *extension {
	if option == "--dport" || option == "--sport" {
		for _, m := range c.matches {
			if m.name == "tcp" || m.name == "udp" || m.name == "sctp" {
				return m
			}
		}
	}
	return last
}

func (c *canonicalizer) basic(flag, value string) string {
	if flag != "-s" && flag != "-d" {
		return value
	}
	if prefix, err := netip.ParsePrefix(value); err == nil {
		return prefix.Masked().String()
	}
	if addr, err := netip.ParseAddr(value); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()).String()
	}
	return value
}

func (c *canonicalizer) write(chain string) string {
	var b strings.Builder
	b.WriteString("-A " + chain)
	for _, flag := range []string{"-s", "-d", "-i", "-o", "-p"} {
		if value, ok := c.basics[flag]; ok {
			if inverted, not := strings.CutPrefix(value, "! "); not {
				b.WriteString(" ! " + flag + " " + inverted)
			} else {
				b.WriteString(" " + flag + " " + value)
			}
		}
	}
	for _, m := range c.matches {
		b.WriteString(" -m " + m.name)
		for _, option := range c.matchOptions(m) {
			b.WriteString(" " + option)
		}
	}
	if c.target != nil {
		b.WriteString(" " + c.branch + " " + c.target.name)
		for _, option := range c.targetOptions(c.target) {
			b.WriteString(" " + option)
		}
	}
	return b.String()
}

// probabilityUnit: the kernel stores probabilities as 31 bit fractions.
const probabilityUnit = 1 << 31

func (c *canonicalizer) matchOptions(m *extension) []string {
	switch m.name {
	case "comment":
		if text, ok := m.option("--comment"); ok {
			return []string{`--comment "` + text + `"`}
		}
	case "bpf":
		if program, ok := m.option("--bytecode"); ok {
			return []string{`--bytecode "` + program + `"`}
		}
	case "mark":
		return mapOptions(m.options, markOption)
	case "statistic":
		if p, ok := m.option("--probability"); ok {
			value, err := strconv.ParseFloat(p, 64)
			if err == nil {
				value = math.Round(value*probabilityUnit) / probabilityUnit
				return []string{"--mode random", fmt.Sprintf("--probability %.11f", value)}
			}
		}
	case "recent":
		return c.recentOptions(m)
	}
	return m.options
}

func (c *canonicalizer) recentOptions(m *extension) []string {
	var options []string
	for _, flag := range []string{"--set", "--rcheck", "--update", "--remove"} {
		if _, ok := m.option(flag); ok {
			options = append(options, flag)
		}
	}
	if seconds, ok := m.option("--seconds"); ok {
		options = append(options, "--seconds "+seconds)
	}
	if _, ok := m.option("--reap"); ok {
		options = append(options, "--reap")
	}
	name, _ := m.option("--name")
	mask := "255.255.255.255"
	if c.family == corev1.IPv6Protocol {
		mask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return append(options, "--name "+name, "--mask "+mask, "--rsource")
}

func (c *canonicalizer) targetOptions(t *extension) []string {
	switch t.name {
	case "MARK":
		return mapOptions(t.options, markTarget)
	case "REJECT":
		if len(t.options) == 0 {
			if c.family == corev1.IPv6Protocol {
				return []string{"--reject-with icmp6-port-unreachable"}
			}
			return []string{"--reject-with icmp-port-unreachable"}
		}
	}
	return t.options
}

func mapOptions(options []string, f func(string) string) []string {
	mapped := make([]string, len(options))
	for i, o := range options {
		mapped[i] = f(o)
	}
	return mapped
}

// markOption: 0x004000/0x004000 prints as 0x4000/0x4000.
func markOption(option string) string {
	flag, value, _ := strings.Cut(strings.TrimPrefix(option, "! "), " ")
	mark, mask, masked := strings.Cut(value, "/")
	text := flag + " " + hex(mark)
	if masked {
		text += "/" + hex(mask)
	}
	return prefixed(strings.HasPrefix(option, "! "), text)
}

// markTarget: iptables-save prints the older ways to set bits as --set-xmark value/mask.
func markTarget(option string) string {
	flag, value, _ := strings.Cut(option, " ")
	switch flag {
	case "--or-mark":
		return "--set-xmark " + hex(value) + "/" + hex(value)
	case "--xor-mark":
		return "--set-xmark " + hex(value) + "/0x0"
	}
	return markOption(option)
}

func hex(text string) string {
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return text
	}
	return "0x" + strconv.FormatUint(n, 16)
}
