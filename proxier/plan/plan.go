package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
)

// ServicePort is the decision for one Service port. Immutable.
type ServicePort struct {
	*tracker.ServicePort
	Created time.Time
	// Cluster are the endpoints of traffic that may go anywhere; nil when no traffic of the port may.
	Cluster []*tracker.Endpoint
	// Local are the endpoints of traffic that must stay on this node; nil when no traffic of the port must.
	Local []*tracker.Endpoint
	// Reachable is the union of Cluster and Local, sorted.
	Reachable []*tracker.Endpoint
	// HasEndpoints: somewhere in the cluster an endpoint is usable. If not, traffic is rejected; if so, but none that
	// this traffic may go to, it is dropped, because the sender may have better luck elsewhere.
	HasEndpoints bool
	// Known is the number of endpoints of any condition.
	Known int
}

// HasInternalEndpoints says whether traffic to the cluster IP has anywhere to go.
func (p *ServicePort) HasInternalEndpoints() bool {
	return p.HasEndpoints && (!p.InternalPolicyLocal || len(p.Local) > 0)
}

// HasExternalEndpoints says whether traffic from outside has anywhere to go.
func (p *ServicePort) HasExternalEndpoints() bool {
	return p.HasEndpoints && (!p.ExternalPolicyLocal || len(p.Local) > 0)
}

// Delta is what an Update changed.
type Delta struct {
	Changed []*ServicePort            // new or planned again, in plan order
	Removed []tracker.ServicePortName // gone, sorted
}

// Plan holds the decisions for all Services of one family.
type Plan struct {
	node     Node
	services map[types.NamespacedName]*tracker.Service
	ports    map[tracker.ServicePortName]*ServicePort
	order    []*ServicePort
	known    int
}

// New makes an empty plan for a node.
func New(node Node) *Plan {
	return &Plan{
		node:     node,
		services: map[types.NamespacedName]*tracker.Service{},
		ports:    map[tracker.ServicePortName]*ServicePort{},
	}
}

// Ports gives all planned Service ports, the oldest first. The slice must not be changed and is valid until the next
// Update.
func (p *Plan) Ports() []*ServicePort { return p.order }

// Port gives the decision for one Service port, nil if there is none.
func (p *Plan) Port(name tracker.ServicePortName) *ServicePort { return p.ports[name] }

// Services gives the tracked state behind the plan. It must not be changed.
func (p *Plan) Services() map[types.NamespacedName]*tracker.Service { return p.services }

// KnownEndpoints is the number of endpoints of all Service ports, usable or not.
func (p *Plan) KnownEndpoints() int { return p.known }

// SetNode replans everything for another node name or zone. It reports whether that was needed.
func (p *Plan) SetNode(node Node) bool {
	if node == p.node {
		return false
	}
	p.node = node
	changes := make([]tracker.Change, 0, len(p.services))
	for name, svc := range p.services {
		changes = append(changes, tracker.Change{Name: name, New: svc})
	}
	p.Update(changes)
	return true
}

// Update plans the changed Services again. Applying the same changes twice changes nothing.
func (p *Plan) Update(changes []tracker.Change) Delta {
	var delta Delta
	before := map[tracker.ServicePortName]*ServicePort{} // the decisions that end
	for _, change := range changes {
		old := p.services[change.Name]
		if change.New == nil {
			delete(p.services, change.Name)
		} else {
			p.services[change.Name] = change.New
		}
		delta.Removed = append(delta.Removed, p.remove(old, change.New, before)...)
		delta.Changed = append(delta.Changed, p.decideAll(change.New, before)...)
	}
	slices.SortFunc(delta.Changed, compare)
	slices.SortFunc(delta.Removed, compareNames)
	p.reorder(delta.Changed, before)
	return delta
}

// remove forgets the ports of old that its successor does not have.
func (p *Plan) remove(old, successor *tracker.Service, before map[tracker.ServicePortName]*ServicePort) []tracker.ServicePortName {
	var removed []tracker.ServicePortName
	if old == nil {
		return nil
	}
	for _, port := range old.Ports {
		kept := successor != nil && slices.ContainsFunc(successor.Ports, func(q *tracker.ServicePort) bool { return q.Name == port.Name })
		if planned := p.ports[port.Name]; planned != nil && !kept {
			p.known -= planned.Known
			before[port.Name] = planned
			delete(p.ports, port.Name)
			removed = append(removed, port.Name)
		}
	}
	return removed
}

func (p *Plan) decideAll(svc *tracker.Service, before map[tracker.ServicePortName]*ServicePort) []*ServicePort {
	if svc == nil {
		return nil
	}
	planned := make([]*ServicePort, 0, len(svc.Ports))
	for _, port := range svc.Ports {
		decided := decide(port, svc.Created, svc.Endpoints[port.Name.PortKey], p.node)
		if old := p.ports[port.Name]; old != nil {
			p.known -= old.Known
			before[port.Name] = old
		}
		p.known += decided.Known
		p.ports[port.Name] = decided
		planned = append(planned, decided)
	}
	return planned
}

func decide(port *tracker.ServicePort, created time.Time, endpoints []*tracker.Endpoint, node Node) *ServicePort {
	d := &ServicePort{ServicePort: port, Created: created, Known: len(endpoints)}
	if port.UsesClusterEndpoints() {
		d.Cluster = clusterEndpoints(endpoints, node)
		d.Reachable = d.Cluster
	}
	if port.UsesLocalEndpoints() {
		d.Local = localEndpoints(endpoints)
		d.Reachable = union(d.Cluster, d.Local)
	}
	d.HasEndpoints = slices.ContainsFunc(endpoints, func(ep *tracker.Endpoint) bool { return ep.Ready || fallback(ep) })
	return d
}

// manyChanges is when sorting everything again is cheaper than moving the tail of the order for every change.
const manyChanges = 64

// reorder brings the order up to date with ports: it holds the decisions that end, and not yet those that changed.
func (p *Plan) reorder(changed []*ServicePort, before map[tracker.ServicePortName]*ServicePort) {
	if len(changed)+len(before) > manyChanges {
		p.order = p.order[:0]
		for _, port := range p.ports {
			p.order = append(p.order, port)
		}
		slices.SortFunc(p.order, compare)
		return
	}
	for _, port := range changed {
		// Most often only the decision is another, and the place the same.
		if old := before[port.Name]; old != nil && compare(old, port) == 0 {
			i, _ := slices.BinarySearchFunc(p.order, old, compare)
			p.order[i] = port
			delete(before, port.Name)
		}
	}
	for _, old := range before {
		// By its old age: a Service that was made again has another, and with it another place.
		if i, found := slices.BinarySearchFunc(p.order, old, compare); found {
			p.order = slices.Delete(p.order, i, i+1)
		}
	}
	for _, port := range changed {
		if i, found := slices.BinarySearchFunc(p.order, port, compare); !found {
			p.order = slices.Insert(p.order, i, port)
		}
	}
}

func compare(a, b *ServicePort) int {
	return cmp.Or(a.Created.Compare(b.Created), compareNames(a.Name, b.Name))
}

func compareNames(a, b tracker.ServicePortName) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.NamespacedName.Name, b.NamespacedName.Name),
		strings.Compare(a.Port(), b.Port()),
		strings.Compare(string(a.Protocol), string(b.Protocol)))
}

func compareText(ep *tracker.Endpoint, text string) int { return strings.Compare(ep.Text, text) }
