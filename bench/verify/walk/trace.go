package walk

import "slices"

// PacketPath is one possible packet path, from its entry to its end.
type PacketPath struct {
	Outcome
	// Matched are the rules that matched, in order: a kernel raises their counters.
	Matched []RuleAt
}

// RuleAt is the position of a rule.
type RuleAt struct {
	Table, Chain string
	// Number in its chain, from 0.
	Number int
}

// matched is a rule that matched on a path, and the index of the one before it.
type matched struct {
	at       position
	previous int32
}

// Paths walks a packet as Walk does and returns each path separately: paths with equal outcomes are not merged.
func (w *Walker) Paths(p *Packet) ([]PacketPath, error) {
	w.tracing = true
	defer func() { w.tracing = false }()
	if err := w.walkAfter(p); err != nil {
		return nil, err
	}
	ways := make([]PacketPath, len(w.ends))
	for i, e := range w.ends {
		ways[i].Outcome = e.outcome
		for m := e.matched; m != nothing; m = w.trace[m].previous {
			at := w.trace[m].at
			c := &w.rules.chains[at.chain]
			ways[i].Matched = append(ways[i].Matched, RuleAt{Table: c.table, Chain: c.name, Number: int(at.rule)})
		}
		slices.Reverse(ways[i].Matched)
	}
	return ways, nil
}

// note records a rule that matched.
func (w *Walker) note(s *state, at position) {
	w.trace = append(w.trace, matched{at: at, previous: s.matched})
	s.matched = int32(len(w.trace) - 1)
}
