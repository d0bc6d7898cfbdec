package walk

import (
	"fmt"

	"golang.org/x/net/bpf"

	"synclab/proxier/iptables/rule"
)

// iptablesRule is a compiled rule of iptables. The matches of most rules are fields; the zero value matches all
// packets.
type iptablesRule struct {
	dst, src network
	dport    rule.Ports
	sport    rule.Ports
	protocol Protocol // 0: any
	not      rule.Not
	target   rule.TargetKind
	goTo     bool  // of a jump: the packet does not return
	chain    int32 // of a jump
	in       string
	matches  []match
	to       address // of DNAT
	toPort   uint16
	mark     [2]uint32 // and, xor
}

// holds reports whether a range contains a port. Packets without ports match only the zero value.
func holds(r rule.Ports, port uint16) bool {
	return r == rule.Ports{} || r.First <= port && port <= r.Last
}

// match is a match that few rules have.
type match struct {
	kind       rule.Kind
	not        bool
	bits, mask uint32  // as in rule.Match
	part       float64 // of MatchRandom: the probability
	list       int32   // of MatchRecent
	program    *bpf.VM // of MatchProgram
}

// stateBits are the bits of match conntrack.
var stateBits = [...]uint32{
	StateNew: rule.StateNew, StateEstablished: rule.StateEstablished, StateRelated: rule.StateRelated, StateInvalid: rule.StateInvalid,
}

func (s *state) stateBits() uint32 {
	bits := stateBits[s.conn]
	if s.translated && (s.dst != s.original || s.dport != s.originalPort) {
		bits |= rule.StateDNAT // the kernel compares the two directions of the flow
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
		case rule.TargetNone:
		case rule.TargetJump:
			return entered, w.call(s, r.chain, !r.goTo)
		case rule.TargetReturn:
			return returned, nil
		case rule.TargetAccept:
			return accepted, nil
		case rule.TargetDrop:
			return dropped, nil
		case rule.TargetReject:
			return rejected, nil
		case rule.TargetMark:
			s.mark = s.mark&^r.mark[0] ^ r.mark[1]
		case rule.TargetDNAT:
			s.translate(r.to, r.toPort)
			return accepted, nil
		case rule.TargetMasquerade:
			w.hide(s)
			return accepted, nil
		default:
			return 0, fmt.Errorf("target %d is not known", r.target)
		}
	}
	return ended, nil
}

func (r *iptablesRule) matchesHeaders(s *state) bool {
	not := r.not
	return r.dst.holds(&s.dst) != not.Has(rule.NotDst) &&
		(r.protocol == 0 || (r.protocol == s.protocol) != not.Has(rule.NotProto)) &&
		holds(r.dport, s.dport) != not.Has(rule.NotDstPorts) &&
		r.src.holds(&s.src) != not.Has(rule.NotSrc) &&
		holds(r.sport, s.sport) != not.Has(rule.NotSrcPorts) &&
		(r.in == "" || onDevice(r.in, s.in) != not.Has(rule.NotIn))
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
		case rule.MatchState:
			yes = s.stateBits()&m.bits != 0
		case rule.MatchMark:
			yes = s.mark&m.mask == m.bits
		case rule.MatchSrcLocal:
			yes = w.world.IsLocal(s.src.addr(w.rules.ipv4))
		case rule.MatchDstLocal:
			yes = w.world.IsLocal(s.dst.addr(w.rules.ipv4))
		case rule.MatchRandom:
			yes = w.draw(s, m.part)
		case rule.MatchRecent:
			if m.bits&rule.RecentSet != 0 {
				w.remember(s, memory{list: m.list, key: s.clientKey()})
				yes = true
			} else {
				yes = s.remembered != nothing && w.recall(s, m.list, s.clientKey()) != nil
			}
		case rule.MatchProgram:
			yes = w.accepts(m.program, s)
		}
		if yes == m.not {
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
