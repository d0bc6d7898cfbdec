package walk

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// ruleParser parses the words of one rule.
type ruleParser struct {
	compiler *iptablesCompiler
	words    []string
	next     int

	rule     iptablesRule
	jump     string
	loaded   []string // matches by -m
	targeted string   // target by -j
	random   bool     // --mode random
	recent   recentMatch
	list     string // of xt_recent
}

type recentMatch struct {
	option   string // --set or --rcheck
	inverted bool
}

func (p *ruleParser) parse() error {
	for p.next < len(p.words) {
		word := p.take()
		inverted := word == "!"
		if inverted {
			word = p.take()
		}
		if err := p.option(word, inverted); err != nil {
			return err
		}
	}
	return p.finish()
}

// take returns the next word; empty at the end.
func (p *ruleParser) take() string {
	if p.next == len(p.words) {
		return ""
	}
	p.next++
	return p.words[p.next-1]
}

// not sets a bit of the rule when a match is inverted.
func (p *ruleParser) not(bit uint8, inverted bool) {
	if inverted {
		p.rule.inverted |= bit
	}
}

func (p *ruleParser) option(word string, inverted bool) (err error) {
	r := &p.rule
	switch word {
	case "-s", "-d":
		p.not(map[string]uint8{"-s": notSource, "-d": notDestination}[word], inverted)
		network, err := p.compiler.parsePrefix(p.take())
		if word == "-s" {
			r.src = network
		} else {
			r.dst = network
		}
		return err
	case "-i":
		p.not(notInput, inverted)
		if r.in = p.take(); r.in == "" {
			return errors.New("-i without a device")
		}
		return nil
	case "-p":
		p.not(notProtocol, inverted)
		r.protocol, err = parseProtocol(p.take())
		return err
	case "-m":
		return p.load(p.take())
	case "-j", "-g":
		return p.goal(word, p.take())
	case "--reject-with", "--to-destination", "--set-xmark", "--set-mark", "--or-mark", "--xor-mark", "--and-mark", "--random-fully":
		if inverted {
			return fmt.Errorf("%s cannot be inverted", word)
		}
		return p.targetOption(word)
	}
	return p.matchOption(word, inverted)
}

func parseProtocol(name string) (Protocol, error) {
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if name == p.String() || name == strconv.Itoa(int(p)) {
			return p, nil
		}
	}
	return 0, fmt.Errorf("protocol %q is not known", name)
}

// load adds a match of -m. Matches on the ports of a protocol need -p, as in iptables.
func (p *ruleParser) load(name string) error {
	switch name {
	case "comment", "tcp", "udp", "sctp", "addrtype", "conntrack", "mark", "statistic", "recent", "nfacct", "bpf":
		p.loaded = append(p.loaded, name)
		return nil
	}
	return fmt.Errorf("match %q is not known", name)
}

// owners are the matches to which options belong.
var owners = map[string]string{
	"--comment": "comment", "--dst-type": "addrtype", "--src-type": "addrtype", "--ctstate": "conntrack", "--mark": "mark",
	"--mode": "statistic", "--probability": "statistic", "--nfacct-name": "nfacct",
	"--name": "recent", "--set": "recent", "--rcheck": "recent", "--seconds": "recent", "--reap": "recent", "--mask": "recent",
	"--rsource": "recent", "--bytecode": "bpf",
}

func (p *ruleParser) matchOption(word string, inverted bool) error {
	// Ports need -p alone: iptables loads the match.
	isPort := word == "--dport" || word == "--sport"
	if owner := owners[word]; isPort && p.rule.protocol == 0 || !isPort && (owner == "" || !slices.Contains(p.loaded, owner)) {
		return fmt.Errorf("option %q is not known", word)
	}
	r := &p.rule
	m := match{inverted: inverted}
	var err error
	switch word {
	case "--comment", "--nfacct-name":
		p.take()
		return refuseInverted(word, inverted)
	case "--dport":
		p.not(notDestinationPort, inverted)
		r.dport, err = parsePorts(p.take())
		return err
	case "--sport":
		p.not(notSourcePort, inverted)
		r.sport, err = parsePorts(p.take())
		return err
	case "--dst-type", "--src-type":
		m.kind = matchLocalDestination
		if word == "--src-type" {
			m.kind = matchLocalSource
		}
		if kind := p.take(); kind != "LOCAL" {
			return fmt.Errorf("address type %q is not known", kind)
		}
	case "--ctstate":
		m.kind = matchState
		m.bits, err = parseStates(p.take())
	case "--mark":
		m.kind = matchMark
		m.bits, m.mask, err = parseMark(p.take())
	case "--mode":
		if mode := p.take(); mode != "random" {
			return fmt.Errorf("mode %q is not known", mode)
		}
		p.random = true
		return refuseInverted(word, inverted)
	case "--probability":
		m.kind = matchRandom
		m.part, err = strconv.ParseFloat(p.take(), 64)
		if err == nil && !(m.part > 0 && m.part <= 1) {
			err = fmt.Errorf("probability %v", m.part)
		}
		if err == nil && inverted {
			m.part, m.inverted = 1-m.part, false // the complementary probability
		}
	case "--bytecode":
		if err := refuseInverted(word, inverted); err != nil {
			return err
		}
		m.kind = matchProgram
		m.program, err = compileBytecode(p.take(), p.compiler.rules.ipv4)
	default:
		return p.recentOption(word, inverted)
	}
	r.matches = append(r.matches, m)
	return err
}

func refuseInverted(word string, inverted bool) error {
	if inverted {
		return fmt.Errorf("%s cannot be inverted", word)
	}
	return nil
}

func parseStates(text string) (uint32, error) {
	var bits uint32
	for name := range strings.SplitSeq(text, ",") {
		bit, known := map[string]uint32{
			"NEW": bitNew, "ESTABLISHED": bitEstablished, "RELATED": bitRelated, "INVALID": bitInvalid,
			"SNAT": bitSNAT, "DNAT": bitDNAT, "UNTRACKED": bitUntracked,
		}[name]
		if !known || name == "SNAT" {
			return 0, fmt.Errorf("state %q is not known", name)
		}
		bits |= bit
	}
	return bits, nil
}

// recentOption parses the options of xt_recent, with the source address as the key. A client is remembered or not; the
// evaluator knows no time.
func (p *ruleParser) recentOption(word string, inverted bool) error {
	switch word {
	case "--set", "--rcheck":
		p.recent = recentMatch{option: word, inverted: inverted}
		return nil
	case "--name":
		p.list = p.take()
	case "--seconds":
		if _, err := strconv.ParseUint(p.take(), 10, 32); err != nil {
			return err
		}
	case "--mask":
		mask, err := netip.ParseAddr(p.take())
		if err != nil {
			return err
		}
		if a := addressOf(mask); a != (address{0, 1<<32 - 1}) && a != (address{^uint64(0), ^uint64(0)}) {
			return fmt.Errorf("mask %s is not known", mask)
		}
	}
	return refuseInverted(word, inverted)
}

// goal parses -j and -g.
func (p *ruleParser) goal(how, name string) error {
	if p.targeted != "" {
		return errors.New("two targets")
	}
	p.targeted = name
	kind, builtin := map[string]target{
		"RETURN": targetReturn, "ACCEPT": targetAccept, "DROP": targetDrop, "REJECT": targetReject, "MARK": targetMark,
		"DNAT": targetDNAT, "MASQUERADE": targetMasquerade,
	}[name]
	switch {
	case name == "":
		return fmt.Errorf("%s without a target", how)
	case how == "-g":
		p.rule.target, p.jump = targetGoto, name
	case builtin:
		p.rule.target = kind
	default:
		p.rule.target, p.jump = targetJump, name // found at COMMIT, or refused
	}
	return nil
}

func (p *ruleParser) targetOption(word string) (err error) {
	r := &p.rule
	known := false
	switch word {
	case "--reject-with":
		known = r.target == targetReject
		p.take() // any answer is a reject
	case "--random-fully":
		known = r.target == targetMasquerade
	case "--to-destination":
		known = r.target == targetDNAT
		to, err := netip.ParseAddrPort(p.take())
		if err != nil {
			return err
		}
		if to.Addr().Is4() != p.compiler.rules.ipv4 || to.Addr().Zone() != "" {
			return fmt.Errorf("%s is of another family", to)
		}
		r.to, r.toPort = addressOf(to.Addr()), to.Port()
	default:
		known = r.target == targetMark
		r.mark, err = parseMarkTarget(word, p.take())
	}
	if err == nil && !known {
		err = fmt.Errorf("option %q is not of target %q", word, p.targeted)
	}
	return err
}

// parseMarkTarget returns the bits to clear and the bits to toggle.
func parseMarkTarget(word, text string) (bits [2]uint32, err error) {
	value, mask, err := parseMark(text)
	switch word {
	case "--set-xmark":
		return [2]uint32{mask, value}, err
	case "--set-mark": // clears the value's bits too
		return [2]uint32{mask | value, value}, err
	case "--or-mark":
		return [2]uint32{value, value}, err
	case "--xor-mark":
		return [2]uint32{0, value}, err
	}
	return [2]uint32{^value, 0}, err // --and-mark
}

// finish checks conditions on the whole rule.
func (p *ruleParser) finish() error {
	r := &p.rule
	for _, name := range p.loaded {
		switch name {
		case "tcp", "udp", "sctp":
			if r.protocol.String() != name || r.inverted&notProtocol != 0 {
				return fmt.Errorf("match %s without its protocol", name)
			}
		case "recent":
			if err := p.finishRecent(); err != nil {
				return err
			}
		case "statistic":
			if !p.random {
				return errors.New("match statistic without its mode")
			}
		case "bpf":
			if !slices.ContainsFunc(r.matches, func(m match) bool { return m.kind == matchProgram }) {
				return errors.New("match bpf without its bytecode")
			}
		}
	}
	if r.target == targetDNAT && r.toPort == 0 {
		return errors.New("target DNAT without address and port")
	}
	return nil
}

func (p *ruleParser) finishRecent() error {
	m := match{kind: matchRemembered, inverted: p.recent.inverted}
	switch {
	case p.recent.option == "" || p.list == "":
		return errors.New("match recent without its list, --set or --rcheck")
	case p.recent.option == "--set":
		m.kind = matchRemember
	}
	list, there := p.compiler.lists[p.list]
	if !there {
		list = int32(len(p.compiler.lists))
		p.compiler.lists[p.list] = list
	}
	m.list = list
	p.rule.matches = append(p.rule.matches, m)
	return nil
}
