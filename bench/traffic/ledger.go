package traffic

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/mirror"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/sim"
)

const (
	// judgeAfter is how long after its end a flow is judged: by then who watches the kernel has told of all that was
	// visible when it began.
	judgeAfter = 3 * time.Second
	// returnSlack is how much later a state counts as visible that is like another one which the kernel may have had when it
	// was made, unless a state after it is visible before. It is longer than most syncs.
	returnSlack = 10 * time.Second
)

// LedgerOptions say what a Ledger knows. All are required but Grace and Targets.
type LedgerOptions struct {
	Families []corev1.IPFamily
	Node     plan.Node
	// Services and Slices are the cluster as it is now, which the kernel is in sync with.
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Now      time.Time
	// Targets of the stream when it begins, as Target.Service and Target.Family name them.
	Targets []Target
	// At is the moment of a Result's time.
	At func(ns int64) time.Time
	// Grace is how long after a change is visible held UDP flows may still reach who was removed: one sync, in which
	// conntrack is cleaned after the rules were written.
	Grace time.Duration
	// Tell is told of what is found, by whoever calls the Ledger.
	Tell func(Observed)
}

// Finding is what an Observed tells of.
type Finding int

// The findings, with what Observed.Took counts from and to.
const (
	NewFlow       Finding = iota // Took: due → end
	HeldPacket                   // Took: sent → end
	RemovedServed                // Took: removal due → last answer; of a held flow, → the first from elsewhere
	AddedWaits                   // Took: addition due → first answer; NotYet: → when it could no longer come
)

// Observed is one value that a Ledger found.
type Observed struct {
	Finding
	Target  *Target
	Held    bool
	Number  int       // of the held flow
	At      time.Time // when what it counts from was due
	Took    time.Duration
	Outcome string
	By      netip.AddrPort // who answered, or was removed or added
	// Among, of a new flow, are those that may answer with the same probability; nil where the Service changed meanwhile, or
	// where a client stays with an endpoint.
	Among []*tracker.Endpoint
}

// Ledger knows who may answer. Its methods may be called from any goroutine.
type Ledger struct {
	opts LedgerOptions

	mu      sync.Mutex
	cluster *mirror.Mirror
	targets []*Target
	ports   map[portKey]*port // of targets
	queue   []Result          // in order of their end
	held    map[int]*heldState
	// excused is how many flows went unanswered and might, unwatched of how many nothing is known.
	excused, unwatched int

	last time.Time // the end of the last flow that was judged
}

type portKey struct {
	family corev1.IPFamily
	name   tracker.ServicePortName
}

// now is what the cluster says of a port.
func (l *Ledger) now(key portKey) version {
	return version{port: l.cluster.Port(key.family, key.name), serving: l.serving(key)}
}

// serving are the endpoints that serve a UDP port.
func (l *Ledger) serving(key portKey) []netip.AddrPort {
	svc := l.cluster.Service(key.family, key.name.NamespacedName)
	if svc == nil || key.name.Protocol != corev1.ProtocolUDP {
		return nil
	}
	var serving []netip.AddrPort
	for _, ep := range svc.EndpointsOf(key.name.PortKey) {
		if ep.Serving {
			serving = append(serving, ep.Addr)
		}
	}
	return serving
}

// heldState is what is known of a held flow.
type heldState struct {
	life  int
	by    netip.AddrPort
	stays []stay // in their order
}

// stay is the time that a flow has one endpoint.
type stay struct {
	by   netip.AddrPort
	from time.Time // when the first packet was sent that it answered
	cut  bool      // a packet was lost when the flow was taken from it
}

// stay is the one that a packet fell into which was sent at a moment; nil: nobody had answered before.
func (h *heldState) stay(sent time.Time) *stay {
	for i := len(h.stays) - 1; i >= 0; i-- {
		if s := &h.stays[i]; !s.from.After(sent) {
			return s
		}
	}
	return nil
}

// NewLedger makes a Ledger of a cluster that the kernel is in sync with.
func NewLedger(opts LedgerOptions) *Ledger {
	l := &Ledger{opts: opts, cluster: mirror.New(opts.Node, opts.Families...), ports: map[portKey]*port{}, held: map[int]*heldState{}}
	l.cluster.Load(opts.Services, opts.Slices, opts.Now)
	for i := range opts.Targets {
		t := &opts.Targets[i]
		l.targets = append(l.targets, t)
		if key := (portKey{t.Family, t.Service}); l.ports[key] == nil {
			l.ports[key] = newPort(i, t, l.now(key), opts.Now)
		}
	}
	return l
}

// Changed takes a change of the cluster right before it is made. object tells it from others, and must not change. Service
// ports that it alters and that are no targets yet become targets: they are numbered on from those there are. focus are
// the numbers of all whose endpoints it alters.
func (l *Ledger) Changed(op sim.Op, object runtime.Object, due, now time.Time) (added []Target, focus []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.cluster.Changed(op, object, now) {
		key := portKey{c.Family, c.Name}
		next, last := l.now(key), version{port: c.Before}
		next.due, next.made, next.by = due, now, object
		p := l.ports[key]
		if p == nil && !last.alike(&next) {
			if p = l.follow(key, c.Before, c.After); p == nil {
				continue
			}
			added = append(added, *p.target)
		}
		if p != nil && l.changed(p, next) {
			focus = append(focus, p.index)
		}
	}
	return added, focus
}

// follow makes a port a target; nil for one that no flow can be sent to.
func (l *Ledger) follow(key portKey, before, next *plan.ServicePort) *port {
	about := cmp.Or(next, before)
	if about == nil || key.name.Protocol != corev1.ProtocolTCP && key.name.Protocol != corev1.ProtocolUDP {
		return nil
	}
	t := &Target{
		Service: key.name, Family: key.family, Protocol: key.name.Protocol, Addr: netip.AddrPortFrom(about.ClusterIP, about.Port),
	}
	l.ports[key] = newPort(len(l.targets), t, version{port: before}, l.opts.Now)
	l.targets = append(l.targets, t)
	return l.ports[key]
}

// changed appends a state of a port, if it is another one.
func (l *Ledger) changed(p *port, next version) bool {
	last := &p.versions[len(p.versions)-1]
	if last.alike(&next) {
		if !slices.Equal(last.serving, next.serving) { // no rule tells of it, so it is visible with what comes next
			p.versions = append(p.versions, next)
		}
		p.versions[len(p.versions)-1].port = next.port
		return false
	}
	before, after := last.endpoints(true), next.endpoints(true)
	for _, ep := range before {
		if !contains(after, ep.Addr) {
			if list := p.added[ep.Addr]; len(list) > 0 {
				list[len(list)-1].until = next.due
			}
			l.tellRemoved(p, ep.Addr)
			p.removed[ep.Addr] = &removal{due: next.due}
		}
	}
	for _, ep := range after {
		if !contains(before, ep.Addr) {
			if gone := p.removed[ep.Addr]; gone != nil {
				gone.back = next.due
			}
			p.added[ep.Addr] = append(p.added[ep.Addr], addition{due: next.due})
		}
	}
	for i := len(p.versions) - 1; i >= 0 && !next.returns; i-- {
		next.returns = p.versions[i].alike(&next)
		if v := &p.versions[i]; v.by == nil && !v.returns { // the kernel has had it: what was before is past
			break
		}
	}
	p.versions = append(p.versions, next)
	return true
}

// Visible takes a change that the kernel was seen to have.
func (l *Ledger) Visible(object runtime.Object, family corev1.IPFamily, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	service := mirror.ServiceOf(object)
	for key, p := range l.ports {
		if key.family == family && (key.name.NamespacedName == service || service.Name == "") {
			p.seen(object, at)
		}
	}
}

// Take takes a Result; those that are old enough by now are judged.
func (l *Ledger) Take(r Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue = append(l.queue, r)
	l.judge(r.End - int64(judgeAfter))
}

// Finish judges all that is left, tells of the endpoints that were removed and of the new ones that never answered, and
// says how many flows went unanswered and might, and of how many nothing is known.
func (l *Ledger) Finish() (excused, unwatched int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := len(l.queue); n > 0 {
		l.judge(l.queue[n-1].End)
	}
	for _, p := range l.ports {
		for _, addr := range sortedAddrs(p.removed) {
			l.tellRemoved(p, addr)
		}
		for _, addr := range sortedAddrs(p.added) {
			l.tellNotYet(p, addr)
		}
	}
	return l.excused, l.unwatched
}

func sortedAddrs[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(m), netip.AddrPort.Compare)
}
