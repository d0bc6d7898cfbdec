package traffic

import (
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/tracker"
)

// judge checks all Results that ended until the given time.
func (l *FlowChecker) judge(until int64) {
	n := 0
	for n < len(l.queue) && l.queue[n].End <= until {
		l.one(&l.queue[n])
		n++
	}
	if l.queue = l.queue[n:]; len(l.queue) == 0 {
		l.queue = nil // free the memory
	}
}

func (l *FlowChecker) one(r *Result) {
	if r.Control {
		return
	}
	target := l.targets[r.Target]
	p := l.ports[portKey{target.Family, target.Service}]
	due, sent, end := l.opts.At(r.Due), l.opts.At(r.Sent), l.opts.At(r.End)
	l.last = end
	switch {
	case r.Outcome == Unwatched:
		l.counts.Unobserved++
		return
	case l.controls.explain(r, target):
		l.opts.Tell(Observed{Finding: ControlFailure, LongLived: r.LongLived > 0, Number: r.LongLived, Target: target, At: due, Took: end.Sub(due), Outcome: r.Outcome})
		return
	}
	o := Observed{Finding: NewFlow, Target: target, At: due, Took: end.Sub(due), Outcome: r.Outcome, By: r.By}
	if r.LongLived > 0 {
		l.packet(r, p, o, sent, end)
		return
	}
	states := p.between(sent, end)
	others := func(v version) bool { return !v.alike(&states[0]) } // versions may differ only in the serving endpoints
	if port := states[0].port; port != nil && port.AffinitySeconds == 0 && !slices.ContainsFunc(states[1:], others) {
		o.Among = states[0].endpoints(target.Kind == "")
	}
	l.verdict(&o, states)
	if o.Outcome == TimedOut && target.Protocol == corev1.ProtocolUDP && cut(states) {
		o.Outcome = excusedOutcome
	}
	if r.Outcome == Answered {
		l.served(p, r.By, sent, end)
		if target.Kind == "" {
			p.met(r.By, sent, end)
		}
	}
	l.tell(o)
	l.tellTurns(p, sent)
}

// failedControl is a control flow without an answer.
type failedControl struct {
	controlKind
	sent, over int64
}

type failedControls []failedControl

// add adds a control flow that timed out. One that is refused says nothing about the machine: an endpoint may have an
// address of the node itself, where no pod answers.
func (f *failedControls) add(r *Result, t *Target) {
	if r.Control && r.Outcome == TimedOut {
		*f = append(*f, failedControl{controlKind{t.Family, t.Protocol}, r.Sent, r.End})
	}
}

// explain reports whether a flow timed out while a control flow of the same family and protocol failed.
func (f failedControls) explain(r *Result, t *Target) bool {
	return r.Outcome == TimedOut && slices.ContainsFunc(f, func(c failedControl) bool {
		return c.controlKind == controlKind{t.Family, t.Protocol} && c.sent < r.End && r.Sent < c.over
	})
}

// excusedOutcome is an unanswered flow that the possible states allow.
const excusedOutcome = "excused"

// verdict sets the outcome according to the possible states.
func (l *FlowChecker) verdict(o *Observed, states []version) {
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
	case refuses && o.Outcome != Refused: // it must be refused at once
	default:
		o.Outcome = excusedOutcome
	}
}

func (l *FlowChecker) tell(o Observed) {
	if o.Outcome == excusedOutcome {
		l.counts.Excused++
		return
	}
	l.opts.Tell(o)
}

// served records the endpoint that answered a new flow.
func (l *FlowChecker) served(p *port, by netip.AddrPort, sent, end time.Time) {
	if gone := p.removed[by]; gone != nil && sent.After(gone.due) && (gone.back.IsZero() || end.Before(gone.back)) && end.After(gone.last) {
		gone.last = end
	}
	list := p.added[by]
	for i := len(list) - 1; i >= 0; i-- { // the latest addition for which this can be the first answer
		if due, until := list[i].due, list[i].until; end.After(due) && (until.IsZero() || !end.After(until)) {
			p.added[by] = slices.Delete(list, i, i+1)
			l.opts.Tell(Observed{Finding: NewEndpointDelay, Target: p.target, At: due, Took: end.Sub(due), By: by})
			break
		}
	}
}

// tellRemoved reports how long a removed endpoint still served, and forgets it.
func (l *FlowChecker) tellRemoved(p *port, addr netip.AddrPort) {
	gone := p.removed[addr]
	delete(p.removed, addr)
	if gone != nil && !gone.last.IsZero() {
		l.opts.Tell(Observed{Finding: RemovedEndpointServing, Target: p.target, At: gone.due, Took: gone.last.Sub(gone.due), By: addr})
	}
}

// tellNotYet reports that a new endpoint never answered before it was removed or the flows ended, and forgets it. The
// reported time also depends on the rate of flows to its Service: it is a lower bound of the endpoint's delay.
func (l *FlowChecker) tellNotYet(p *port, addr netip.AddrPort) {
	for _, a := range p.added[addr] {
		until := a.until
		if until.IsZero() {
			until = l.last
		}
		if until.After(a.due) {
			l.opts.Tell(Observed{Finding: NewEndpointDelay, Target: p.target, At: a.due, Took: until.Sub(a.due), Outcome: NotYet, By: addr})
		}
	}
	delete(p.added, addr)
}

// packet checks one packet of a long-lived flow.
func (l *FlowChecker) packet(r *Result, p *port, o Observed, sent, end time.Time) {
	o.Finding, o.LongLived, o.Number = LongLivedPacket, true, r.LongLived
	h := l.held[r.LongLived]
	if h == nil {
		h = &heldState{}
		l.held[r.LongLived] = h
	}
	if h.life != r.Life {
		h.life, h.by = r.Life, netip.AddrPort{}
	}
	switch {
	case o.Target.Protocol == corev1.ProtocolUDP:
		// For a time, a removed endpoint may answer; a new endpoint may answer at once.
		states := p.between(l.cleanedUntil(sent), end)
		kept := o.Outcome == Answered && o.By == h.by &&
			slices.ContainsFunc(states, func(v version) bool { return v.keeps(o.By) })
		if !kept {
			l.verdict(&o, states)
		}
		// One packet may be in flight when conntrack forgets the flow: its answer is not translated back.
		if s := h.stay(sent); o.Outcome == TimedOut && s != nil && !s.cut && leaves(states, s.by) {
			s.cut, o.Outcome = true, excusedOutcome
		}
		l.left(h, p, o, states, end)
	case !r.Opened:
		l.verdict(&o, p.between(sent, end))
	case o.Outcome == Answered && h.by.IsValid() && h.by != r.By:
		o.Outcome = Misrouted // the endpoint changed within a connection
	}
	if r.Outcome == Answered {
		if n := len(h.stays); n == 0 || h.stays[n-1].by != r.By {
			h.stays = append(h.stays, stay{by: r.By, from: sent})
		}
		h.by = r.By
	}
	l.tell(o)
}

// cut reports whether the answer to a new UDP flow may be lost because conntrack forgot the flow meanwhile: a later state
// removes an endpoint that an earlier one has. Each removal excuses one flow.
func cut(states []version) bool {
	var met []*tracker.Endpoint // that the flow may have met
	for i := range states {
		v := &states[i]
		if i > 0 && !v.cut && slices.ContainsFunc(met, func(ep *tracker.Endpoint) bool { return states[i-1].keeps(ep.Addr) && !v.keeps(ep.Addr) }) {
			v.cut = true
			return true
		}
		met = slices.Concat(met, v.endpoints(true), v.endpoints(false))
	}
	return false
}

// cleanedUntil returns the moment until which the endpoints of a visible state may still get the packets of long-lived
// UDP flows that are sent at a time.
func (l *FlowChecker) cleanedUntil(sent time.Time) time.Time {
	from := sent.Add(-l.opts.Grace)
	if l.opts.Ended != nil {
		if at := l.opts.Ended(from, sent); !at.IsZero() && at.Before(sent) {
			return at.Add(-l.opts.Grace)
		}
	}
	return from
}

// leaves reports whether an endpoint keeps its flows in one of the states, but not in another.
func leaves(states []version, addr netip.AddrPort) bool {
	keeps := func(v version) bool { return v.keeps(addr) }
	return slices.ContainsFunc(states, keeps) && slices.ContainsFunc(states, func(v version) bool { return !keeps(v) })
}

// left reports when a long-lived UDP flow leaves a removed endpoint: at the first answer from another endpoint. If no
// endpoint is left, it reports at the first packet without an answer.
func (l *FlowChecker) left(h *heldState, p *port, o Observed, states []version, end time.Time) {
	if !h.by.IsValid() || o.By == h.by {
		return
	}
	due, removed := p.removedAt(h.by)
	none := len(states[len(states)-1].endpoints(o.Target.Kind == "")) == 0
	if removed && end.After(due) && (o.By.IsValid() || none) {
		l.opts.Tell(Observed{Finding: RemovedEndpointServing, LongLived: true, Number: o.Number, Target: o.Target, At: due, Took: end.Sub(due), By: h.by})
		h.by = netip.AddrPort{}
	}
}

// removedAt returns the scheduled time of an endpoint's removal, if no later state has the endpoint.
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
