package walk

// Rules is a compiled ruleset of one family. It does not change.
type Rules struct {
	ipv4   bool
	chains []chain
	bases  [hooks][]base // by priority
}

// chain of rules.
type chain struct {
	table   string
	name    string
	service bool // a Service's own: who enters it has found the Service
	rules   ruleList
}

// ruleList are the rules of a chain. iptables' are compiled to one shape, nf_tables' are programs.
type ruleList interface {
	// run goes on at s.at until the chain is left.
	run(w *Walker, s *state) (result, error)
}

// result is how a chain is left.
type result int

const (
	ended    result = iota // after the last rule
	returned               // by a rule, to the caller
	entered                // s.at is in another chain
	accepted               // this base chain lets the packet go on
	rejected
	dropped
)

// base is a base chain: where packets enter from a hook.
type base struct {
	chain    int32
	priority int
	nat      bool
	drop     bool // policy
}

// nextBase takes the packet to the next base chain that looks at it, through the hooks. It is false when the packet has
// come through all of them: then it has passed.
func (w *Walker) nextBase(s *state) bool {
	w.leaveBase(s)
	for {
		bases := w.rules.bases[s.hook]
		for s.base++; s.base < len(bases); s.base++ {
			b := &bases[s.base]
			if b.nat && (s.conn != StateNew || s.hasBinding()) {
				continue
			}
			s.at, s.depth, s.inBase = position{chain: b.chain}, 0, 0
			return true
		}
		// What nat did not change by now it will not change later.
		s.bind()
		if !w.nextHook(s) {
			w.end(s, Pass)
			return false
		}
		s.base = -1
	}
}

// leaveBase keeps the number of nat's rules in the hook by which the packet came in.
func (w *Walker) leaveBase(s *state) {
	if s.base < 0 || s.looped || s.hook != Prerouting && s.hook != Output {
		return
	}
	if w.rules.bases[s.hook][s.base].nat {
		s.entryNAT += s.inBase
	}
}

// hasBinding says whether nat is done with the packet in this hook: destinations are decided in PREROUTING and OUTPUT,
// sources in INPUT and POSTROUTING, once for each flow.
func (s *state) hasBinding() bool {
	if s.hook == Prerouting || s.hook == Output {
		return s.dstReady
	}
	return s.srcInit
}

func (s *state) bind() {
	switch s.hook {
	case Prerouting, Output:
		s.dstReady = true
	case Input, Postrouting:
		s.srcInit = true
	}
}

// nextHook routes the packet; false: there is nothing more.
func (w *Walker) nextHook(s *state) bool {
	switch s.hook {
	case Prerouting:
		s.hook = Forward
		if w.world.IsLocal(s.dst.addr(w.rules.ipv4)) {
			s.hook = Input
		}
	case Output, Forward:
		s.hook = Postrouting
	case Postrouting:
		if s.in != "" || !w.world.IsLocal(s.dst.addr(w.rules.ipv4)) {
			return false
		}
		// By loopback the packet comes in again, with its flow and its mark.
		s.hook, s.in, s.looped = Prerouting, "lo", true
	default:
		return false
	}
	return true
}
