package walk

import "slices"

// Way is one of the ways that a packet may go, from its entry to its end.
type Way struct {
	Outcome
	// Matched are the rules that matched, in their order: those whose counters rise in a kernel.
	Matched []RuleAt
}

// RuleAt is a rule by its place.
type RuleAt struct {
	Table, Chain string
	// Number in its chain, from 0.
	Number int
}

// matched is a rule that matched on a way, and the one before it.
type matched struct {
	at       position
	previous int32
}

// Ways walks a packet as Walk does, and tells of each way on its own: those that end alike are not merged.
func (w *Walker) Ways(p *Packet) ([]Way, error) {
	w.tracing = true
	defer func() { w.tracing = false }()
	if err := w.walkAfter(p); err != nil {
		return nil, err
	}
	ways := make([]Way, len(w.ends))
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

// note adds a rule that matched.
func (w *Walker) note(s *state, at position) {
	w.trace = append(w.trace, matched{at: at, previous: s.matched})
	s.matched = int32(len(w.trace) - 1)
}
