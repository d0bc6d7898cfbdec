package tracker

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/internal/inet"
)

// Endpoint is one address and port behind a Service port. Immutable.
type Endpoint struct {
	Addr netip.AddrPort
	// Text is "ip:port", IPv6 in brackets. It is the sort key, part of chain names, and the argument of DNAT.
	Text        string
	Local       bool // on this node
	Elsewhere   bool // on another node; neither: its node is not known
	Ready       bool
	Serving     bool
	Terminating bool
	// Hints are the topology hints; nil: none. Endpoints share them.
	Hints *Hints
}

// Hints are the zones and the nodes that should use an endpoint.
type Hints struct{ Zones, Nodes []string }

// Zones returns the zones of the hints.
func (e *Endpoint) Zones() []string {
	if e.Hints == nil {
		return nil
	}
	return e.Hints.Zones
}

// Nodes returns the nodes of the hints.
func (e *Endpoint) Nodes() []string {
	if e.Hints == nil {
		return nil
	}
	return e.Hints.Nodes
}

func (e *Endpoint) equal(f *Endpoint) bool {
	return e.Addr == f.Addr && e.Local == f.Local && e.Elsewhere == f.Elsewhere && e.Ready == f.Ready && e.Serving == f.Serving &&
		e.Terminating == f.Terminating && (e.Hints == f.Hints || slices.Equal(e.Zones(), f.Zones()) && slices.Equal(e.Nodes(), f.Nodes()))
}

// PortEndpoints are the endpoints of one Service port, sorted by Text, without duplicate addresses.
type PortEndpoints struct {
	PortKey
	List []*Endpoint
}

func equalEndpoints(a, b []PortEndpoints) bool {
	return slices.EqualFunc(a, b, func(p, q PortEndpoints) bool {
		return p.PortKey == q.PortKey && slices.EqualFunc(p.List, q.List, (*Endpoint).equal)
	})
}

// translateSlice returns the endpoints of a slice by port, sorted by port.
func translateSlice(obj *discoveryv1.EndpointSlice, nodeName string) []PortEndpoints {
	ports := make([]PortEndpoints, 0, len(obj.Ports))
	pool := hintsPool{}
	for _, port := range obj.Ports {
		if port.Name == nil || port.Port == nil || *port.Port == 0 {
			continue
		}
		p := PortEndpoints{PortKey: PortKey{Name: intern(*port.Name), Protocol: corev1.ProtocolTCP}}
		if port.Protocol != nil {
			p.Protocol = protocolOf(*port.Protocol)
		}
		p.List = translateEndpoints(obj, uint16(*port.Port), nodeName, &pool)
		ports = append(ports, p)
	}
	return joinPorts(ports)
}

// translateEndpoints makes all endpoints of a port in few allocations, because they are also freed together.
func translateEndpoints(slice *discoveryv1.EndpointSlice, port uint16, nodeName string, pool *hintsPool) []*Endpoint {
	objs := slice.Endpoints
	made := make([]Endpoint, 0, len(objs))
	const separator = " "
	const roughly = len("10.128.100.100:8080" + separator)
	texts := make([]byte, 0, roughly*len(objs))
	for i := range objs {
		if len(objs[i].Addresses) == 0 {
			continue
		}
		addr, ok := inet.ParseAddr(objs[i].Addresses[0]) // the API leaves the meaning of further addresses undefined: use the first
		if !ok || string(inet.FamilyOf(addr)) != string(slice.AddressType) {
			continue // of the other family: the API refuses it, and no rule could use it
		}
		ep := translateEndpoint(&objs[i], netip.AddrPortFrom(addr, port), nodeName)
		ep.Hints = pool.of(objs[i].Hints)
		texts = append(ep.Addr.AppendTo(texts), separator...)
		made = append(made, ep)
	}
	list, rest := make([]*Endpoint, len(made)), string(texts)
	for i := range made {
		made[i].Text, rest, _ = strings.Cut(rest, separator)
		list[i] = &made[i]
	}
	return sortUnique(list)
}

func translateEndpoint(obj *discoveryv1.Endpoint, addr netip.AddrPort, nodeName string) Endpoint {
	return Endpoint{
		Addr:        addr,
		Local:       obj.NodeName != nil && *obj.NodeName == nodeName,
		Elsewhere:   obj.NodeName != nil && *obj.NodeName != "" && *obj.NodeName != nodeName,
		Ready:       obj.Conditions.Ready == nil || *obj.Conditions.Ready,
		Serving:     obj.Conditions.Serving == nil || *obj.Conditions.Serving,
		Terminating: obj.Conditions.Terminating != nil && *obj.Conditions.Terminating,
	}
}

// hintsPool holds the hints of one slice so far. A slice has few different hints, each for many endpoints.
type hintsPool []*Hints

func (p *hintsPool) of(obj *discoveryv1.EndpointHints) *Hints {
	if obj == nil || len(obj.ForZones)+len(obj.ForNodes) == 0 {
		return nil
	}
	for _, h := range *p {
		if slices.EqualFunc(h.Zones, obj.ForZones, func(name string, z discoveryv1.ForZone) bool { return name == z.Name }) &&
			slices.EqualFunc(h.Nodes, obj.ForNodes, func(name string, n discoveryv1.ForNode) bool { return name == n.Name }) {
			return h
		}
	}
	h := &Hints{}
	for _, z := range obj.ForZones {
		h.Zones = append(h.Zones, intern(z.Name))
	}
	for _, n := range obj.ForNodes {
		h.Nodes = append(h.Nodes, intern(n.Name))
	}
	if len(h.Nodes) == 0 { // hints for nodes differ per endpoint, so a search would find none
		*p = append(*p, h)
	}
	return h
}

// merge combines the endpoints of a Service's slices into one list per port, in the order of the slices' names. Two
// slices may contain one address after it moved from a terminating pod to a new one. The endpoint that does not
// terminate wins, whatever the order (k/k#135593).
func merge(all []*SliceDigest) []PortEndpoints {
	if len(all) == 1 {
		return all[0].endpoints
	}
	var ports []PortEndpoints
	for _, s := range all {
		ports = append(ports, s.endpoints...)
	}
	return joinPorts(ports)
}

// joinPorts sorts by port and combines several lists of one port into one. It may reuse the ports, but not their lists.
func joinPorts(ports []PortEndpoints) []PortEndpoints {
	slices.SortStableFunc(ports, func(a, b PortEndpoints) int { return comparePorts(a.PortKey, b.PortKey) })
	joined := ports[:0]
	for first := 0; first < len(ports); {
		next, count := first, 0
		for ; next < len(ports) && ports[next].PortKey == ports[first].PortKey; next++ {
			count += len(ports[next].List)
		}
		p := ports[first]
		if next > first+1 {
			list := make([]*Endpoint, 0, count)
			for _, q := range ports[first:next] {
				list = append(list, q.List...)
			}
			p.List = sortUnique(list)
		}
		joined = append(joined, p)
		first = next
	}
	return joined
}

// sortUnique sorts the list and removes duplicate addresses. It keeps the last endpoint that does not terminate, or
// else the first one.
func sortUnique(list []*Endpoint) []*Endpoint {
	slices.SortStableFunc(list, func(a, b *Endpoint) int { return strings.Compare(a.Text, b.Text) })
	kept := list[:0]
	for _, ep := range list {
		last := len(kept) - 1
		switch {
		case last < 0 || kept[last].Addr != ep.Addr:
			kept = append(kept, ep)
		case !ep.Terminating:
			kept[last] = ep
		}
	}
	return kept
}
