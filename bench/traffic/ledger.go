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
	// judgeAfter is the time between a flow's end and its check. By then bench/subject/visible has reported all changes that
	// were visible when the flow began.
	judgeAfter = 3 * time.Second
	// returnSlack delays the visibility of a returning state that has become certain, for subjects that do not write
	// changes in the order in which they were made.
	returnSlack = 10 * time.Second
)

// LedgerOptions are the inputs of a FlowChecker. All are required except Grace and Targets.
type LedgerOptions struct {
	Families []corev1.IPFamily
	Node     plan.Node
	// NodeAddresses are those of the node itself. No pod answers there, so ports with such endpoints get no flows.
	NodeAddresses []netip.Addr
	// Services and Slices are the current objects. The kernel must have converged to them.
	Services []*corev1.Service
	Slices   []*discoveryv1.EndpointSlice
	Now      time.Time
	// Targets of the stream at its start, named by Target.Service and Target.Family.
	Targets []Target
	// At converts a Result's time.
	At func(ns int64) time.Time
	// Grace is how long after a visible change long-lived UDP flows may still reach a removed endpoint. It is one sync:
	// conntrack is cleaned after the rules are written.
	Grace time.Duration
	// Ended, if set, returns when the subject may have ended, so that it had not cleaned conntrack after it wrote the
	// rules; zero: it ran all the time from from to to.
	Ended func(from, to time.Time) time.Time
	// Tell receives the findings, on the goroutine that calls the FlowChecker.
	Tell func(Observed)
}

// Finding is the kind of an Observed.
type Finding int

// The findings, with the start and the end of Observed.Took.
const (
	NewFlow                Finding = iota // Took: scheduled → end
	LongLivedPacket                       // Took: sent → end
	RemovedEndpointServing                // Took: removal scheduled → last answer; long-lived flow: → first from elsewhere
	NewEndpointDelay                      // Took: addition scheduled → first answer; NotYet: → when no answer was possible any more
	Reachable                             // Took: change due → end of the first new flow that only the new state explains
	Unreachable                           // Took: change due → start of the last new flow that only the old state explains
	// ControlFailure is a flow or packet that timed out together with a control flow: the rules are not the cause.
	ControlFailure // Took: scheduled → end
)

// Observed is one finding of a FlowChecker.
type Observed struct {
	Finding
	Target    *Target
	LongLived bool
	Number    int       // of the long-lived flow
	At        time.Time // scheduled time from which Took counts
	Took      time.Duration
	Outcome   string
	By        netip.AddrPort // the endpoint that answered, or was removed or added
	// AfterVisible is the moment of Reachable or Unreachable, counted from the moment when the kernel's tables showed the
	// change. It is nil if that moment is not known.
	AfterVisible *time.Duration
	// Among are the endpoints that may answer a new flow with equal probability. It is nil if the Service changed
	// meanwhile, or has client affinity.
	Among []*tracker.Endpoint
}

// FlowChecker checks which endpoint answers each flow. It is safe for concurrent use.
type FlowChecker struct {
	opts LedgerOptions

	mu      sync.Mutex
	cluster *mirror.Mirror
	targets []*Target
	ports   map[portKey]*port // of targets
	queue   []Result          // in the order of their ends
	held    map[int]*heldState
	counts  Counts
	// controls are the control flows that failed, and end late enough to explain a flow in queue.
	controls failedControls

	last time.Time // end of the last checked flow
}

type portKey struct {
	family corev1.IPFamily
	name   tracker.ServicePortName
}

// now returns the current state of a port in the cluster.
func (l *FlowChecker) now(key portKey) version {
	return version{port: l.cluster.Of(key.family).Port(key.name), serving: l.serving(key)}
}

// serving returns the serving endpoints of a UDP port.
func (l *FlowChecker) serving(key portKey) []netip.AddrPort {
	svc := l.cluster.Of(key.family).Services()[key.name.NamespacedName]
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

// heldState is the state of a long-lived flow.
type heldState struct {
	life  int
	by    netip.AddrPort
	stays []stay // in order
}

// stay is a period in which a flow has one endpoint.
type stay struct {
	by   netip.AddrPort
	from time.Time // sending time of the first packet that the endpoint answered
	cut  bool      // a packet was lost when the flow left the endpoint
}

// stay returns the period that contains a packet's sending time; nil if no endpoint had answered before.
func (h *heldState) stay(sent time.Time) *stay {
	for i := len(h.stays) - 1; i >= 0; i-- {
		if s := &h.stays[i]; !s.from.After(sent) {
			return s
		}
	}
	return nil
}

// NewLedger returns a FlowChecker of a cluster to which the kernel has converged.
func NewLedger(opts LedgerOptions) *FlowChecker {
	l := &FlowChecker{opts: opts, cluster: mirror.New(opts.Node, opts.Families...), ports: map[portKey]*port{}, held: map[int]*heldState{}}
	l.cluster.Load(opts.Services, opts.Slices, opts.Now)
	for i := range opts.Targets {
		t := &opts.Targets[i]
		l.targets = append(l.targets, t)
		key := portKey{t.Family, t.Service}
		if l.ports[key] == nil {
			l.ports[key] = newPort(i, t, l.now(key), opts.Now)
		}
		t.Direct = l.direct(key)
	}
	return l
}

// Changed records a change of the cluster right before it is made. object identifies the change and must not be
// modified. Changed Service ports that are no targets yet become targets (added), numbered after the existing ones.
// focus are the numbers of all ports with changed endpoints.
func (l *FlowChecker) Changed(op sim.Op, object runtime.Object, due, now time.Time) (added []Target, focus []int) {
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

// direct returns the address of an endpoint of a port; zero: there is none.
func (l *FlowChecker) direct(key portKey) netip.AddrPort {
	now := l.now(key)
	if endpoints := now.endpoints(true); len(endpoints) > 0 {
		return endpoints[0].Addr
	}
	return netip.AddrPort{}
}

// follow makes a port a target; it returns nil if no flow can be sent to the port.
func (l *FlowChecker) follow(key portKey, before, next *plan.ServicePort) *port {
	about := cmp.Or(next, before)
	if about == nil || key.name.Protocol != corev1.ProtocolTCP && key.name.Protocol != corev1.ProtocolUDP || l.onNode(before) || l.onNode(next) {
		return nil
	}
	t := &Target{
		Service: key.name, Family: key.family, Protocol: key.name.Protocol, Addr: netip.AddrPortFrom(about.ClusterIP, about.Port),
	}
	t.Direct = l.direct(key)
	l.ports[key] = newPort(len(l.targets), t, version{port: before}, l.opts.Now)
	l.targets = append(l.targets, t)
	return l.ports[key]
}

// onNode reports whether a port has an endpoint on the node itself, where no pod answers.
func (l *FlowChecker) onNode(p *plan.ServicePort) bool {
	v := version{port: p}
	return slices.ContainsFunc(v.endpoints(true), func(ep *tracker.Endpoint) bool { return slices.Contains(l.opts.NodeAddresses, ep.Addr.Addr()) })
}

// changed appends a new state of a port, if it differs from the last one.
func (l *FlowChecker) changed(p *port, next version) bool {
	last := &p.versions[len(p.versions)-1]
	if last.alike(&next) {
		if !slices.Equal(last.serving, next.serving) { // no rule changes, so it becomes visible with the next state
			p.versions = append(p.versions, next)
		}
		p.versions[len(p.versions)-1].port = next.port
		return false
	}
	before, after := last.endpoints(true), next.endpoints(true)
	p.turn(&next, before, after)
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
		if v := &p.versions[i]; !v.visible.IsZero() && !v.visible.After(next.made) { // so earlier states are over
			break
		}
	}
	p.versions = append(p.versions, next)
	return true
}

// Visible records that a change is visible in the kernel: known at a moment, and shown since an earlier one. It returns
// the numbers of the targets for which no other change is awaited. undone: a later change made the state as it was before. A
// state that returns becomes certain when a change that was made later, of any port, is visible.
func (l *FlowChecker) Visible(object runtime.Object, family corev1.IPFamily, at, shown time.Time, undone bool) (done []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	service := mirror.ServiceOf(object)
	var latest time.Time
	for key, p := range l.ports {
		if key.family == family && (key.name.NamespacedName == service || service.Name == "") {
			made, last := p.seen(object, at, shown, undone)
			if last {
				done = append(done, p.index)
			}
			if made.After(latest) {
				latest = made
			}
		}
	}
	if latest.IsZero() {
		return done
	}
	for key, p := range l.ports {
		if key.family == family {
			p.certain(latest, at.Add(returnSlack), false)
		}
	}
	return done
}

// Settled records that the kernel has converged to all changes.
func (l *FlowChecker) Settled(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.ports {
		p.certain(at, at.Add(returnSlack), true)
	}
}

// Take adds a Result, and checks the Results that are old enough.
func (l *FlowChecker) Take(r Result) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Control {
		before := len(l.controls)
		l.controls.add(&r, l.targets[r.Target])
		l.counts.Controls++
		l.counts.FailedControls += len(l.controls) - before
	}
	l.queue = append(l.queue, r)
	l.judge(r.End - int64(judgeAfter))
	for len(l.controls) > 0 && len(l.queue) > 0 && l.controls[0].over < l.queue[0].End-int64(longestFlow) {
		l.controls = l.controls[1:]
	}
}

// Counts are the flows that a FlowChecker does not report one by one.
type Counts struct {
	Excused    int // unanswered, as the possible states allow
	Unobserved int // the outcome is unknown
	// Controls are the control flows, and FailedControls those without an answer.
	Controls, FailedControls int
}

// Finish checks all remaining Results. It reports the removed endpoints, and the new endpoints that never answered.
func (l *FlowChecker) Finish() Counts {
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
		for _, t := range p.turns {
			l.tellTurn(p, t)
		}
	}
	return l.counts
}

func sortedAddrs[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(m), netip.AddrPort.Compare)
}
