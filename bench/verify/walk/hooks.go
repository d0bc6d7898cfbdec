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
	service bool // a chain of a Service: a packet in it has found the Service
	rules   ruleList
}

// ruleList are the rules of a chain. Those of iptables are compiled to one struct type, those of nf_tables to programs.
type ruleList interface {
	// run continues at s.at until the packet leaves the chain.
	run(w *Walker, s *state) (result, error)
}

// result is how a packet leaves a chain.
type result int

const (
	ended    result = iota // after the last rule
	returned               // by a rule, to the caller
	entered                // s.at is in another chain
	accepted               // the packet leaves this base chain and continues
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

// nextBase moves the packet to the next base chain that evaluates it, through the hooks. It returns false after the
// last one: then the packet has passed.
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
		// A translation that nat did not make by now is not made later.
		s.bind()
		if !w.nextHook(s) {
			w.end(s, Pass)
			return false
		}
		s.base = -1
	}
}

// leaveBase stores the number of rules crossed in nat of the hook by which the packet entered.
func (w *Walker) leaveBase(s *state) {
	if s.base < 0 || s.looped || s.hook != Prerouting && s.hook != Output {
		return
	}
	if w.rules.bases[s.hook][s.base].nat {
		s.entryNAT += s.inBase
	}
}

// hasBinding reports whether nat has decided in this hook. It decides once for each flow: destinations in PREROUTING
// and OUTPUT, sources in INPUT and POSTROUTING.
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

// nextHook routes the packet; false: there is no further hook.
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
		// The packet enters again by loopback, with its flow and its mark.
		s.hook, s.in, s.looped = Prerouting, "lo", true
	default:
		return false
	}
	return true
}
