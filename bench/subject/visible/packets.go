package visible

import (
	"math"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/traffic"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// PacketOptions let a Watcher ask Service ports with new flows. Every endpoint must answer with its address, as those of
// traffic.Process do.
type PacketOptions struct {
	Namespace *netns.Namespace // of client pods
	Clients   []netip.Addr     // source addresses that nothing else uses, two at least in each family
	Node      []netip.Addr     // addresses of the node itself, where no pod answers
}

// packetRate is the number of new flows a second, to all pending ports together. It bounds what they cost: some
// hundredths of a CPU.
const packetRate = 2000

// sure is the probability of missing removed endpoints at which a state without them counts as reached.
const sure = 0.001

// packets reads no rules. While ports are pending, it sends new flows to their cluster IPs. The endpoints that answer show
// the state: a state is reached when one of its new endpoints has answered, and its removed endpoints have not in so many
// flows that this is no chance.
type packets struct {
	sampler *traffic.Sampler
	now     func() time.Time
	node    []netip.Addr

	mu      sync.Mutex
	ports   map[portKey]*askedPort
	targets []*askedPort // by number
	arrived uint64       // number of states that were reached
	stopped bool
}

// askedPort is a Service port as its packets show it.
type askedPort struct {
	target   int // the last number of its address; -1: it cannot be asked
	addr     netip.AddrPort
	affinity bool
	shown    State            // what was reached last
	answers  []netip.AddrPort // the endpoints that may answer in that state
	queue    []*expected      // later states, oldest first
}

// expected is a state that is not reached yet. Times without a value are zero.
type expected struct {
	state   State
	answers []netip.AddrPort
	made    time.Time
	first   time.Time // end of the first flow that an endpoint answered which only this state has
	wrong   time.Time // start of the last flow whose end does not fit
	fits    int       // number of flows in a row whose end fits
	since   time.Time // start of the first of them
}

func newPackets(o PacketOptions, now func() time.Time) (*packets, error) {
	r := &packets{now: now, node: o.Node, ports: map[portKey]*askedPort{}}
	var err error
	r.sampler, err = traffic.NewSampler(traffic.SamplerOptions{Namespace: o.Namespace, Clients: o.Clients, Rate: packetRate, Result: r.take})
	return r, err
}

// place expects a port's new state.
func (r *packets) place(family corev1.IPFamily, name tracker.ServicePortName, p *plan.ServicePort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, to := portKey{family, name}, wanted(p)
	port := r.ports[key]
	if r.stopped || port == nil && to.empty() {
		return
	}
	if port == nil {
		port = &askedPort{target: -1}
		r.ports[key] = port
	}
	next := &expected{state: State{Cluster: textsOf(to.cluster), Local: textsOf(to.local)}, made: r.now()}
	if p != nil {
		port.affinity = p.AffinitySeconds > 0
		inside := to.cluster
		if p.InternalPolicyLocal {
			inside = to.local
		}
		onNode := slices.ContainsFunc(inside, func(ep *tracker.Endpoint) bool { return slices.Contains(r.node, ep.Addr.Addr()) })
		if addr := netip.AddrPortFrom(p.ClusterIP, p.Port); addr != port.addr && name.Protocol != corev1.ProtocolSCTP && !onNode {
			r.address(key, port, addr)
		}
		for _, ep := range inside {
			next.answers = append(next.answers, ep.Addr)
		}
	}
	if last := port.last(); slices.Equal(last.Cluster, next.state.Cluster) && slices.Equal(last.Local, next.state.Local) {
		return
	}
	port.queue = append(port.queue, next)
	if port.target < 0 {
		r.reach(port, 0, time.Time{}, time.Time{}, true)
		return
	}
	r.sampler.Want(port.target, true)
}

// address makes the address of a port a target, in place of its earlier one.
func (r *packets) address(key portKey, port *askedPort, addr netip.AddrPort) {
	if port.target >= 0 {
		r.sampler.Want(port.target, false)
	}
	port.addr, port.target = addr, len(r.targets)
	r.targets = append(r.targets, port)
	r.sampler.Add(traffic.Target{Service: key.ServicePortName, Family: key.family, Protocol: key.Protocol, Addr: addr})
	if len(port.queue) > 0 {
		r.sampler.Want(port.target, true)
	}
}

func (p *askedPort) last() State {
	if len(p.queue) == 0 {
		return p.shown
	}
	return p.queue[len(p.queue)-1].state
}

func textsOf(endpoints []*tracker.Endpoint) []string {
	return namesOf(endpoints, func(ep *tracker.Endpoint) string { return ep.Text })
}

// take learns from the end of a flow.
func (r *packets) take(result traffic.Result) {
	if result.Outcome == traffic.Unwatched {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	port := r.targets[result.Target]
	if r.stopped || result.Target != port.target {
		return
	}
	by := result.By
	if result.Outcome != traffic.Answered {
		by = netip.AddrPort{}
	}
	sent, end := r.sampler.At(result.Sent), r.sampler.At(result.End)
	for i, state := range slices.Backward(port.queue) {
		if at, since, reached, unseen := port.judge(state, by, sent, end); reached {
			r.reach(port, i, at, since, unseen)
			return
		}
	}
}

// judge adds a flow to what is known of a state. by is the endpoint that answered; the zero value if none did. If the state
// is reached, at is when, and since the latest time when it was not. unseen: packets cannot show that moment.
func (p *askedPort) judge(state *expected, by netip.AddrPort, sent, end time.Time) (at, since time.Time, reached, unseen bool) {
	fresh, gone := lacking(state.answers, p.answers), lacking(p.answers, state.answers)
	fits := slices.Contains(state.answers, by)
	if len(state.answers) == 0 {
		fits = !slices.Contains(gone, by)
	}
	switch {
	case state.made.After(sent):
		return
	case !fits:
		if sent.After(state.wrong) {
			state.wrong = sent
		}
		if !sent.Before(state.since) {
			state.fits, state.since = 0, time.Time{}
		}
		return
	case state.fits == 0:
		state.since = sent
	}
	state.fits++
	if state.first.IsZero() && slices.Contains(fresh, by) {
		state.first = end
	}
	// With affinity, clients stay with their endpoints: none of them may ever reach a new one.
	needsFresh := len(fresh) > 0 && (!p.affinity || len(p.answers) == 0)
	if needsFresh && state.first.IsZero() || state.fits < flowsFor(len(gone), len(p.answers)) {
		return
	}
	at = state.since
	if needsFresh && state.first.After(at) {
		at = state.first
	}
	since = state.wrong
	if !since.After(state.made) {
		since = state.made
	}
	return at, since, true, !needsFresh && len(gone) == 0
}

// flowsFor is the number of flows in a row that must not reach any of the gone endpoints, of all that a port had.
func flowsFor(gone, had int) int {
	switch {
	case gone == 0:
		return 1
	case gone == had:
		return 3 // a single flow may be lost
	}
	return int(math.Ceil(math.Log(sure) / math.Log(1-float64(gone)/float64(had))))
}

// lacking returns the addresses of a that b lacks.
func lacking(a, b []netip.AddrPort) []netip.AddrPort {
	return slices.DeleteFunc(slices.Clone(a), func(addr netip.AddrPort) bool { return slices.Contains(b, addr) })
}

// reach makes a state of the queue the one that is shown.
func (r *packets) reach(port *askedPort, i int, at, since time.Time, unseen bool) {
	reached := port.queue[i]
	port.shown, port.answers = reached.state, reached.answers
	port.shown.At, port.shown.Since, port.shown.Unseen = at, since, unseen
	port.queue = slices.Delete(port.queue, 0, i+1)
	for _, later := range port.queue { // what they lack and add depends on the state before
		later.first, later.fits, later.since = time.Time{}, 0, time.Time{}
	}
	if len(port.queue) == 0 && port.target >= 0 {
		r.sampler.Want(port.target, false)
	}
	r.arrived++
}

// recheck asks all ports again.
func (r *packets) recheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, port := range r.ports {
		if r.stopped || port.target < 0 || len(port.queue) > 0 {
			continue
		}
		port.queue = []*expected{{state: port.shown, answers: port.answers, made: r.now()}}
		port.shown = State{}
		r.sampler.Want(port.target, true)
	}
}

// stop is called when another reader has found its rules.
func (r *packets) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.sampler.Stop()
}

func (r *packets) Close() { r.sampler.Close() }

// found reports whether packets reach an endpoint.
func (r *packets) found(corev1.IPFamily) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.targets, func(p *askedPort) bool { return len(p.answers) > 0 }), nil
}

func (r *packets) Generation() (Generation, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Generation{Dispatch: r.arrived}, r.sampler.Err()
}

func (*packets) Misses() bool                                           { return false }
func (*packets) Blind() time.Duration                                   { return blindPeriod }
func (*packets) Endpoint(_ tracker.ServicePortName, text string) string { return text }
func (*packets) Installed(corev1.IPFamily) (Installed, error)           { return Installed{}, nil }
func (r *packets) Look() (Snapshot, error)                              { return packetLook{r}, nil }

type packetLook struct{ *packets }

func (l packetLook) Port(family corev1.IPFamily, name tracker.ServicePortName) (State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if port := l.ports[portKey{family, name}]; port != nil {
		return port.shown, nil
	}
	return State{}, nil
}

func (packetLook) Dispatched(corev1.IPFamily, tracker.ServicePortName) (cluster, local bool, err error) {
	return true, true, nil
}
func (packetLook) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) {
	return "", nil
}
func (packetLook) Close() {}
