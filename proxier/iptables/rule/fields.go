package rule

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/bpf"
)

// match makes the Match of an extension.
func (p *Parser) match(i int) (Match, error) {
	if !p.known(i) {
		return p.foreignMatch(i), nil
	}
	return p.extensions[i].syntax.match(p, i)
}

func (p *Parser) foreignMatch(i int) Match { return Match{Kind: MatchForeign, Words: p.foreign(i)} }

// target makes the Target of an extension.
func (p *Parser) target(i int) (Target, error) {
	x := &p.extensions[i]
	switch {
	case p.known(i):
		return x.syntax.target(p, i)
	case x.goTo || x.syntax == nil && !slices.Contains(foreignTargets, x.name) &&
		!slices.ContainsFunc(p.options, func(o option) bool { return o.extension == i }):
		return Target{Kind: TargetJump, Chain: x.name, Goto: x.goTo}, nil
	}
	return Target{Kind: TargetForeign, Words: p.foreign(i)}, nil
}

func (p *Parser) comment(i int) (Match, error) {
	text, _, err := p.only(i, "--comment")
	return Match{Kind: MatchComment, Name: text}, err
}

func (p *Parser) accounting(i int) (Match, error) {
	name, _, err := p.only(i, "--nfacct-name")
	return Match{Kind: MatchAccounting, Name: name}, err
}

// ports parses match tcp, udp or sctp, and sets the rule's ports.
func (p *Parser) ports(i int) (Match, error) {
	r, name := &p.rule, p.extensions[i].name
	if r.Proto.String() != name || r.Not.Has(NotProto) {
		return Match{}, fmt.Errorf("needs -p %s", name) // the kernel refuses the rule
	}
	if slices.ContainsFunc(p.matches, func(m Match) bool { return m.Kind == MatchPorts }) {
		return p.foreignMatch(i), nil
	}
	var ranges [2]Ports
	var nots [2]bool
	for at, option := range [2]string{"--sport", "--dport"} {
		o := p.find(i, option)
		if o == nil {
			continue
		}
		ports, err := parsePorts(p.words[o.at+1].value)
		if err != nil {
			return Match{}, fmt.Errorf("%s: %w", option, err)
		}
		if ports == (Ports{}) { // port 0 alone
			return p.foreignMatch(i), nil
		}
		ranges[at], nots[at] = ports, o.not
	}
	r.SrcPorts, r.DstPorts = ranges[0], ranges[1]
	p.not(NotSrcPorts, nots[0])
	p.not(NotDstPorts, nots[1])
	return Match{Kind: MatchPorts}, nil
}

// parsePorts parses a port or a range of ports.
func parsePorts(text string) (ports Ports, err error) {
	first, last, isRange := strings.Cut(text, ":")
	if !isRange {
		last = first
	}
	for _, of := range []struct {
		text string
		port *uint16
	}{{first, &ports.First}, {last, &ports.Last}} {
		n, err := strconv.ParseUint(of.text, 10, 16)
		if err != nil {
			return Ports{}, fmt.Errorf("%q is not a port", of.text)
		}
		*of.port = uint16(n)
	}
	return ports, nil
}

// addrtype parses match addrtype. It is typed with one option and type LOCAL.
func (p *Parser) addrtype(i int) (Match, error) {
	src, dst := p.find(i, "--src-type"), p.find(i, "--dst-type")
	m, o := Match{Kind: MatchSrcLocal}, src
	switch {
	case src == nil && dst == nil:
		return Match{}, errors.New("no --src-type or --dst-type")
	case src != nil && dst != nil:
		return p.foreignMatch(i), nil
	case src == nil:
		m.Kind, o = MatchDstLocal, dst
	}
	if p.words[o.at+1].value != "LOCAL" {
		return p.foreignMatch(i), nil
	}
	m.Not = o.not
	return m, nil
}

func (p *Parser) states(i int) (Match, error) {
	text, not, err := p.only(i, "--ctstate")
	if err != nil {
		return Match{}, err
	}
	m := Match{Kind: MatchState, Not: not}
	for name := range strings.SplitSeq(text, ",") {
		at := slices.Index(stateNames[:], name)
		if at < 0 {
			return Match{}, fmt.Errorf("state %q is not known", name)
		}
		m.Bits |= 1 << at
	}
	return m, nil
}

func (p *Parser) mark(i int) (m Match, err error) {
	text, not, err := p.only(i, "--mark")
	if err == nil {
		m = Match{Kind: MatchMark, Not: not}
		m.Bits, m.Mask, err = parseMark(text)
	}
	return m, err
}

// parseMark parses "value" or "value/mask"; the default mask has all bits.
func parseMark(text string) (value, mask uint32, err error) {
	v, m, masked := strings.Cut(text, "/")
	mask = math.MaxUint32
	value, err = parseNumber(v)
	if err == nil && masked {
		mask, err = parseNumber(m)
	}
	return value, mask, err
}

// parseNumber parses a number of 32 bits: decimal, hexadecimal (0x) or octal (0).
func parseNumber(text string) (uint32, error) {
	n, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of 32 bits", text)
	}
	return uint32(n), nil
}

// random parses match statistic. It is foreign with mode nth, which has other options.
func (p *Parser) random(i int) (Match, error) {
	text, not, err := p.only(i, "--probability")
	if err != nil {
		return Match{}, err
	}
	if mode, _, err := p.only(i, "--mode"); err != nil || mode != "random" {
		return Match{}, fmt.Errorf("mode %q is not known", mode)
	}
	probability, err := strconv.ParseFloat(text, 64)
	if err != nil || !(probability >= 0 && probability <= 1) {
		return Match{}, fmt.Errorf("%q is not a probability", text)
	}
	return Match{Kind: MatchRandom, Not: not, Bits: uint32(math.Round(probability * ProbabilityUnit))}, nil
}

// recent parses match recent. It is foreign if a part of the address or the destination is the key.
func (p *Parser) recent(i int) (Match, error) {
	m := Match{Kind: MatchRecent, Name: "DEFAULT"}
	for _, known := range recentOptions {
		if o := p.find(i, known.option); o != nil && m.Bits == 0 {
			m.Bits, m.Not = known.bit, o.not
		} else if o != nil {
			return Match{}, fmt.Errorf("%s is a second command", known.option)
		}
	}
	if m.Bits == 0 {
		return Match{}, errors.New("no --set or --rcheck")
	}
	if text, _, err := p.only(i, "--seconds"); err == nil {
		if m.Seconds, err = parseNumber(text); err != nil || m.Seconds == 0 {
			return Match{}, fmt.Errorf("--seconds: %q is not a number of seconds", text)
		}
	}
	if p.find(i, "--reap") != nil {
		if m.Seconds == 0 {
			return Match{}, errors.New("--reap without --seconds")
		}
		m.Bits |= RecentReap
	}
	if text, _, err := p.only(i, "--name"); err == nil {
		if m.Name = text; checkName(text) != nil {
			return Match{}, fmt.Errorf("--name: %w", checkName(text))
		}
	}
	if text, _, err := p.only(i, "--mask"); err == nil && text != wholeAddress[p.ipv6] {
		return p.foreignMatch(i), nil
	}
	return m, nil
}

// wholeAddress is the mask of match recent, by IPv6.
var wholeAddress = map[bool]string{false: "255.255.255.255", true: "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}

// mostInstructions is the largest number of instructions of a program (XT_BPF_MAX_NUM_INSTR).
const mostInstructions = 64

// program parses "number of instructions,code jt jf k,…".
func (p *Parser) program(i int) (Match, error) {
	text, _, err := p.only(i, "--bytecode")
	if err != nil {
		return Match{}, err
	}
	count, rest, _ := strings.Cut(text, ",")
	n, err := strconv.ParseUint(count, 10, 16)
	if err != nil {
		return Match{}, fmt.Errorf("bytecode: %w", err)
	}
	lines := strings.Split(rest, ",")
	if n == 0 || n > mostInstructions || int(n) != len(lines) {
		return Match{}, fmt.Errorf("bytecode: %d instructions of %d", len(lines), n)
	}
	program := make([]bpf.RawInstruction, n)
	for at, line := range lines {
		if program[at], err = parseInstruction(line); err != nil {
			return Match{}, fmt.Errorf("bytecode: instruction %d: %w", at, err)
		}
	}
	return Match{Kind: MatchProgram, Program: program}, nil
}

// parseInstruction parses "code jt jf k".
func parseInstruction(text string) (raw bpf.RawInstruction, err error) {
	words := strings.Fields(text)
	if len(words) != 4 {
		return raw, fmt.Errorf("%q is no instruction", text)
	}
	var numbers [4]uint64
	for i, size := range [4]int{16, 8, 8, 32} {
		if numbers[i], err = strconv.ParseUint(words[i], 10, size); err != nil {
			return raw, err
		}
	}
	return bpf.RawInstruction{Op: uint16(numbers[0]), Jt: uint8(numbers[1]), Jf: uint8(numbers[2]), K: uint32(numbers[3])}, nil
}

// defaultReject is the answer of REJECT without an option, by IPv6.
var defaultReject = map[bool]string{false: "icmp-port-unreachable", true: "icmp6-port-unreachable"}

func (p *Parser) reject(i int) (Target, error) {
	text, _, err := p.only(i, "--reject-with")
	if err != nil {
		text = defaultReject[p.ipv6]
	}
	return Target{Kind: TargetReject, With: text}, checkName(text)
}

// setMark parses target MARK: the bits that it toggles, and those that it clears before.
func (p *Parser) setMark(i int) (Target, error) {
	t := Target{Kind: TargetMark}
	given := slices.DeleteFunc([]string{"--set-xmark", "--or-mark", "--xor-mark"}, func(name string) bool { return p.find(i, name) == nil })
	if len(given) != 1 {
		return t, fmt.Errorf("%d marks instead of one", len(given))
	}
	text, _, err := p.only(i, given[0])
	switch given[0] {
	case "--set-xmark":
		t.Bits, t.Mask, err = parseMark(text)
	case "--or-mark":
		t.Bits, err = parseNumber(text)
		t.Mask = t.Bits
	case "--xor-mark":
		t.Bits, err = parseNumber(text)
	}
	if err != nil {
		return t, fmt.Errorf("%s: %w", given[0], err)
	}
	return t, nil
}

// dnat parses target DNAT. It is foreign with a range, or with a port alone.
func (p *Parser) dnat(i int) (Target, error) {
	text, _, err := p.only(i, "--to-destination")
	if err != nil {
		return Target{}, err
	}
	to, err := netip.ParseAddrPort(text)
	if err != nil {
		addr, err := netip.ParseAddr(text)
		if err != nil {
			return Target{Kind: TargetForeign, Words: p.foreign(i)}, nil
		}
		to = netip.AddrPortFrom(addr, 0)
	} else if to.Port() == 0 {
		return Target{}, fmt.Errorf("--to-destination: %s has port 0", to)
	}
	if err := p.checkAddr(to.Addr()); err != nil {
		return Target{}, fmt.Errorf("--to-destination: %w", err)
	}
	return Target{Kind: TargetDNAT, To: to}, nil
}
