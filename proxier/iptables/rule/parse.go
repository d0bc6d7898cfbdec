package rule

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Parse parses a line of iptables-save or of iptables-restore that appends a rule: "-A CHAIN …", with or without
// counters in front. Its errors name the option and the line.
func Parse(f corev1.IPFamily, line string) (chain string, r Rule, err error) {
	return NewParser(f).Parse(line)
}

// Parser parses rules of one family, one after the other. It uses its memory again for each.
type Parser struct {
	ipv6       bool
	words      []word
	at         int         // the next word
	given      Not         // options of the rule that were given
	extensions []extension // in the order of -m, -j and -g
	options    []option    // of the extensions
	matches    []Match     // of the rule, until keep copies them
	rule       Rule

	// spare is memory for the matches of many rules; it is made for that many matches at a time.
	spare []Match
	many  int
}

// NewParser makes a Parser.
func NewParser(f corev1.IPFamily) *Parser {
	return &Parser{ipv6: f == corev1.IPv6Protocol, words: make([]word, 0, 32)}
}

// Parse parses one line; see function Parse.
func (p *Parser) Parse(line string) (chain string, r Rule, err error) {
	if chain, err = p.line(strings.Trim(line, " \t\r\n")); err != nil {
		return "", Rule{}, fmt.Errorf("%w: %q", err, line)
	}
	return chain, p.rule, nil
}

func (p *Parser) line(line string) (chain string, err error) {
	p.rule = Rule{IPv6: p.ipv6}
	p.words, p.extensions, p.options, p.matches = p.words[:0], p.extensions[:0], p.options[:0], p.matches[:0]
	p.at, p.given = 2, 0
	if strings.HasPrefix(line, "[") {
		counters, rest, _ := strings.Cut(line[1:], "]")
		packets, bytes, _ := strings.Cut(counters, ":")
		for i, text := range [2]string{packets, bytes} {
			if p.rule.Counters[i], err = strconv.ParseUint(text, 10, 64); err != nil {
				return "", fmt.Errorf("counter %q is not a number", text)
			}
		}
		line = rest
	}
	if p.words, err = splitWords(p.words, line); err != nil {
		return "", err
	}
	if len(p.words) < 2 || p.words[0].value != "-A" {
		return "", errors.New("not a rule")
	}
	chain = p.words[1].value
	if err := checkChain(chain); err != nil {
		return "", err
	}
	for p.at < len(p.words) {
		if err := p.next(); err != nil {
			return "", err
		}
	}
	return chain, p.finish()
}

// next reads an option with its arguments.
func (p *Parser) next() (err error) {
	not := p.words[p.at].raw == "!"
	if not {
		p.at++
	}
	if p.at == len(p.words) {
		return errors.New("! without an option")
	}
	name := p.words[p.at].value
	p.at++
	switch name {
	case "-s":
		err = p.address(name, &p.rule.Src, NotSrc, not)
	case "-d":
		err = p.address(name, &p.rule.Dst, NotDst, not)
	case "-i":
		err = p.device(&p.rule.In, NotIn, not)
	case "-o":
		err = p.device(&p.rule.Out, NotOut, not)
	case "-p":
		err = p.protocol(not)
	case "-f":
		p.addWords(not, "-f")
	case "-m", "-j", "-g":
		err = p.load(name, not)
	default:
		err = p.extensionOption(name, not)
	}
	if err != nil {
		return fmt.Errorf("option %s: %w", name, err)
	}
	return nil
}

var (
	errTwice       = errors.New("given twice")
	errNoValue     = errors.New("no value")
	errNotInverted = errors.New("cannot be inverted")
)

// value returns the next word. As in iptables, it may begin with a dash.
func (p *Parser) value() (string, error) {
	if p.at >= len(p.words) {
		return "", errNoValue
	}
	p.at++
	return p.words[p.at-1].value, nil
}

// once returns the value of an option of the rule itself, and refuses the option if it was already given.
func (p *Parser) once(option Not) (string, error) {
	if p.given.Has(option) {
		return "", errTwice
	}
	p.given |= option
	return p.value()
}

// not marks an option of the rule as inverted.
func (p *Parser) not(option Not, inverted bool) {
	if inverted {
		p.rule.Not |= option
	}
}

// addWords adds an option without a field to the rule.
func (p *Parser) addWords(not bool, text string) {
	if not {
		text = "! " + text
	}
	if p.rule.Words != "" {
		text = p.rule.Words + " " + text
	}
	p.rule.Words = text
}

// address reads -s or -d.
func (p *Parser) address(option string, to *netip.Prefix, bit Not, not bool) error {
	text, err := p.once(bit)
	if err != nil {
		return err
	}
	host, mask, masked := strings.Cut(text, "/")
	addr, err := p.parseAddr(host)
	if err != nil {
		return err
	}
	length := addr.BitLen()
	if masked {
		if _, err := p.parseAddr(mask); err == nil { // iptables-save prints only masks so that are no prefix
			p.addWords(not, option+" "+text)
			return nil
		}
		if length, err = strconv.Atoi(mask); err != nil || length < 0 || length > addr.BitLen() {
			return fmt.Errorf("prefix length %q", mask)
		}
	}
	if length > 0 || not { // iptables-save prints no prefix that contains all addresses
		*to = netip.PrefixFrom(addr, length).Masked()
		p.not(bit, not)
	}
	return nil
}

func (p *Parser) parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return addr, fmt.Errorf("%q is not an address", text)
	}
	return addr, p.checkAddr(addr)
}

func (p *Parser) checkAddr(addr netip.Addr) error {
	if addr.Is4() == p.ipv6 || addr.Zone() != "" {
		return fmt.Errorf("%s is of another family, or has a zone", addr)
	}
	return nil
}

// device reads -i or -o.
func (p *Parser) device(to *string, bit Not, not bool) error {
	name, err := p.once(bit)
	if err != nil {
		return err
	}
	if name != "+" || not { // + is any device, which iptables-save does not print
		*to = name
		p.not(bit, not)
	}
	return checkName(name)
}

// protocol reads -p.
func (p *Parser) protocol(not bool) error {
	name, err := p.once(NotProto)
	if err != nil {
		return err
	}
	if p.rule.Proto = protoOf(name); p.rule.Proto == 0 {
		p.addWords(not, "-p "+name)
	} else {
		p.not(NotProto, not)
	}
	return checkName(name)
}

// finish makes the matches and the target of the extensions.
func (p *Parser) finish() error {
	for i := range p.extensions {
		x := &p.extensions[i]
		if x.target {
			t, err := p.target(i)
			if err != nil {
				return fmt.Errorf("target %s: %w", x.name, err)
			}
			p.rule.Target = t
			continue
		}
		m, err := p.match(i)
		if err != nil {
			return fmt.Errorf("match %s: %w", x.name, err)
		}
		p.matches = append(p.matches, m)
	}
	p.rule.Matches = p.keep(p.matches)
	return nil
}

// keep copies the matches of a rule to memory of their own.
func (p *Parser) keep(matches []Match) []Match {
	n := len(matches)
	if n == 0 {
		return nil
	}
	if cap(p.spare)-len(p.spare) < n {
		p.spare = make([]Match, 0, max(n, p.many))
	}
	at := len(p.spare)
	p.spare = append(p.spare, matches...)
	return p.spare[at : at+n : at+n]
}
