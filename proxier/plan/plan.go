package plan

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
)

// ServicePort is the desired state of one Service port. Immutable.
type ServicePort struct {
	*tracker.ServicePort
	Created time.Time
	// Cluster are the endpoints for traffic that may go to any node; nil if the port has no such traffic.
	Cluster []*tracker.Endpoint
	// Local are the endpoints for traffic that must stay on this node; nil if the port has no such traffic.
	Local []*tracker.Endpoint
	// Reachable is the union of Cluster and Local, sorted.
	Reachable []*tracker.Endpoint
	// HasEndpoints: the cluster has a usable endpoint. Without one, traffic is rejected. If there is one, but not for
	// this traffic, the traffic is dropped, because the sender may succeed at another node.
	HasEndpoints bool
	// Known is the number of endpoints of any condition.
	Known int
}

// HasInternalEndpoints reports whether traffic to the cluster IP has an endpoint.
func (p *ServicePort) HasInternalEndpoints() bool {
	return p.HasEndpoints && (!p.InternalPolicyLocal || len(p.Local) > 0)
}

// HasExternalEndpoints reports whether traffic from outside has an endpoint.
func (p *ServicePort) HasExternalEndpoints() bool {
	return p.HasEndpoints && (!p.ExternalPolicyLocal || len(p.Local) > 0)
}

// Delta is the result of an Update.
type Delta struct {
	Changed []*ServicePort            // new or decided again, in plan order
	Removed []tracker.ServicePortName // sorted
}

// Plan holds the desired state of all Services of one family.
type Plan struct {
	node     Node
	services map[types.NamespacedName]*tracker.Service
	ports    map[tracker.ServicePortName]*ServicePort
	order    []*ServicePort
	tally    tally
}

// tally holds sums over all Service ports.
type tally struct {
	known                      int // endpoints of any condition
	lackInternal, lackExternal int // ports with endpoints, but without any that their traffic policy allows
}

// count adds a decision, or subtracts it with sign -1.
func (t *tally) count(port *ServicePort, sign int) {
	t.known += sign * port.Known
	if !port.HasEndpoints || !port.UsesLocalEndpoints() || len(port.Local) > 0 {
		return
	}
	if port.InternalPolicyLocal {
		t.lackInternal += sign
	}
	if port.ExternalPolicyLocal {
		t.lackExternal += sign
	}
}

// New makes an empty plan for a node.
func New(node Node) *Plan {
	return &Plan{
		node:     node,
		services: map[types.NamespacedName]*tracker.Service{},
		ports:    map[tracker.ServicePortName]*ServicePort{},
	}
}

// Ports returns all planned Service ports, the oldest first. The slice must not be changed. It is valid until the next
// Update.
func (p *Plan) Ports() []*ServicePort { return p.order }

// Port returns the decision for one Service port; nil: there is none.
func (p *Plan) Port(name tracker.ServicePortName) *ServicePort { return p.ports[name] }

// Services returns the tracked state behind the plan. It must not be changed.
func (p *Plan) Services() map[types.NamespacedName]*tracker.Service { return p.services }

// KnownEndpoints is the number of endpoints of all Service ports, usable or not.
func (p *Plan) KnownEndpoints() int { return p.tally.known }

// NoLocalEndpoints returns the number of Service ports that have endpoints, but none on this node, although their
// internal or external traffic must stay on it.
func (p *Plan) NoLocalEndpoints() (internal, external int) {
	return p.tally.lackInternal, p.tally.lackExternal
}

// SetNode plans everything again for a new node name or zone. It reports whether the node differs.
func (p *Plan) SetNode(node Node) bool {
	if node == p.node {
		return false
	}
	p.node = node
	for i, before := range p.order {
		svc := p.services[before.Name.NamespacedName]
		now := decide(before.ServicePort, before.Created, svc.EndpointsOf(before.Name.PortKey), node)
		p.tally.count(before, -1)
		p.tally.count(now, 1)
		p.ports[before.Name], p.order[i] = now, now
	}
	return true
}

// Update plans the changed Services again. Applying the same changes twice has no further effect. The cost grows with
// the changes, except for moving the entries after a new or removed Service port in the order.
func (p *Plan) Update(changes []tracker.Change) Delta {
	var delta Delta
	var gone, added []*ServicePort // entries to remove from and to add to the order
	for _, change := range changes {
		old := p.services[change.Name]
		if change.New == nil {
			delete(p.services, change.Name)
		} else {
			p.services[change.Name] = change.New
		}
		for _, port := range p.remove(old, change.New) {
			delta.Removed = append(delta.Removed, port.Name)
			gone = append(gone, port)
		}
		if change.New == nil {
			continue
		}
		for _, port := range change.New.Ports {
			before, now := p.decide(port, change.New)
			delta.Changed = append(delta.Changed, now)
			switch {
			case before == nil:
				added = append(added, now)
			case Compare(before, now) == 0: // usual case: only the decision differs, the position does not
				i, _ := slices.BinarySearchFunc(p.order, before, Compare)
				p.order[i] = now
			default: // a recreated Service has another age, and so another position
				gone, added = append(gone, before), append(added, now)
			}
		}
	}
	slices.SortFunc(delta.Changed, Compare)
	slices.SortFunc(delta.Removed, CompareNames)
	p.order = splice(p.order, gone, added)
	return delta
}

// remove deletes the ports of old that successor does not have.
func (p *Plan) remove(old, successor *tracker.Service) []*ServicePort {
	if old == nil {
		return nil
	}
	var removed []*ServicePort
	for _, port := range old.Ports {
		kept := successor != nil && slices.ContainsFunc(successor.Ports, func(q *tracker.ServicePort) bool { return q.Name == port.Name })
		if planned := p.ports[port.Name]; planned != nil && !kept {
			p.tally.count(planned, -1)
			delete(p.ports, port.Name)
			removed = append(removed, planned)
		}
	}
	return removed
}

// decide replaces the decision for one port.
func (p *Plan) decide(port *tracker.ServicePort, svc *tracker.Service) (before, now *ServicePort) {
	before, now = p.ports[port.Name], decide(port, svc.Created, svc.EndpointsOf(port.Name.PortKey), p.node)
	if before != nil {
		p.tally.count(before, -1)
	}
	p.tally.count(now, 1)
	p.ports[port.Name] = now
	return before, now
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

// splice removes some ports from the order and inserts others. It moves the remaining ports in blocks, at most twice.
func splice(order, gone, added []*ServicePort) []*ServicePort {
	slices.SortFunc(gone, Compare)
	read, written := 0, 0
	for _, port := range gone {
		i, _ := slices.BinarySearchFunc(order[read:], port, Compare)
		written += copy(order[written:], order[read:read+i])
		read += i + 1
	}
	written += copy(order[written:], order[read:])
	clear(order[written:])
	order = order[:written]

	slices.SortFunc(added, Compare)
	end := len(order) // the end of the part that has not moved yet, from back to front
	order = slices.Grow(order, len(added))[:len(order)+len(added)]
	for k, port := range slices.Backward(added) {
		i, _ := slices.BinarySearchFunc(order[:end], port, Compare)
		copy(order[i+k+1:], order[i:end])
		order[i+k] = port
		end = i
	}
	return order
}

// Compare orders Service ports: the oldest first, then by name.
func Compare(a, b *ServicePort) int {
	return cmp.Or(a.Created.Compare(b.Created), CompareNames(a.Name, b.Name))
}

// CompareNames orders the names of Service ports.
func CompareNames(a, b tracker.ServicePortName) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.NamespacedName.Name, b.NamespacedName.Name),
		strings.Compare(a.Port(), b.Port()),
		strings.Compare(string(a.Protocol), string(b.Protocol)))
}

func compareText(ep *tracker.Endpoint, text string) int { return strings.Compare(ep.Text, text) }
