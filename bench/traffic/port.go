package traffic

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// port is one Service port of one family with all its states.
type port struct {
	index    int // of its first target
	target   *Target
	versions []version
	removed  map[netip.AddrPort]*removal
	added    map[netip.AddrPort][]addition // that have not answered yet
	turns    []*turn                       // in order
}

// newPort returns a port to which the kernel has converged.
func newPort(index int, t *Target, now version, at time.Time) *port {
	now.due, now.made, now.visible = at, at, at
	return &port{
		index: index, target: t, versions: []version{now},
		removed: map[netip.AddrPort]*removal{}, added: map[netip.AddrPort][]addition{},
	}
}

// addition is an added endpoint. Flows are checked some time after they end, so an endpoint that is removed already may
// still turn out to have answered.
type addition struct {
	due, until time.Time // until: time of removal; zero if it was not removed
}

// removal is a removed endpoint.
type removal struct {
	due, back time.Time // back: when it was added again; zero if never
	last      time.Time // the last answer to a flow sent in between
}

// version is the desired state of a port from some time on.
type version struct {
	port      *plan.ServicePort // nil if the port does not exist
	serving   []netip.AddrPort  // UDP: all serving endpoints; a terminating endpoint keeps its flows
	due, made time.Time
	visible   time.Time      // zero if not visible yet, or not certain
	by        runtime.Object // the change; nil once it is seen
	returns   bool           // equals a state that the kernel may still have from before
	cut       bool           // a new flow is excused, because conntrack may have forgotten it when endpoints left
}

// endpoints returns the endpoints that flows from this node's pods may reach, at the cluster IP (internal) or at other
// addresses. At other addresses such flows may go to endpoints on any node.
func (v *version) endpoints(internal bool) []*tracker.Endpoint {
	switch {
	case v.port == nil:
		return nil
	case internal && v.port.InternalPolicyLocal:
		return v.port.Local
	}
	return v.port.Cluster
}

// refuses reports whether flows must be refused at once.
func (v *version) refuses() bool { return v.port != nil && !v.port.HasEndpoints }

func (v *version) alike(w *version) bool {
	same := func(a, b *tracker.Endpoint) bool { return a.Addr == b.Addr }
	return v.refuses() == w.refuses() && (v.port == nil) == (w.port == nil) &&
		slices.EqualFunc(v.endpoints(true), w.endpoints(true), same) && slices.EqualFunc(v.endpoints(false), w.endpoints(false), same)
}

// keeps reports whether an endpoint may keep an existing flow.
func (v *version) keeps(addr netip.AddrPort) bool {
	return contains(v.endpoints(true), addr) || slices.Contains(v.serving, addr)
}

func contains(list []*tracker.Endpoint, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(ep *tracker.Endpoint) bool { return ep.Addr == addr })
}

// seen records that a change and all earlier changes are visible in the kernel, unless the change was undone before. made is
// when the change was made; zero: it is not one of this port, or the kernel may still have an earlier state. last: no other
// change is awaited.
func (p *port) seen(by runtime.Object, at, shown time.Time, undone bool) (made time.Time, last bool) {
	for _, t := range p.turns {
		if t.by == by {
			t.visible = shown
		}
	}
	i := slices.IndexFunc(p.versions, func(v version) bool { return v.by != nil && v.by == by })
	if i < 0 {
		return made, false
	}
	last = i == len(p.versions)-1
	if p.versions[i].returns || undone { // or the earlier equal state, with all states between still to come
		at = time.Time{}
	} else {
		made = p.versions[i].made
	}
	for ; i >= 0; i-- {
		if v := &p.versions[i]; v.by != nil {
			v.by, v.visible = nil, at
		}
	}
	return made, last
}

// certain makes states that were seen, and made before a time, visible at another; all: also what was not seen.
func (p *port) certain(before, at time.Time, all bool) {
	for i := range p.versions {
		if v := &p.versions[i]; v.visible.IsZero() && v.made.Before(before) && (v.by == nil || all) {
			v.by, v.visible = nil, at
		}
	}
}

// between returns the states that a flow may have met: from the last state visible when it was sent, to the last state
// made before it ended.
func (p *port) between(sent, end time.Time) []version {
	first, last := 0, 0
	for i := range p.versions {
		v := &p.versions[i]
		if !v.visible.IsZero() && !v.visible.After(sent) {
			first = i
		}
		if !v.made.After(end) {
			last = i
		}
	}
	return p.versions[first : max(first, last)+1]
}
