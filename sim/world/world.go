package world

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// World is the state of the simulated cluster, which steps change. It is not safe for concurrent use. Its changes
// depend only on its shape or first objects, its seed, the repetition and the steps before.
//
// An error, for example when an address range or the node ports are used up, leaves a World in the middle of a step.
// It must not be used any more.
type World struct {
	shape    scenarios.Shape
	seed     uint64
	random   *rand.Rand // for the steps; objects draw from seed and index
	families []corev1.IPFamily
	counts   *endpointCounts

	clusterIPs, loadBalancerIPs, externalIPs map[corev1.IPFamily]*addressRange
	podIPs                                   map[corev1.IPFamily]*podRange
	nodePorts                                nodePortRange

	conditions struct {
		ready, unready, draining, stopping discoveryv1.EndpointConditions
	}

	hosts     []*host // Nodes that take pods, in order; the first is that of the proxies
	nodes     []*corev1.Node
	live      []*workload // Services, in the order of creation
	strays    []*discoveryv1.EndpointSlice
	leaving   []*discoveryv1.Endpoint // removed; their addresses are still in use
	shared    map[string]*sharedPods  // by namespace
	gone      []*discoveryv1.Endpoint // as leaving, of shared pods: in use until the end of the step
	nameless  map[string]string       // pods of endpoints without TargetRef, by address
	podCount  int                     // pods ever made
	nextIndex int                     // of the next Service
	version   int64                   // last resourceVersion that was set
}

// NewWorld returns a cluster of a shape with its Nodes and without Services: Create adds them.
func NewWorld(shape scenarios.Shape, seed uint64) (*World, error) {
	shape.Fill() // a shape that is written in Go may have unset fields
	w, err := emptyWorld(shape, seed)
	if err != nil {
		return nil, err
	}
	podCIDRs := map[corev1.IPFamily][]netip.Prefix{}
	for _, family := range w.families {
		podCIDRs[family] = splitRange(w.podIPs[family].shared[0].prefix, shape.Nodes)
	}
	for i := range shape.Nodes {
		node, err := newNode(seed, i, shape.Zones, w.families, podCIDRs)
		if err != nil {
			return nil, err
		}
		w.version++
		node.ResourceVersion = strconv.FormatInt(w.version, 10)
		w.nodes = append(w.nodes, node)
		w.hosts = append(w.hosts, newHost(node))
		for family, parts := range podCIDRs {
			if parts != nil {
				w.podIPs[family].perNode[node.Name] = &addressRange{purpose: "pod", prefix: parts[i]}
			}
		}
	}
	return w, nil
}

// Repetition makes later steps those of a repetition, from 1: the same kinds of changes, at other times to other objects.
// Without it they are those of the first one. It returns w.
func (w *World) Repetition(n int) *World {
	w.random = stepsOf(w.seed, n)
	return w
}

// stepsOf returns the random numbers for the steps of a repetition.
func stepsOf(seed uint64, repetition int) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0x776f726c64+uint64(repetition-1)<<40))
}

func emptyWorld(shape scenarios.Shape, seed uint64) (*World, error) {
	if err := checkShape(shape); err != nil {
		return nil, err
	}
	counts, err := newEndpointCounts(shape.Endpoints)
	if err != nil {
		return nil, err
	}
	w := &World{
		shape:           shape,
		seed:            seed,
		random:          stepsOf(seed, 1),
		families:        shapeFamilies(shape),
		counts:          counts,
		clusterIPs:      map[corev1.IPFamily]*addressRange{},
		loadBalancerIPs: map[corev1.IPFamily]*addressRange{},
		externalIPs:     map[corev1.IPFamily]*addressRange{},
		podIPs:          map[corev1.IPFamily]*podRange{},
		shared:          map[string]*sharedPods{},
		nameless:        map[string]string{},
	}
	for _, family := range w.families {
		services, err := rangesFor("serviceCIDRs", shape.ServiceCIDRs, family)
		if err != nil {
			return nil, err
		}
		pods, err := rangesFor("podCIDRs", shape.PodCIDRs, family)
		if err != nil {
			return nil, err
		}
		shared := make([]*addressRange, len(pods))
		for i, p := range pods {
			if p.Overlaps(services[0]) {
				return nil, fmt.Errorf("shape: podCIDRs %s and serviceCIDRs %s overlap", p, services[0])
			}
			shared[i] = &addressRange{purpose: "pod", prefix: p}
		}
		// Clusters keep the first addresses for Services that choose theirs (DNS
		// has the tenth by custom).
		w.clusterIPs[family] = &addressRange{purpose: "service", prefix: services[0], next: 10}
		w.loadBalancerIPs[family] = &addressRange{purpose: "load balancer", prefix: loadBalancerRanges[family]}
		w.externalIPs[family] = &addressRange{purpose: "external", prefix: externalRanges[family]}
		w.podIPs[family] = &podRange{shared: shared, perNode: map[string]*addressRange{}}
	}
	yes, no := true, false
	// A terminating pod is never ready; while it serves, it is the last resort.
	w.conditions.ready = discoveryv1.EndpointConditions{Ready: &yes, Serving: &yes, Terminating: &no}
	w.conditions.unready = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &no}
	w.conditions.draining = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
	w.conditions.stopping = discoveryv1.EndpointConditions{Ready: &no, Serving: &no, Terminating: &yes}
	return w, nil
}

// Objects returns the present objects. The caller owns the lists, not the objects.
func (w *World) Objects() *sim.Objects {
	o := &sim.Objects{
		Services: make([]*corev1.Service, 0, len(w.live)),
		Slices:   make([]*discoveryv1.EndpointSlice, 0, len(w.live)*max(1, len(w.families))),
		Nodes:    append([]*corev1.Node(nil), w.nodes...),
	}
	for _, l := range w.live {
		o.Services = append(o.Services, l.service)
		for _, g := range l.groups {
			o.Slices = append(o.Slices, g.slices...)
		}
	}
	o.Slices = append(o.Slices, w.strays...)
	o.SortOthers()
	return o
}

// Plan plans the changes of a step that makes a stream of them. Steps of other kinds have none, also those of React.
func (w *World) Plan(s *scenarios.Step) (sim.Trace, error) {
	switch {
	case s.Create != nil:
		return w.Create(*s.Create)
	case s.Churn != nil:
		return w.Churn(*s.Churn)
	case s.Rollout != nil:
		return w.Rollout(*s.Rollout)
	case s.Scale != nil:
		return w.Scale(*s.Scale)
	case s.NodeLoss != nil:
		return w.NodeLoss(*s.NodeLoss)
	}
	return nil, nil
}

// Create plans the creation of Services with their endpoints: at the step's rate, or all due at once.
func (w *World) Create(step scenarios.Create) (sim.Trace, error) {
	n := cmp.Or(step.Services, w.shape.Services-len(w.live))
	if n < 0 || step.Rate < 0 {
		return nil, fmt.Errorf("create: %d services at rate %g: want no negative value", n, step.Rate)
	}
	t := make(sim.Trace, 0, 2*n)
	made := 0
	err := w.createServices(n, func(l *workload) {
		due := time.Duration(0)
		if step.Rate > 0 {
			due = time.Duration(float64(made) / step.Rate * float64(time.Second))
		}
		made++
		addWorkload(&t, due, sim.Add, l)
	})
	if err != nil {
		return nil, fmt.Errorf("create: %w", err)
	}
	// createServices set their versions, in this order.
	return t, nil
}

// addWorkload appends a Service and its slices, in the order in which they are created or deleted.
func addWorkload(t *sim.Trace, due time.Duration, op sim.Op, l *workload) {
	t.Add(due, op, l.service)
	for _, g := range l.groups {
		for _, s := range g.slices {
			t.Add(due, op, s)
		}
	}
}

// createServices makes the next n Services and calls made for each.
func (w *World) createServices(n int, made func(*workload)) error {
	for range n {
		l, err := w.createService(w.nextIndex)
		if err != nil {
			return err
		}
		made(l)
	}
	return nil
}

// createService makes the next Service with its initial endpoints. It resembles the Service with index like.
func (w *World) createService(like int) (*workload, error) {
	l, err := w.newService(w.nextIndex, like)
	if err != nil {
		return nil, err
	}
	w.nextIndex++
	pods, err := w.firstPods(l)
	if err != nil {
		return nil, fmt.Errorf("service %s/%s: %w", l.service.Namespace, l.service.Name, err)
	}
	w.version++
	l.service.ResourceVersion = strconv.FormatInt(w.version, 10)
	for _, c := range w.pack(l, edit{add: pods}) {
		w.version++
		c.slice.ResourceVersion = strconv.FormatInt(w.version, 10)
	}
	l.at = len(w.live)
	w.live = append(w.live, l)
	return l, nil
}

// firstPods returns the pods that a Service starts with.
func (w *World) firstPods(l *workload) ([]pod, error) {
	n := w.initialEndpoints(l.like)
	switch {
	case len(l.groups) == 0:
		return nil, nil
	case w.shape.SharedPods > 0:
		return w.share(l, n)
	}
	pods := make([]pod, n)
	for i := range pods {
		var err error
		if pods[i], err = w.newPod(l, w.initialConditions(w.podCount)); err != nil {
			return nil, err
		}
	}
	return pods, nil
}

// deleteService plans the deletion of a Service: first the Service, then its slices, as the garbage collector does.
func (w *World) deleteService(l *workload, due time.Duration, t *sim.Trace) {
	if l.shared != nil {
		l.shared.leave(l, due, t)
	}
	gone := *l.service
	t.Add(due, sim.Delete, &gone)
	for _, g := range l.groups {
		for _, s := range g.slices {
			for i := 0; l.shared == nil && i < len(s.Endpoints); i++ {
				w.leaving = append(w.leaving, &s.Endpoints[i])
			}
			last := *s
			t.Add(due, sim.Delete, &last)
		}
	}
	w.release(l.service)
	last := len(w.live) - 1
	w.live[l.at] = w.live[last]
	w.live[l.at].at = l.at
	w.live[last] = nil
	w.live = w.live[:last]
}

// Remove plans the removal of the pods with these addresses from all Services, all due at once.
func (w *World) Remove(addresses map[string]bool) sim.Trace {
	var t sim.Trace
	for _, l := range w.live {
		drop := map[string]bool{}
		for _, g := range l.groups {
			for _, s := range g.slices {
				for i := range s.Endpoints {
					if e := &s.Endpoints[i]; addresses[e.Addresses[0]] {
						drop[w.podKey(e)] = true
					}
				}
			}
		}
		if len(drop) > 0 {
			w.change(l, 0, edit{drop: drop}, &t)
		}
	}
	return w.finish(t)
}

// releaseLeaving frees the addresses of removed pods. Call it only once the step is past their removal: two pods must
// not have one address.
func (w *World) releaseLeaving() {
	for _, e := range w.leaving {
		node := ""
		if e.NodeName != nil {
			node = *e.NodeName
		}
		for _, a := range e.Addresses {
			if addr, ok := inet.ParseAddr(a); ok {
				if pods := w.podIPs[inet.FamilyOf(addr)]; pods != nil {
					pods.give(node, addr)
				}
			}
		}
	}
	w.leaving = w.leaving[:0]
}

// ErrNothingToChange is the cause of a step that finds no endpoint to change.
var ErrNothingToChange = errors.New("no Service that proxies serve has an endpoint")

// TooFewError reports that a step needs more objects than the cluster has.
type TooFewError struct {
	What         string
	Wanted, Have int
	Cause        error // of a change that found nothing to change; nil: the objects are too few from the start
}

func (e *TooFewError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("after %d of %d %s: %v", e.Have, e.Wanted, e.What, e.Cause)
	}
	return fmt.Sprintf("there are %d %s, not %d", e.Have, e.What, e.Wanted)
}

func (e *TooFewError) Unwrap() error { return e.Cause }

// anyWorkload returns a random Service that fits; nil when none does.
func (w *World) anyWorkload(fits func(*workload) bool) *workload {
	if len(w.live) == 0 {
		return nil
	}
	start := w.random.IntN(len(w.live))
	if fits(w.live[start]) {
		return w.live[start]
	}
	// Most Services fit in most worlds: a few more draws keep the choice even. Where few fit, the walk ends the
	// search.
	for range 16 {
		if l := w.live[w.random.IntN(len(w.live))]; fits(l) {
			return l
		}
	}
	for i := range w.live {
		if l := w.live[(start+i)%len(w.live)]; fits(l) {
			return l
		}
	}
	return nil
}

// finish sorts a planned trace and sets the resource versions, which follow the order of the changes. Every object of
// the trace is new, so finish writes to no object that was handed out.
func (w *World) finish(t sim.Trace) sim.Trace {
	slices.SortStableFunc(t, func(a, b sim.Change) int { return cmp.Compare(a.Due, b.Due) })
	for _, c := range t {
		w.version++
		c.Object.(metav1.Object).SetResourceVersion(strconv.FormatInt(w.version, 10))
	}
	w.leaving, w.gone = append(w.leaving, w.gone...), nil
	w.releaseLeaving()
	for _, s := range w.shared {
		s.free = 0
		clear(s.writes)
	}
	return t
}
