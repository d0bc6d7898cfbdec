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

// Service is the state of one Service in one family at one moment: its ports and its endpoints. Immutable.
type Service struct {
	Name      types.NamespacedName
	Created   time.Time
	Ports     []*ServicePort  // sorted by port name and protocol
	Endpoints []PortEndpoints // likewise

	spec *spec
}

// EndpointsOf returns the endpoints of one port, sorted by Text.
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

// Change is one Service that differs from its installed state. Old is nil for a new Service, New for a deleted one.
type Change struct {
	Name     types.NamespacedName
	Old, New *Service
}

// Changes are the changes of one sync.
type Changes struct {
	Services []Change // sorted by name; no-ops dropped
	// TriggerTimes are the trigger times of the changed EndpointSlices, from their annotations where present.
	TriggerTimes []time.Time
	// Queued is when the first event of these changes reached the tracker; zero if there was none.
	Queued time.Time
	// ServiceEvents and SliceEvents are the numbers of events that these changes combine.
	ServiceEvents, SliceEvents int

	taken map[types.NamespacedName]*Events
}

// Options configures a Tracker.
type Options struct {
	Family   corev1.IPFamily
	NodeName string // endpoints of this node are local
	// Since excludes earlier trigger times: changes older than the proxier do not show its latency.
	Since time.Time
}

// Tracker holds the desired state from the informers and the installed state. See the package comment.
type Tracker struct {
	opts   Options
	digest Digester

	mu       sync.Mutex
	services map[types.NamespacedName]*state
	pending  pending
}

// state is the state of one Service.
type state struct {
	spec      *spec          // nil: no such Service
	slices    []*SliceDigest // sorted by name
	installed *Service       // nil: nothing is installed
}

// New makes an empty Tracker.
func New(opts Options) *Tracker {
	return &Tracker{
		opts:     opts,
		digest:   Digester{NodeName: opts.NodeName, Families: []corev1.IPFamily{opts.Family}},
		services: map[types.NamespacedName]*state{},
	}
}

// SetService records that a Service was added or updated at now. It reports whether any change is pending.
func (t *Tracker) SetService(svc *corev1.Service, now time.Time) bool {
	return t.PutService(t.digest.Service(svc), now)
}

// DeleteService records that a Service was deleted.
func (t *Tracker) DeleteService(svc *corev1.Service, now time.Time) bool {
	return t.putSpec(types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}, nil, now)
}

// PutService is SetService for a digest.
func (t *Tracker) PutService(svc *ServiceDigest, now time.Time) bool {
	return t.putSpec(svc.NamespacedName, svc.specs[indexOf(t.opts.Family)], now)
}

// DropService is DeleteService for a digest.
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

// SetSlice records that an EndpointSlice was added or updated at now. It reports whether any change is pending.
func (t *Tracker) SetSlice(obj *discoveryv1.EndpointSlice, now time.Time) bool {
	return t.PutSlice(t.digest.Slice(obj), now)
}

// DeleteSlice records that an EndpointSlice was deleted. An unknown slice changes nothing.
func (t *Tracker) DeleteSlice(obj *discoveryv1.EndpointSlice, now time.Time) bool {
	return t.DropSlice(t.digest.Slice(obj), now)
}

// PutSlice is SetSlice for a digest, which must be made for the tracker's node.
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

// DropSlice is DeleteSlice for a digest.
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
		// The annotation of a deleted slice belongs to an earlier change, not to the deletion, so it is no trigger
		// time. The changes of the slice since the last sync are never written. So the Service's earlier trigger times
		// are dropped too, as in kube-proxy.
		d := t.pending.Mark(name, now)
		d.Slices++
		d.Drop()
	}
	t.settle(name, known)
	return t.pending.Len() > 0
}

// state returns the state of a Service and adds it if missing. If it may stay empty, the caller must call settle.
func (t *Tracker) state(name types.NamespacedName) *state {
	known := t.services[name]
	if known == nil {
		known = &state{}
		t.services[name] = known
	}
	return known
}

// settle deletes the state of a Service without content.
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

// Pending returns the number of Services with events that no Take has returned yet.
func (t *Tracker) Pending() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending.Len()
}

// PendingEvents returns the number of events that no Take has returned yet, on Services and on slices.
func (t *Tracker) PendingEvents() (services, slices int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.pending.Events()
}

// Take returns the changes since the last Commit. Each Take must be followed by Commit or Requeue.
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
		if old, wanted := t.build(name); d.Requeued || !wanted.equal(old) {
			c.Services = append(c.Services, Change{Name: name, Old: old, New: wanted})
		}
	}
	slices.SortFunc(c.Services, func(a, b Change) int { return compareNames(a.Name, b.Name) })
	slices.SortFunc(c.TriggerTimes, time.Time.Compare)
	return c
}

// build returns the installed and the desired state of a Service.
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

// Requeue requeues the changes of a failed sync. Nothing of them is lost.
func (t *Tracker) Requeue(c Changes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pending.Requeue(c.taken)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}
