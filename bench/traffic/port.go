package traffic

import (
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// port is one Service port of one family with all states that it had.
type port struct {
	index    int // of its first target
	target   *Target
	versions []version
	removed  map[netip.AddrPort]*removal
	added    map[netip.AddrPort][]addition // those that have not answered yet
}

// newPort is one that the kernel is in sync with.
func newPort(index int, t *Target, now version, at time.Time) *port {
	now.due, now.made, now.visible = at, at, at
	return &port{
		index: index, target: t, versions: []version{now},
		removed: map[netip.AddrPort]*removal{}, added: map[netip.AddrPort][]addition{},
	}
}

// addition is an endpoint that was added. Flows are judged later than they end, so one that has been removed again may
// still turn out to have answered.
type addition struct {
	due, until time.Time // until: when it was removed again; zero: never
}

// removal is an endpoint that was removed.
type removal struct {
	due, back time.Time // back: when it was there again; zero: never
	last      time.Time // the last answer of a flow that was sent between
}

// version is what the cluster says of a port from a moment on.
type version struct {
	port      *plan.ServicePort // nil: there is none
	serving   []netip.AddrPort  // UDP: all endpoints that serve; one that terminates keeps the flows it has
	due, made time.Time
	visible   time.Time      // zero: not yet
	by        runtime.Object // the change; nil as soon as it is visible
	returns   bool           // it is like one that may be in the kernel from before
}

// endpoints are those that flows may reach: from pods of the node to the cluster IP (internal), or to other addresses,
// for which pods of the node are sent to endpoints anywhere.
func (v *version) endpoints(internal bool) []*tracker.Endpoint {
	switch {
	case v.port == nil:
		return nil
	case internal && v.port.InternalPolicyLocal:
		return v.port.Local
	}
	return v.port.Cluster
}

// refuses says whether flows have to be refused at once.
func (v *version) refuses() bool { return v.port != nil && !v.port.HasEndpoints }

func (v *version) alike(w *version) bool {
	same := func(a, b *tracker.Endpoint) bool { return a.Addr == b.Addr }
	return v.refuses() == w.refuses() && (v.port == nil) == (w.port == nil) &&
		slices.EqualFunc(v.endpoints(true), w.endpoints(true), same) && slices.EqualFunc(v.endpoints(false), w.endpoints(false), same)
}

// keeps says whether an endpoint may go on with a flow that it has.
func (v *version) keeps(addr netip.AddrPort) bool {
	return contains(v.endpoints(true), addr) || slices.Contains(v.serving, addr)
}

func contains(list []*tracker.Endpoint, addr netip.AddrPort) bool {
	return slices.ContainsFunc(list, func(ep *tracker.Endpoint) bool { return ep.Addr == addr })
}

// seen notes that the kernel has what a change led to, and so all before it.
func (p *port) seen(by runtime.Object, at time.Time) {
	i := slices.IndexFunc(p.versions, func(v version) bool { return v.by != nil && v.by == by })
	if i < 0 {
		return
	}
	if p.versions[i].returns { // or was it the earlier one, and all between is still to come?
		at = at.Add(returnSlack)
	}
	for ; i >= 0; i-- {
		if v := &p.versions[i]; v.by != nil {
			v.by, v.visible = nil, at
		}
	}
}

// between are the states that a flow may have met which was sent at one moment and over at another: from the last one
// that the kernel was known to have before, to the last one that was made.
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
