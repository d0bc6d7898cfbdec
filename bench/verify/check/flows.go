package check

import (
	"maps"
	"net/netip"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/traffic"
	"synclab/bench/traffic/flow"
	"synclab/bench/verify/invariants"
	"synclab/proxier/tracker"
)

// metFlows are the outcomes of the stream's flows since the last check.
type metFlows struct {
	mu    sync.Mutex
	total invariants.Traffic
	held  map[int]bool // long-lived flows by number: whether it was lost
	ports map[metPort]*shares
}

type metPort struct {
	family  corev1.IPFamily
	service tracker.ServicePortName
}

// shares counts the new flows of a Service port by endpoint, since its endpoints changed last.
type shares struct {
	among   []*tracker.Endpoint
	reached map[netip.AddrPort]int
}

// met counts the outcome of a new flow, or of a packet of a long-lived flow. excused: a fault may have made it fail.
func (f *metFlows) met(o *traffic.Observed, excused bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch o.Finding {
	case traffic.NewFlow:
		f.total.Flows++
		switch {
		case o.Outcome == traffic.Misrouted:
			f.total.Misrouted++
		case o.Outcome != traffic.Answered && !excused:
			f.total.Failed++
		}
		if o.Outcome == traffic.Answered && o.Target.Kind == "" && !excused {
			f.share(o)
		}
	case traffic.LongLivedPacket:
		if excused {
			return
		}
		if f.held == nil {
			f.held = map[int]bool{}
		}
		f.held[o.Number] = f.held[o.Number] || o.Outcome != traffic.Answered
	}
}

// share counts the endpoint that answered. It starts again from 0 when the port's endpoints change.
func (f *metFlows) share(o *traffic.Observed) {
	key := metPort{o.Target.Family, o.Target.Service}
	s := f.ports[key]
	same := func(a, b *tracker.Endpoint) bool { return a.Addr == b.Addr }
	if s == nil || !slices.EqualFunc(s.among, o.Among, same) {
		s = &shares{among: o.Among, reached: map[netip.AddrPort]int{}}
		for _, ep := range o.Among {
			s.reached[ep.Addr] = 0
		}
		if f.ports == nil {
			f.ports = map[metPort]*shares{}
		}
		f.ports[key] = s
	}
	if len(s.among) > 0 {
		s.reached[o.By]++
	}
}

// traffic returns the outcomes for the checkers; nil: there were no flows, and no stream runs.
func (f *metFlows) traffic(streaming bool) *invariants.Traffic {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.total.Flows == 0 && len(f.held) == 0 && !streaming {
		return nil
	}
	t := f.total
	t.Streaming = streaming
	t.LongLived, t.Reached = len(f.held), map[string]map[netip.AddrPort]int{}
	for _, lost := range f.held {
		if lost {
			t.LongLivedLost++
		}
	}
	for key, s := range f.ports {
		if len(s.among) > 0 {
			t.Reached[flow.ServiceText(key.service)+" over "+string(key.family)] = maps.Clone(s.reached)
		}
	}
	return &t
}

// forget resets the counts after a check.
func (f *metFlows) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total, f.held, f.ports = invariants.Traffic{}, nil, nil
}
