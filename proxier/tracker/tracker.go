package tracker

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Service is the state of one Service in one family: its ports and its endpoints, at one moment. Immutable.
type Service struct {
	Name      types.NamespacedName
	Created   time.Time
	Ports     []*ServicePort  // sorted by port name and protocol
	Endpoints []PortEndpoints // likewise

	spec *spec
}

// EndpointsOf gives the endpoints of one port, sorted by Text.
func (s *Service) EndpointsOf(port PortKey) []*Endpoint {
	for i := range s.Endpoints {
		if s.Endpoints[i].PortKey == port {
			return s.Endpoints[i].List
		}
	}
	return nil
}

func (s *Service) equal(t *Service) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.spec.equal(t.spec) && equalEndpoints(s.Endpoints, t.Endpoints)
}

// Change is one Service that differs from what is installed. Old is nil for a new one, New for one that is gone.
type Change struct {
	Name     types.NamespacedName
	Old, New *Service
}

// Changes is what one sync takes.
type Changes struct {
	Services []Change // sorted by name; no-ops dropped
	// TriggerTimes are the moments when the changed EndpointSlices were due, where their annotation says so.
	TriggerTimes []time.Time
	// Queued is when the first event of these changes reached the tracker; zero if there was none.
	Queued time.Time
	// ServiceEvents and SliceEvents are how many events were folded into these changes.
	ServiceEvents, SliceEvents int

	taken map[types.NamespacedName]*Events
}

// Options of a Tracker.
type Options struct {
	Family   corev1.IPFamily
	NodeName string // endpoints of this node are local
	// Since drops trigger times before it: changes older than the proxier say nothing of its latency.
	Since time.Time
	// NoExternalIPs leaves the external IPs of Services out.
	NoExternalIPs bool
}

// Tracker holds the wanted state as the informers tell it, and what is installed. See the package comment.
type Tracker struct {
	opts   Options
	digest Digester

	mu       sync.Mutex
	services map[types.NamespacedName]*state
	pending  Pending[types.NamespacedName]
}

// state is what is known of one Service.
type state struct {
	spec      *spec          // nil: there is no such Service
	slices    []*SliceDigest // sorted by name
	installed *Service       // nil: nothing of it
}

// New makes an empty Tracker.
func New(opts Options) *Tracker {
	return &Tracker{
		opts:     opts,
		digest:   Digester{NodeName: opts.NodeName, Families: []corev1.IPFamily{opts.Family}, NoExternalIPs: opts.NoExternalIPs},
		services: map[types.NamespacedName]*state{},
	}
}

// SetService takes a Service as added or updated, at now. It reports whether anything is pending.
func (t *Tracker) SetService(svc *corev1.Service, now time.Time) bool {
	return t.PutService(t.digest.Service(svc), now)
}

// DeleteService takes a Service as deleted.
func (t *Tracker) DeleteService(svc *corev1.Service, now time.Time) bool {
	return t.putSpec(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, nil, now)
}

// PutService is SetService of a digest.
func (t *Tracker) PutService(svc *ServiceDigest, now time.Time) bool {
	return t.putSpec(svc.NamespacedName, svc.specs[indexOf(t.opts.Family)], now)
}

// DropService is DeleteService of a digest.
func (t *Tracker) DropService(svc *ServiceDigest, now time.Time) bool {
	return t.putSpec(svc.NamespacedName, nil, now)
}

func (t *Tracker) putSpec(name types.NamespacedName, s *spec, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.state(name)
	if !s.equal(known.spec) {
		known.spec = s
		t.pending.Mark(name, now).Services++
	}
	t.settle(name, known)
	return t.pending.Len() > 0
}

// SetSlice takes an EndpointSlice as added or updated, at now. It reports whether anything is pending.
func (t *Tracker) SetSlice(obj *discoveryv1.EndpointSlice, now time.Time) bool {
	return t.PutSlice(t.digest.Slice(obj), now)
}

// DeleteSlice takes an EndpointSlice as deleted. One that was never seen changes nothing.
func (t *Tracker) DeleteSlice(obj *discoveryv1.EndpointSlice, now time.Time) bool {
	return t.DropSlice(t.digest.Slice(obj), now)
}

// PutSlice is SetSlice of a digest, made for the tracker's node.
func (t *Tracker) PutSlice(s *SliceDigest, now time.Time) bool {
	name, ok := s.owner(t.opts.Family)
	if !ok {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.state(name)
	i, found := known.find(s)
	if found && equalEndpoints(known.slices[i].endpoints, s.endpoints) {
		return t.pending.Len() > 0
	}
	if found {
		known.slices[i] = s
	} else {
		known.slices = slices.Insert(known.slices, i, s)
	}
	d := t.pending.Mark(name, now)
	d.Slices++
	if !s.trigger.IsZero() && !s.trigger.Before(t.opts.Since) {
		d.Triggers = append(d.Triggers, s.trigger)
	}
	return true
}

// DropSlice is DeleteSlice of a digest.
func (t *Tracker) DropSlice(s *SliceDigest, now time.Time) bool {
	name, ok := s.owner(t.opts.Family)
	if !ok {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.state(name)
	if i, found := known.find(s); found {
		known.slices = slices.Delete(known.slices, i, i+1)
		// The annotation of a deleted slice tells of an earlier change, not of the deletion: no trigger time. What the slice
		// brought since the last sync is never written, so that those of the Service so far go, too, as in kube-proxy.
		d := t.pending.Mark(name, now)
		d.Slices++
		d.Drop()
	}
	t.settle(name, known)
	return t.pending.Len() > 0
}

// state gives what is known of a Service; settle has to follow where that may be nothing.
func (t *Tracker) state(name types.NamespacedName) *state {
	known := t.services[name]
	if known == nil {
		known = &state{}
		t.services[name] = known
	}
	return known
}

// settle forgets a Service of which nothing is known any more.
func (t *Tracker) settle(name types.NamespacedName, known *state) {
	if known.spec == nil && len(known.slices) == 0 && known.installed == nil {
		delete(t.services, name)
	}
}

func (s *state) find(slice *SliceDigest) (int, bool) {
	return slices.BinarySearchFunc(s.slices, slice.Name, func(have *SliceDigest, name string) int {
		return strings.Compare(have.Name, name)
	})
}

// Pending is the number of Services with events that no Take has handed out yet.
func (t *Tracker) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending.Len()
}

// PendingEvents is the number of events that no Take has handed out yet, on Services and on slices.
func (t *Tracker) PendingEvents() (services, slices int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending.Events()
}

// Take hands out the changes since the last Commit. Each Take must be followed by Commit or GiveBack.
func (t *Tracker) Take() Changes {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Changes{taken: t.pending.Take()}
	for name, d := range c.taken {
		c.ServiceEvents += d.Services
		c.SliceEvents += d.Slices
		if c.Queued.IsZero() || d.Queued.Before(c.Queued) {
			c.Queued = d.Queued
		}
		c.TriggerTimes = append(c.TriggerTimes, d.Triggers...)
		if old, wanted := t.build(name); d.Retaken || !wanted.equal(old) {
			c.Services = append(c.Services, Change{Name: name, Old: old, New: wanted})
		}
	}
	slices.SortFunc(c.Services, func(a, b Change) int { return compareNames(a.Name, b.Name) })
	slices.SortFunc(c.TriggerTimes, time.Time.Compare)
	return c
}

// build gives what is installed of a Service and what is wanted.
func (t *Tracker) build(name types.NamespacedName) (old, wanted *Service) {
	known := t.services[name]
	if known == nil {
		return nil, nil
	}
	if s := known.spec; s != nil {
		wanted = &Service{Name: name, Created: s.created, Ports: s.ports, Endpoints: merge(known.slices), spec: s}
	}
	return known.installed, wanted
}

// Commit makes the changes the installed state.
func (t *Tracker) Commit(c Changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, change := range c.Services {
		known := t.state(change.Name)
		known.installed = change.New
		t.settle(change.Name, known)
	}
}

// GiveBack takes the changes of a failed sync back: nothing of them is lost.
func (t *Tracker) GiveBack(c Changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending.GiveBack(c.taken)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
