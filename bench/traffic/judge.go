package traffic

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// judge looks at the Results that ended until then.
func (l *Ledger) judge(until int64) {
	n := 0
	for n < len(l.queue) && l.queue[n].End <= until {
		l.one(&l.queue[n])
		n++
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil // and the memory behind it
	}
}

func (l *Ledger) one(r *Result) {
	target := l.targets[r.Target]
	p := l.ports[portKey{target.Family, target.Service}]
	due, sent, end := l.opts.At(r.Due), l.opts.At(r.Sent), l.opts.At(r.End)
	l.last = end
	if r.Outcome == Unwatched {
		l.unwatched++
		return
	}
	o := Observed{Finding: NewFlow, Target: target, At: due, Took: end.Sub(due), Outcome: r.Outcome, By: r.By}
	if r.Held > 0 {
		l.packet(r, p, o, sent, end)
		return
	}
	states := p.between(sent, end)
	others := func(v version) bool { return !v.alike(&states[0]) } // a version may differ in who serves only
	if port := states[0].port; port != nil && port.AffinitySeconds == 0 && !slices.ContainsFunc(states[1:], others) {
		o.Among = states[0].endpoints(target.Kind == "")
	}
	l.verdict(&o, states)
	if r.Outcome == Answered {
		l.served(p, r.By, sent, end)
	}
	l.tell(o)
}

// excusedOutcome is of a flow that went unanswered and might.
const excusedOutcome = "excused"

// verdict makes the outcome what the states say of it.
func (l *Ledger) verdict(o *Observed, states []version) {
	internal := o.Target.Kind == ""
	some, refuses := true, true // in all of the states
	allowed := false
	for i := range states {
		list := states[i].endpoints(internal)
		allowed = allowed || contains(list, o.By)
		some = some && len(list) > 0
		refuses = refuses && states[i].refuses()
	}
	switch {
	case o.Outcome == Answered && !allowed:
		o.Outcome = Misrouted
	case o.Outcome == Answered || some:
	case refuses && o.Outcome != Refused: // it has to be told at once
	default:
		o.Outcome = excusedOutcome
	}
}

func (l *Ledger) tell(o Observed) {
	if o.Outcome == excusedOutcome {
		l.excused++
		return
	}
	l.opts.Tell(o)
}

// served notes who answered a new flow.
func (l *Ledger) served(p *port, by netip.AddrPort, sent, end time.Time) {
	if gone := p.removed[by]; gone != nil && sent.After(gone.due) && (gone.back.IsZero() || end.Before(gone.back)) && end.After(gone.last) {
		gone.last = end
	}
	list := p.added[by]
	for i := len(list) - 1; i >= 0; i-- { // the last one that it can be the first answer to
		if due, until := list[i].due, list[i].until; end.After(due) && (until.IsZero() || !end.After(until)) {
			p.added[by] = slices.Delete(list, i, i+1)
			l.opts.Tell(Observed{Finding: AddedWaits, Target: p.target, At: due, Took: end.Sub(due), By: by})
			break
		}
	}
}

// tellRemoved tells how long a removed endpoint was still asked, and forgets it.
func (l *Ledger) tellRemoved(p *port, addr netip.AddrPort) {
	gone := p.removed[addr]
	delete(p.removed, addr)
	if gone != nil && !gone.last.IsZero() {
		l.opts.Tell(Observed{Finding: RemovedServed, Target: p.target, At: gone.due, Took: gone.last.Sub(gone.due), By: addr})
	}
}

// tellNotYet tells that a new endpoint never answered, while it was there or as long as there were flows, and forgets it.
// How long that was depends on how often its Service was sent to as well: it is the least that the endpoint waited.
func (l *Ledger) tellNotYet(p *port, addr netip.AddrPort) {
	for _, a := range p.added[addr] {
		until := a.until
		if until.IsZero() {
			until = l.last
		}
		if until.After(a.due) {
			l.opts.Tell(Observed{Finding: AddedWaits, Target: p.target, At: a.due, Took: until.Sub(a.due), Outcome: NotYet, By: addr})
		}
	}
	delete(p.added, addr)
}

// packet judges one packet of a held flow.
func (l *Ledger) packet(r *Result, p *port, o Observed, sent, end time.Time) {
	o.Finding, o.Held, o.Number = HeldPacket, true, r.Held
	h := l.held[r.Held]
	if h == nil {
		h = &heldState{}
		l.held[r.Held] = h
	}
	if h.life != r.Life {
		h.life, h.by = r.Life, netip.AddrPort{}
	}
	switch {
	case o.Target.Protocol == corev1.ProtocolUDP:
		// For a time, what was removed may answer; who is new may at once.
		states := p.between(sent.Add(-l.opts.Grace), end)
		kept := o.Outcome == Answered && o.By == h.by &&
			slices.ContainsFunc(states, func(v version) bool { return v.keeps(o.By) })
		if !kept {
			l.verdict(&o, states)
		}
		// One packet may be under way when conntrack forgets the flow: its answer is not translated back.
		if s := h.stay(sent); o.Outcome == TimedOut && s != nil && !s.cut && leaves(states, s.by) {
			s.cut, o.Outcome = true, excusedOutcome
		}
		l.left(h, p, o, states, end)
	case !r.Opened:
		l.verdict(&o, p.between(sent, end))
	case o.Outcome == Answered && h.by.IsValid() && h.by != r.By:
		o.Outcome = Misrouted // in the middle of a connection
	}
	if r.Outcome == Answered {
		if n := len(h.stays); n == 0 || h.stays[n-1].by != r.By {
			h.stays = append(h.stays, stay{by: r.By, from: sent})
		}
		h.by = r.By
	}
	l.tell(o)
}

// leaves says whether an endpoint that keeps its flows in one of the states does not in another.
func leaves(states []version, addr netip.AddrPort) bool {
	keeps := func(v version) bool { return v.keeps(addr) }
	return slices.ContainsFunc(states, keeps) && slices.ContainsFunc(states, func(v version) bool { return !keeps(v) })
}

// left tells when a held UDP flow has left an endpoint that was removed: with the first answer from another one, or,
// where there is none, the first packet without.
func (l *Ledger) left(h *heldState, p *port, o Observed, states []version, end time.Time) {
	if !h.by.IsValid() || o.By == h.by {
		return
	}
	due, removed := p.removedAt(h.by)
	none := len(states[len(states)-1].endpoints(o.Target.Kind == "")) == 0
	if removed && end.After(due) && (o.By.IsValid() || none) {
		l.opts.Tell(Observed{Finding: RemovedServed, Held: true, Number: o.Number, Target: o.Target, At: due, Took: end.Sub(due), By: h.by})
		h.by = netip.AddrPort{}
	}
}

// removedAt is when the removal of an endpoint was due that is in no state since.
func (p *port) removedAt(addr netip.AddrPort) (time.Time, bool) {
	for i := len(p.versions) - 1; i >= 0; i-- {
		if p.versions[i].keeps(addr) {
			if i+1 < len(p.versions) {
				return p.versions[i+1].due, true
			}
			return time.Time{}, false
		}
	}
	return time.Time{}, false
}
