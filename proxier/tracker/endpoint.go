package tracker

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Endpoint is one address and port that a Service port can go to. It is never changed after it was made.
type Endpoint struct {
	Addr netip.AddrPort
	// Text is "ip:port", IPv6 in brackets: sort key, part of chain names, and what DNAT takes.
	Text        string
	Local       bool // on this node
	Ready       bool
	Serving     bool
	Terminating bool
	// Zones and Nodes are the topology hints.
	Zones, Nodes []string
}

func (e *Endpoint) equal(f *Endpoint) bool {
	return e.Addr == f.Addr && e.Local == f.Local && e.Ready == f.Ready && e.Serving == f.Serving &&
		e.Terminating == f.Terminating && slices.Equal(e.Zones, f.Zones) && slices.Equal(e.Nodes, f.Nodes)
}

// slice is what one EndpointSlice object says, translated.
type slice struct {
	endpoints map[PortKey][]*Endpoint
	trigger   time.Time // its last-change-trigger-time annotation; zero when absent
}

// serviceOfSlice names the Service of a slice; false for slices that are not for this family's proxier.
func serviceOfSlice(obj *discoveryv1.EndpointSlice, family corev1.IPFamily) (types.NamespacedName, bool) {
	name := obj.Labels[discoveryv1.LabelServiceName]
	_, headless := obj.Labels[LabelHeadless]
	ok := name != "" && !headless && string(obj.AddressType) == string(family)
	return types.NamespacedName{Namespace: obj.Namespace, Name: name}, ok
}

func translateSlice(obj *discoveryv1.EndpointSlice, nodeName string) *slice {
	s := &slice{endpoints: make(map[PortKey][]*Endpoint, len(obj.Ports))}
	if at, err := time.Parse(time.RFC3339Nano, obj.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		s.trigger = at
	}
	for _, port := range obj.Ports {
		if port.Name == nil || port.Port == nil || *port.Port == 0 {
			continue
		}
		key := PortKey{Name: *port.Name, Protocol: corev1.ProtocolTCP}
		if port.Protocol != nil {
			key.Protocol = *port.Protocol
		}
		list := make([]*Endpoint, 0, len(obj.Endpoints))
		for i := range obj.Endpoints {
			if ep := translateEndpoint(&obj.Endpoints[i], uint16(*port.Port), nodeName); ep != nil {
				list = append(list, ep)
			}
		}
		s.endpoints[key] = append(s.endpoints[key], list...)
	}
	return s
}

func translateEndpoint(obj *discoveryv1.Endpoint, port uint16, nodeName string) *Endpoint {
	if len(obj.Addresses) == 0 {
		return nil
	}
	addr, ok := ParseAddr(obj.Addresses[0]) // the API says of the others: undefined, take the first
	if !ok {
		return nil
	}
	ep := &Endpoint{
		Addr:        netip.AddrPortFrom(addr, port),
		Local:       obj.NodeName != nil && *obj.NodeName == nodeName,
		Ready:       obj.Conditions.Ready == nil || *obj.Conditions.Ready,
		Serving:     obj.Conditions.Serving == nil || *obj.Conditions.Serving,
		Terminating: obj.Conditions.Terminating != nil && *obj.Conditions.Terminating,
	}
	ep.Text = ep.Addr.String()
	if obj.Hints != nil {
		for _, z := range obj.Hints.ForZones {
			ep.Zones = append(ep.Zones, z.Name)
		}
		for _, n := range obj.Hints.ForNodes {
			ep.Nodes = append(ep.Nodes, n.Name)
		}
	}
	return ep
}

// merge makes one sorted list a port of what all slices of a Service say. An address may stand in two slices, when
// it went from a terminating pod to a new one: the one that does not terminate wins, whatever the order (k/k#135593).
func merge(all map[string]*slice) map[PortKey][]*Endpoint {
	names := make([]string, 0, len(all))
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	merged := map[PortKey][]*Endpoint{}
	for _, name := range names {
		for key, list := range all[name].endpoints {
			if merged[key] == nil {
				merged[key] = slices.Clone(list)
				continue
			}
			merged[key] = append(merged[key], list...)
		}
	}
	for key, list := range merged {
		merged[key] = sortUnique(list)
	}
	return merged
}

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

func equalEndpoints(a, b map[PortKey][]*Endpoint) bool {
	if len(a) != len(b) {
		return false
	}
	for key, list := range a {
		other, ok := b[key]
		if !ok || !slices.EqualFunc(list, other, (*Endpoint).equal) {
			return false
		}
	}
	return true
}
