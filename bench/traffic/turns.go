package traffic

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"synclab/proxier/tracker"
)

// turn is a change of a port's endpoints, as new flows to its cluster IP see it.
type turn struct {
	due   time.Time
	until time.Time // the next change of the port; zero: none yet
	by    runtime.Object
	// fresh are the endpoints of the new state alone, gone those of the old one alone.
	fresh, gone []netip.AddrPort
	first       time.Time // end of the first flow that a fresh endpoint answered; zero: none
	last        time.Time // start of the last flow that a gone endpoint answered; zero: none
	visible     time.Time // of the change in the kernel's tables; zero if it is not known
}

// without returns the addresses that only the first list has.
func without(a, b []*tracker.Endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for _, ep := range a {
		if !contains(b, ep.Addr) {
			out = append(out, ep.Addr)
		}
	}
	return out
}

// turn begins a turn with a new state of the port.
func (p *port) turn(next *version, before, after []*tracker.Endpoint) {
	if n := len(p.turns); n > 0 {
		p.turns[n-1].until = next.due
	}
	t := &turn{due: next.due, by: next.by, fresh: without(after, before), gone: without(before, after)}
	if next.port != nil && next.port.AffinitySeconds > 0 || p.target.Kind != "" { // clients keep their endpoints
		t.fresh, t.gone = nil, nil
	}
	p.turns = append(p.turns, t)
}

// met notes the answer to a new flow in the turn that was the last one when the flow was sent.
func (p *port) met(by netip.AddrPort, sent, end time.Time) {
	for _, t := range p.turns {
		switch {
		case !sent.After(t.due) || !t.until.IsZero() && !end.Before(t.until):
		case slices.Contains(t.gone, by) && sent.After(t.last):
			t.last = sent
		case slices.Contains(t.fresh, by) && t.first.IsZero():
			t.first = end
		}
	}
}

// tellTurns reports the turns of a port that ended before the given time, and forgets them.
func (l *FlowChecker) tellTurns(p *port, before time.Time) {
	for len(p.turns) > 0 {
		t := p.turns[0]
		if t.until.IsZero() || t.until.After(before) {
			return
		}
		l.tellTurn(p, t)
		p.turns = p.turns[1:]
	}
}

func (l *FlowChecker) tellTurn(p *port, t *turn) {
	known := !t.visible.IsZero() && (t.until.IsZero() || t.visible.Before(t.until))
	for _, seen := range []struct {
		of Finding
		at time.Time
	}{{Reachable, t.first}, {Unreachable, t.last}} {
		if seen.at.IsZero() {
			continue
		}
		o := Observed{Finding: seen.of, Target: p.target, At: t.due, Took: seen.at.Sub(t.due)}
		if known {
			after := seen.at.Sub(t.visible)
			o.AfterVisible = &after
		}
		l.opts.Tell(o)
	}
}
