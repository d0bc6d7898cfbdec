package plan

import (
	"slices"

	"synclab/proxier/tracker"
)

// Node is the part of the node that endpoint selection uses.
type Node struct {
	Name string
	Zone string // label topology.kubernetes.io/zone; empty: unknown
}

// topology selects the ready endpoints whose hints name this node or zone.
type topology int

const (
	anywhere topology = iota
	sameNode
	sameZone
)

// topologyOf derives the mode from the hints alone, as KEP-4444 requires. Hints count only if every ready endpoint has
// them and one of them names this node or zone. Otherwise a half-updated set of slices would leave some nodes without
// endpoints.
func topologyOf(endpoints []*tracker.Endpoint, node Node) topology {
	ready, nodeHints, zoneHints := 0, 0, 0
	ourNode, ourZone := false, false
	for _, ep := range endpoints {
		if !ep.Ready {
			continue
		}
		ready++
		if nodes := ep.Nodes(); len(nodes) > 0 {
			nodeHints++
			ourNode = ourNode || slices.Contains(nodes, node.Name)
		}
		if zones := ep.Zones(); len(zones) > 0 {
			zoneHints++
			ourZone = ourZone || (node.Zone != "" && slices.Contains(zones, node.Zone))
		}
	}
	switch {
	case ready == 0:
		return anywhere
	case nodeHints == ready && ourNode:
		return sameNode
	case zoneHints == ready && ourZone:
		return sameZone
	}
	return anywhere
}

func (t topology) allows(ep *tracker.Endpoint, node Node) bool {
	switch t {
	case sameNode:
		return slices.Contains(ep.Nodes(), node.Name)
	case sameZone:
		return slices.Contains(ep.Zones(), node.Zone)
	}
	return true
}

// fallback: terminating endpoints serve while no endpoint is ready (KEP-1669).
func fallback(ep *tracker.Endpoint) bool { return ep.Serving && ep.Terminating }

// clusterEndpoints returns the ready endpoints that topology allows; if there are none, all that terminate and still
// serve.
func clusterEndpoints(endpoints []*tracker.Endpoint, node Node) []*tracker.Endpoint {
	mode := topologyOf(endpoints, node)
	chosen := choose(endpoints, func(ep *tracker.Endpoint) bool { return ep.Ready && mode.allows(ep, node) })
	if len(chosen) == 0 {
		chosen = choose(endpoints, fallback)
	}
	return chosen
}

// localEndpoints returns this node's ready endpoints; if there are none, its endpoints that terminate and still serve.
// Topology and the endpoints of other nodes do not matter.
func localEndpoints(endpoints []*tracker.Endpoint) []*tracker.Endpoint {
	chosen := choose(endpoints, func(ep *tracker.Endpoint) bool { return ep.Local && ep.Ready })
	if len(chosen) == 0 {
		chosen = choose(endpoints, func(ep *tracker.Endpoint) bool { return ep.Local && fallback(ep) })
	}
	return chosen
}

func choose(endpoints []*tracker.Endpoint, keep func(*tracker.Endpoint) bool) []*tracker.Endpoint {
	n := 0
	for _, ep := range endpoints {
		if keep(ep) {
			n++
		}
	}
	if n == len(endpoints) {
		return endpoints // usual case: share the slice
	}
	chosen := make([]*tracker.Endpoint, 0, n)
	for _, ep := range endpoints {
		if keep(ep) {
			chosen = append(chosen, ep)
		}
	}
	return chosen
}

// union merges two sorted lists of the same endpoints.
func union(a, b []*tracker.Endpoint) []*tracker.Endpoint {
	if len(a) == 0 {
		return b
	}
	merged := slices.Clone(a)
	for _, ep := range b {
		if i, found := slices.BinarySearchFunc(merged, ep.Text, compareText); !found {
			merged = slices.Insert(merged, i, ep)
		}
	}
	return merged
}
