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
	tally    tally
}

// tally is what sums say of all Service ports.
type tally struct {
	known                      int // endpoints of any condition
	lackInternal, lackExternal int // ports that their traffic policy leaves without endpoints
}

// count adds a decision, or takes it away with sign -1.
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

// Ports gives all planned Service ports, the oldest first. The slice must not be changed and is valid until the next
// Update.
func (p *Plan) Ports() []*ServicePort { return p.order }

// Port gives the decision for one Service port, nil if there is none.
func (p *Plan) Port(name tracker.ServicePortName) *ServicePort { return p.ports[name] }

// Services gives the tracked state behind the plan. It must not be changed.
func (p *Plan) Services() map[types.NamespacedName]*tracker.Service { return p.services }

// KnownEndpoints is the number of endpoints of all Service ports, usable or not.
func (p *Plan) KnownEndpoints() int { return p.tally.known }

// NoLocalEndpoints is the number of Service ports that have endpoints, but none on this node although their internal,
// or their external, traffic must stay on it.
func (p *Plan) NoLocalEndpoints() (internal, external int) {
	return p.tally.lackInternal, p.tally.lackExternal
}

// SetNode replans everything for another node name or zone. It reports whether that was needed.
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

// Update plans the changed Services again. Applying the same changes twice changes nothing. It costs what changed, but
// for moving what comes after a Service port that is new or gone in the order.
func (p *Plan) Update(changes []tracker.Change) Delta {
	var delta Delta
	var gone, added []*ServicePort // from and to the order
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
			case Compare(before, now) == 0: // most often only the decision is another, and the place the same
				i, _ := slices.BinarySearchFunc(p.order, before, Compare)
				p.order[i] = now
			default: // a Service that was made again has another age, and with it another place
				gone, added = append(gone, before), append(added, now)
			}
		}
	}
	slices.SortFunc(delta.Changed, Compare)
	slices.SortFunc(delta.Removed, CompareNames)
	p.order = splice(p.order, gone, added)
	return delta
}

// remove forgets the ports of old that its successor does not have.
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

// splice takes some ports out of the order and puts others in. What stays is moved in blocks, at most twice.
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
	end := len(order) // of what has not moved yet, from the back to the front
	order = slices.Grow(order, len(added))[:len(order)+len(added)]
	for k, port := range slices.Backward(added) {
		i, _ := slices.BinarySearchFunc(order[:end], port, Compare)
		copy(order[i+k+1:], order[i:end])
		order[i+k] = port
		end = i
	}
	return order
}

// Compare is the order of Service ports: the oldest first, and by name where they are of one age.
func Compare(a, b *ServicePort) int {
	return cmp.Or(a.Created.Compare(b.Created), CompareNames(a.Name, b.Name))
}

// CompareNames is the order of the names of Service ports.
func CompareNames(a, b tracker.ServicePortName) int {
	return cmp.Or(
		strings.Compare(a.Namespace, b.Namespace),
		strings.Compare(a.NamespacedName.Name, b.NamespacedName.Name),
		strings.Compare(a.Port(), b.Port()),
		strings.Compare(string(a.Protocol), string(b.Protocol)))
}

func compareText(ep *tracker.Endpoint, text string) int { return strings.Compare(ep.Text, text) }
