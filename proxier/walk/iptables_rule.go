package walk

import (
	"fmt"

	"golang.org/x/net/bpf"
)

// target is what an iptables rule does with a packet that matches.
type target uint8

const (
	targetNone target = iota // continue with the next rule
	targetJump
	targetGoto
	targetReturn
	targetAccept
	targetDrop
	targetReject
	targetMark
	targetDNAT
	targetMasquerade
)

// A rule's inverted matches.
const (
	notSource = 1 << iota
	notDestination
	notInput
	notProtocol
	notSourcePort
	notDestinationPort
)

// iptablesRule is a compiled rule of iptables. The matches of most rules are fields; the zero value matches all
// packets.
type iptablesRule struct {
	dst, src network
	dport    portRange
	sport    portRange
	protocol Protocol // 0: any
	inverted uint8
	target   target
	chain    int32 // of jump and goto
	in       string
	matches  []match
	to       address // of DNAT
	toPort   uint16
	mark     [2]uint32 // and, xor
}

// portRange is a range of ports; the zero value contains all. Packets without ports match only the zero value.
type portRange struct{ low, high uint16 }

func (r portRange) holds(port uint16) bool {
	return r == portRange{} || r.low <= port && port <= r.high
}

// match is a match that few rules have.
type match struct {
	kind     matchKind
	inverted bool
	bits     uint32 // states, or the mark's value
	mask     uint32
	part     float64 // probability
	list     int32   // of xt_recent
	program  *bpf.VM // of xt_bpf
}

type matchKind uint8

const (
	matchState matchKind = iota
	matchMark
	matchLocalSource
	matchLocalDestination
	matchRandom
	matchRemembered
	matchRemember
	matchProgram
)

// States of -m conntrack --ctstate, as bits; SNAT and DNAT say how the flow was translated.
const (
	bitNew uint32 = 1 << iota
	bitEstablished
	bitRelated
	bitInvalid
	bitSNAT
	bitDNAT
	bitUntracked
)

func (s *state) stateBits() uint32 {
	bits := uint32(1) << s.conn // bitNew and so on are in State's order
	if s.translated && (s.dst != s.original || s.dport != s.originalPort) {
		bits |= bitDNAT // the kernel compares the two directions of the flow
	}
	return bits
}

// iptablesRules is a chain of iptables.
type iptablesRules []iptablesRule

func (rules iptablesRules) run(w *Walker, s *state) (result, error) {
	for int(s.at.rule) < len(rules) {
		r := &rules[s.at.rule]
		s.at.rule++
		s.cross()
		if !r.matchesHeaders(s) || r.matches != nil && !r.matchesRest(w, s) {
			continue
		}
		if w.tracing {
			w.note(s, position{chain: s.at.chain, rule: s.at.rule - 1})
		}
		switch r.target {
		case targetNone:
		case targetJump, targetGoto:
			return entered, w.call(s, r.chain, r.target == targetJump)
		case targetReturn:
			return returned, nil
		case targetAccept:
			return accepted, nil
		case targetDrop:
			return dropped, nil
		case targetReject:
			return rejected, nil
		case targetMark:
			s.mark = s.mark&^r.mark[0] ^ r.mark[1]
		case targetDNAT:
			s.translate(r.to, r.toPort)
			return accepted, nil
		case targetMasquerade:
			w.hide(s)
			return accepted, nil
		default:
			return 0, fmt.Errorf("target %d is not known", r.target)
		}
	}
	return ended, nil
}

func (r *iptablesRule) matchesHeaders(s *state) bool {
	not := r.inverted
	return r.dst.holds(&s.dst) != (not&notDestination != 0) &&
		(r.protocol == 0 || (r.protocol == s.protocol) != (not&notProtocol != 0)) &&
		r.dport.holds(s.dport) != (not&notDestinationPort != 0) &&
		r.src.holds(&s.src) != (not&notSource != 0) &&
		r.sport.holds(s.sport) != (not&notSourcePort != 0) &&
		(r.in == "" || onDevice(r.in, s.in) != (not&notInput != 0))
}

// onDevice reports whether a device matches a pattern. A pattern that ends in + matches all names that begin so.
func onDevice(pattern, name string) bool {
	if n := len(pattern) - 1; pattern[n] == '+' {
		return len(name) >= n && name[:n] == pattern[:n]
	}
	return pattern == name
}

// matchesRest evaluates the matches in order. A random match makes the path branch here.
func (r *iptablesRule) matchesRest(w *Walker, s *state) bool {
	for i := range r.matches {
		m := &r.matches[i]
		var yes bool
		switch m.kind {
		case matchState:
			yes = s.stateBits()&m.bits != 0
		case matchMark:
			yes = s.mark&m.mask == m.bits
		case matchLocalSource:
			yes = w.world.IsLocal(s.src.addr(w.rules.ipv4))
		case matchLocalDestination:
			yes = w.world.IsLocal(s.dst.addr(w.rules.ipv4))
		case matchRandom:
			yes = w.draw(s, m.part)
		case matchRemembered:
			yes = s.remembered != nothing && w.recall(s, m.list, s.clientKey()) != nil
		case matchRemember:
			w.remember(s, memory{list: m.list, key: s.clientKey()})
			yes = true
		case matchProgram:
			yes = w.accepts(m.program, s)
		}
		if yes == m.inverted {
			return false
		}
	}
	return true
}

// draw continues the path that matches, and adds the other path, if there is one, at the next rule.
func (w *Walker) draw(s *state, probability float64) bool {
	if probability < 1 {
		w.part(s, s.probability*(1-probability))
	}
	s.probability *= probability
	return true
}

// clientKey returns the source address as a key of the state of clients.
func (s *state) clientKey() string {
	b := s.src.addr(false).As16()
	return string(b[:])
}
