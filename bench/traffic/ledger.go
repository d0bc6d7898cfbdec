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
	"k8s.io/apimachinery/pkg/types"

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
	mirrors map[corev1.IPFamily]*mirror
	targets []*Target
	ports   map[portKey]*port // of targets
	queue   []Result          // in order of their end
	held    map[int]*heldState
	// excused is how many flows went unanswered and might.
	excused int
	last    time.Time // the end of the last flow that was judged
}

type portKey struct {
	family corev1.IPFamily
	name   tracker.ServicePortName
}

// mirror is the cluster as one family's plan.
type mirror struct {
	tracker *tracker.Tracker
	plan    *plan.Plan
	serving map[tracker.ServicePortName][]netip.AddrPort // of UDP ports
}

// now is what the cluster says of a port.
func (m *mirror) now(name tracker.ServicePortName) version {
	return version{port: m.plan.Port(name), serving: m.serving[name]}
}

// heldState is what is known of a held flow.
type heldState struct {
	life int
	by   netip.AddrPort
}

// NewLedger makes a Ledger of a cluster that the kernel is in sync with.
func NewLedger(opts LedgerOptions) *Ledger {
	l := &Ledger{opts: opts, mirrors: map[corev1.IPFamily]*mirror{}, ports: map[portKey]*port{}, held: map[int]*heldState{}}
	for _, family := range opts.Families {
		l.mirrors[family] = &mirror{
			serving: map[tracker.ServicePortName][]netip.AddrPort{},
			tracker: tracker.New(tracker.Options{Family: family, NodeName: opts.Node.Name}), plan: plan.New(opts.Node),
		}
	}
	for _, svc := range opts.Services {
		l.take(sim.Add, svc, opts.Now)
	}
	for _, slice := range opts.Slices {
		l.take(sim.Add, slice, opts.Now)
	}
	for _, m := range l.mirrors {
		m.update()
	}
	for i := range opts.Targets {
		t := &opts.Targets[i]
		l.targets = append(l.targets, t)
		if key := (portKey{t.Family, t.Service}); l.ports[key] == nil {
			l.ports[key] = newPort(i, t, l.mirrors[t.Family].now(t.Service), opts.Now)
		}
	}
	return l
}

// owner is the Service that an object is, or belongs to.
func owner(object runtime.Object) types.NamespacedName {
	switch o := object.(type) {
	case *corev1.Service:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
	case *discoveryv1.EndpointSlice:
		return types.NamespacedName{Namespace: o.Namespace, Name: o.Labels[discoveryv1.LabelServiceName]}
	}
	return types.NamespacedName{}
}

// take gives a change of a Service or an EndpointSlice to the mirrors.
func (l *Ledger) take(op sim.Op, object runtime.Object, now time.Time) {
	for _, m := range l.mirrors {
		switch o := object.(type) {
		case *corev1.Service:
			if op == sim.Delete {
				m.tracker.DeleteService(o, now)
			} else {
				m.tracker.SetService(o, now)
			}
		case *discoveryv1.EndpointSlice:
			if op == sim.Delete {
				m.tracker.DeleteSlice(o, now)
			} else {
				m.tracker.SetSlice(o, now)
			}
		}
	}
}

// update plans what was taken, and gives the ports concerned as they were.
func (m *mirror) update() map[tracker.ServicePortName]*plan.ServicePort {
	changes := m.tracker.Take()
	m.tracker.Commit(changes)
	before := map[tracker.ServicePortName]*plan.ServicePort{}
	for _, change := range changes.Services {
		for _, svc := range []*tracker.Service{change.Old, change.New} {
			if svc == nil {
				continue
			}
			for _, port := range svc.Ports {
				before[port.Name] = m.plan.Port(port.Name)
				m.serve(port.Name, change.New)
			}
		}
	}
	m.plan.Update(changes.Services)
	return before
}

// serve notes the endpoints that serve a UDP port.
func (m *mirror) serve(name tracker.ServicePortName, svc *tracker.Service) {
	if name.Protocol != corev1.ProtocolUDP {
		return
	}
	delete(m.serving, name)
	if svc == nil {
		return
	}
	var serving []netip.AddrPort
	for _, ep := range svc.EndpointsOf(name.PortKey) {
		if ep.Serving {
			serving = append(serving, ep.Addr)
		}
	}
	m.serving[name] = serving
}

// moveNode plans everything anew for another zone of the node.
func (m *mirror) moveNode(node plan.Node) map[tracker.ServicePortName]*plan.ServicePort {
	before := map[tracker.ServicePortName]*plan.ServicePort{}
	for _, port := range m.plan.Ports() {
		before[port.Name] = port
	}
	if !m.plan.SetNode(node) {
		return nil
	}
	return before
}

// Changed takes a change of the cluster right before it is made. object tells it from others, and must not change. Service
// ports that it alters and that are no targets yet become targets: they are numbered on from those there are. focus are
// the numbers of all whose endpoints it alters.
func (l *Ledger) Changed(op sim.Op, object runtime.Object, due, now time.Time) (added []Target, focus []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	node, isNode := object.(*corev1.Node)
	if isNode && (node.Name != l.opts.Node.Name || op == sim.Delete) {
		return nil, nil
	}
	l.take(op, object, now)
	for _, family := range l.opts.Families {
		m := l.mirrors[family]
		var before map[tracker.ServicePortName]*plan.ServicePort
		if isNode {
			before = m.moveNode(plan.Node{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone]})
		} else {
			before = m.update()
		}
		for _, name := range sortedNames(before) {
			next := m.now(name)
			next.due, next.made, next.by = due, now, object
			last := version{port: before[name]}
			key := portKey{family, name}
			p := l.ports[key]
			if p == nil && !last.alike(&next) {
				if p = l.follow(key, before[name], next.port); p == nil {
					continue
				}
				added = append(added, *p.target)
			}
			if p != nil && l.changed(p, next) {
				focus = append(focus, p.index)
			}
		}
	}
	return added, focus
}

func sortedNames(ports map[tracker.ServicePortName]*plan.ServicePort) []tracker.ServicePortName {
	names := slices.Collect(maps.Keys(ports))
	slices.SortFunc(names, plan.CompareNames)
	return names
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
	service := owner(object)
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
// says how many flows went unanswered and might.
func (l *Ledger) Finish() (excused int) {
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
	return l.excused
}

func sortedAddrs[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	return slices.SortedFunc(maps.Keys(m), netip.AddrPort.Compare)
}
