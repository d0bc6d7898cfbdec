package bench

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/invariants"
	"synclab/bench/traffic"
	"synclab/proxier/tracker"
	"synclab/scenarios"
)

// losing are the kinds of faults while which a flow may fail, with the reason.
var losing = map[string]string{
	scenarios.FaultFlush:         "its Service is in no rule until the repair",
	scenarios.FaultDelete:        "its Service may be in no rule until the repair",
	scenarios.FaultConntrackFull: "the kernel drops what it cannot track",
	scenarios.FaultRuleRefused:   "a Service whose rules are refused is left out, or as it was",
	scenarios.FaultAddresses:     "connections through an address end with the address",
}

// LosesFlows says why flows may fail from a fault of a kind on; empty: they may not.
func LosesFlows(kind string) string { return losing[kind] }

// LossEnds is the step, from 0, by whose end no flow may fail any more because of fault step i: the first settle step after
// it, and after what ends it if it holds. There may be none.
func LossEnds(steps []scenarios.Step, i int) (settle int, ends bool) {
	holds := steps[i].Fault.Holds()
	for j := i + 1; j < len(steps); j++ {
		switch step := steps[j]; {
		case step.Fault != nil && step.Fault.Kind == scenarios.FaultHeal:
			holds = false
		case step.Settle != nil && !holds:
			return j, true
		}
	}
	return 0, false
}

// mayFail says whether a flow that lasted from one step to another, by their names, may have failed because of a fault.
func mayFail(steps []scenarios.Step, from, to string) bool {
	for i := range steps {
		if steps[i].Fault == nil || LosesFlows(steps[i].Fault.Kind) == "" || stepNumber(to) < i {
			continue
		}
		if settle, ends := LossEnds(steps, i); !ends || stepNumber(from) <= settle {
			return true
		}
	}
	return false
}

// stepNumber of a step's name "12:check", from 0; -1 when it names none.
func stepNumber(name string) int {
	text, _, _ := strings.Cut(name, ":")
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n - 1
}

// metFlows are what flows of the stream met that were judged since the last check.
type metFlows struct {
	mu    sync.Mutex
	total invariants.Traffic
	held  map[int]bool // by number: whether it was lost
	ports map[metPort]*shares
}

type metPort struct {
	family  corev1.IPFamily
	service tracker.ServicePortName
}

// shares of a Service port's endpoints in its new flows, since these are its endpoints.
type shares struct {
	among   []*tracker.Endpoint
	reached map[netip.AddrPort]int
}

// met counts what became of a flow or of a packet of a held one. excused: a fault may have made it fail.
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
	case traffic.HeldPacket:
		if excused {
			return
		}
		if f.held == nil {
			f.held = map[int]bool{}
		}
		f.held[o.Number] = f.held[o.Number] || o.Outcome != traffic.Answered
	}
}

// share counts who answered, anew where the endpoints are others than before.
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

// traffic is all of that for the checkers; nil: there were no flows, and no stream runs.
func (f *metFlows) traffic(streaming bool) *invariants.Traffic {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.total.Flows == 0 && len(f.held) == 0 && !streaming {
		return nil
	}
	t := f.total
	t.Streaming = streaming
	t.Held, t.Reached = len(f.held), map[string]map[netip.AddrPort]int{}
	for _, lost := range f.held {
		if lost {
			t.HeldLost++
		}
	}
	for key, s := range f.ports {
		if len(s.among) > 0 {
			t.Reached[serviceText(key.service)+" over "+string(key.family)] = maps.Clone(s.reached)
		}
	}
	return &t
}

// forget begins anew, after a check.
func (f *metFlows) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.total, f.held, f.ports = invariants.Traffic{}, nil, nil
}
