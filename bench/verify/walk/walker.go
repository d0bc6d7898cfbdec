package walk

import (
	"fmt"
	"net/netip"
)

// jumps is how deep chains may call each other in nf_tables (NFT_JUMP_STACK_SIZE). The legacy tables allow more, but
// rules must work in both variants.
const jumps = 16

// mostChains limits how many chains a walk enters. It ends loops of chains, which the kernel refuses.
const mostChains = 10_000_000

// position in the rules: the next rule, and the next part of it where a packet leaves a rule in the middle.
type position struct{ chain, rule, part int32 }

// state is a packet on its path. It is copied where the path branches.
type state struct {
	at          position
	depth       int
	stack       [jumps]position
	hook        Hook
	base        int // the index of the present base chain among those of the hook
	probability float64

	src, dst     address
	sport, dport uint16
	protocol     Protocol
	in           string
	conn         State
	mark         uint32

	original          address // destination before any translation
	originalPort      uint16
	translated        bool // DNAT
	masquerade        bool
	dstReady, srcInit bool // nat has decided, even if to change nothing
	looped            bool // sent by the node to itself, and entered again
	remembered        int32
	matched           int32 // the last rule of Walker.trace

	crossed  Crossed
	inBase   int // rules crossed in the present base chain
	picked   bool
	entryNAT int // rules crossed in nat of the hook by which it entered

	registers [16 * 4]byte // of nf_tables
}

// Walker walks packets through rules. It reuses its memory, so only one goroutine may use it at a time.
type Walker struct {
	rules   *Rules
	world   NodeAddresses
	work    []state
	memory  []memory
	verdict Result
	ends    []end
	entered int // chains, in this walk
	limit   int
	tracing bool
	trace   []matched
	header  [40]byte // of the packet, for rules that read its bytes
}

// end is the end of one path, with the state of the client at that point.
type end struct {
	outcome    Outcome
	remembered int32
	matched    int32
}

// New creates a Walker.
func New(rules *Rules, world NodeAddresses) *Walker {
	return &Walker{rules: rules, world: world, limit: mostChains}
}

// Walk returns the verdict on a packet. Errors name the rule at which the walk ended.
func (w *Walker) Walk(p *Packet) (Result, error) {
	if err := w.walkAfter(p); err != nil {
		return Result{}, err
	}
	v := Result{Crossed: w.verdict.Crossed, Outcomes: make([]Outcome, len(w.ends))}
	for i := range w.ends {
		v.Outcomes[i] = w.ends[i].outcome
	}
	v.settle()
	return v, nil
}

// walkAfter walks a packet, and before it the earlier packet of its client.
func (w *Walker) walkAfter(p *Packet) error {
	w.memory = w.memory[:0]
	starts := []end{{outcome: Outcome{Probability: 1}, remembered: nothing}}
	if p.After != nil {
		earlier := *p
		earlier.After = nil
		if p.After.Via.IsValid() {
			earlier.Destination = p.After.Via
		}
		if err := w.walk(&earlier, starts); err != nil {
			return err
		}
		if there := w.reached(p.After.Endpoint); len(there) > 0 {
			starts = there
		}
	}
	w.trace = w.trace[:0]
	return w.walk(p, starts)
}

// reached returns the ends of the last walk at an endpoint, with probabilities as if the packet had certainly reached
// it.
func (w *Walker) reached(endpoint netip.AddrPort) []end {
	var there []end
	var sum float64
	for _, e := range w.ends {
		if e.outcome.To == endpoint {
			there = append(there, e)
			sum += e.outcome.Probability
		}
	}
	for i := range there {
		there[i].outcome.Probability /= sum
	}
	return there
}

// walk follows all paths of a packet, from each state of its client in starts.
func (w *Walker) walk(p *Packet, starts []end) error {
	w.work, w.ends, w.verdict, w.entered = w.work[:0], w.ends[:0], Result{}, 0
	if p.Source.Addr().Is4() != w.rules.ipv4 || p.Destination.Addr().Is4() != w.rules.ipv4 {
		return fmt.Errorf("packet %s is not of the family of the rules", p)
	}
	for _, start := range starts {
		s := state{
			probability: start.outcome.Probability, remembered: start.remembered, matched: nothing,
			src: addressOf(p.Source.Addr()), sport: p.Source.Port(),
			dst: addressOf(p.Destination.Addr()), dport: p.Destination.Port(),
			protocol: p.Protocol, in: p.Input, conn: p.State, hook: Prerouting,
		}
		s.original, s.originalPort = s.dst, s.dport
		if p.Input == "" {
			s.hook = Output
		}
		w.work = append(w.work, s)
	}
	for len(w.work) > 0 {
		s := w.work[len(w.work)-1]
		w.work = w.work[:len(w.work)-1]
		if !s.running() {
			s.base = -1
			if !w.nextBase(&s) {
				continue
			}
		}
		if err := w.run(&s); err != nil {
			return fmt.Errorf("packet %s: %w", p, err)
		}
	}
	return nil
}

// running reports whether a state waits in the middle of a chain. A new state has no base chain yet.
func (s *state) running() bool { return s.crossed.Total > 0 }

// run follows one path of a packet to its end; the other paths wait in w.work.
func (w *Walker) run(s *state) error {
	for {
		c := &w.rules.chains[s.at.chain]
		result, err := c.rules.run(w, s)
		if err != nil {
			return err
		}
		if w.entered++; w.entered > w.limit {
			return fmt.Errorf("chain %s: more than %d chains entered", c.name, w.limit)
		}
		switch result {
		case entered:
			continue
		case ended, returned:
			if s.depth > 0 {
				s.depth--
				s.at, s.stack[s.depth] = s.stack[s.depth], position{}
				if w.joins(s) {
					return nil
				}
				continue
			}
			if w.rules.bases[s.hook][s.base].drop {
				w.end(s, Drop)
				return nil
			}
		case accepted:
		case rejected:
			w.refused(s)
			w.end(s, Reject)
			return nil
		case dropped:
			w.refused(s)
			w.end(s, Drop)
			return nil
		}
		if !w.nextBase(s) {
			return nil
		}
	}
}

// refused makes a rule that refuses a packet pick the Service, if none did before.
func (w *Walker) refused(s *state) {
	if !s.picked {
		s.pick()
	}
}

// pick records that a Service was found.
func (s *state) pick() {
	if !s.picked {
		s.picked, s.crossed.Dispatch = true, s.inBase
	}
}

// call enters a chain; back is false for a goto, which keeps no return position.
func (w *Walker) call(s *state, chain int32, back bool) error {
	if back {
		if s.depth == jumps {
			return fmt.Errorf("chain %s: more than %d chains deep", w.rules.chains[s.at.chain].name, jumps)
		}
		s.stack[s.depth] = s.at
		s.depth++
	}
	s.at = position{chain: chain}
	if w.rules.chains[chain].service {
		s.pick()
	}
	return nil
}

// cross counts a rule.
func (s *state) cross() {
	s.crossed.Total++
	s.crossed.ByHook[s.hook]++
	s.inBase++
}

// part adds a copy of the packet as another path.
func (w *Walker) part(s *state, probability float64) *state {
	w.work = append(w.work, *s)
	other := &w.work[len(w.work)-1]
	other.probability = probability
	return other
}

// joins merges a packet that returns from a chain into the path that waits at the same position with an equal state.
// The chain is evaluated first, so that is the last waiting path. So n random rules in a row, which may all return, are
// n paths and not 2^n. Crossed is the larger of both.
func (w *Walker) joins(s *state) bool {
	n := len(w.work)
	if n == 0 || w.tracing || w.work[n-1].at != s.at {
		return false
	}
	other := &w.work[n-1]
	merged := *other
	merged.probability += s.probability
	merged.inBase, merged.matched = max(other.inBase, s.inBase), s.matched
	merged.crossed.most(s.crossed)
	apart := *s
	apart.probability, apart.inBase, apart.crossed = merged.probability, merged.inBase, merged.crossed
	if apart != merged {
		return false
	}
	*other = merged
	return true
}

// end records the outcome of a path.
func (w *Walker) end(s *state, kind Kind) {
	o := Outcome{Kind: kind, Probability: s.probability}
	if kind == Pass {
		o.Masquerade = s.masquerade
		if s.translated {
			o.To = netip.AddrPortFrom(s.dst.addr(w.rules.ipv4), s.dport)
		}
	}
	w.ends = append(w.ends, end{outcome: o, remembered: s.remembered, matched: s.matched})
	if !s.picked {
		s.crossed.Dispatch = s.entryNAT
	}
	w.verdict.Crossed.most(s.crossed)
}

// translate sets the destination, as DNAT does.
func (s *state) translate(to address, port uint16) {
	s.pick()
	s.translated = true
	s.dst, s.dport, s.dstReady = to, port, true
}

// hide sets the source, as MASQUERADE does.
func (w *Walker) hide(s *state) {
	s.masquerade, s.srcInit = true, true
	s.src = addressOf(w.world.main(s.src.addr(w.rules.ipv4)))
}
