package bench

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/netns"
	"synclab/bench/traffic"
	"synclab/scenarios"
	"synclab/sim"
)

// sendsFlows says whether a scenario has pods that send, and others that answer.
func sendsFlows(s *scenarios.Scenario) bool {
	return slices.ContainsFunc(s.Steps, func(step scenarios.Step) bool {
		return step.Traffic != nil || step.Probe != nil && step.Probe.Method == methodFlow
	})
}

// methodFlow is the probe's method that sends flows of pods.
const methodFlow = "flow"

// clientsPerFamily: each address has some 64,000 source ports, and conntrack remembers a UDP flow for up to two minutes. With
// so many, the highest rate that a scenario may ask for takes as long to come to a port again.
const clientsPerFamily = 32

// connectPods makes pods of the node, and of all others, in place of the device that swallows what is sent to them.
func (r *repetition) connectPods(objects *sim.Objects, all []netip.Prefix) error {
	ranges := podRanges(r.Scenario.Shape, objects, r.families)
	sink := slices.DeleteFunc(all, func(p netip.Prefix) bool {
		return slices.ContainsFunc(ranges, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	})
	if err := r.lab.Connect(netns.Topology{Node: r.node, Sink: sink}); err != nil {
		return err
	}
	for _, family := range r.families {
		clients, err := clientPods(objects, ranges, family)
		if err != nil {
			return err
		}
		r.flows.clients = append(r.flows.clients, clients...)
	}
	var err error
	r.flows.rooms, err = r.lab.ConnectPods(netns.PodTopology{Clients: r.flows.clients, Ranges: ranges})
	return err
}

// podRanges are the ranges that hold every endpoint.
func podRanges(shape scenarios.Shape, o *sim.Objects, families []corev1.IPFamily) []netip.Prefix {
	pods := shape
	pods.ServiceCIDRs = nil
	all := sinks(pods, &sim.Objects{Slices: o.Slices}, families)
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { // inside of another
		return slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) })
	})
}

// clientPods are addresses of the node's own pod range, the last ones first, that no endpoint has; where it is not known,
// of any pod range.
func clientPods(o *sim.Objects, ranges []netip.Prefix, family corev1.IPFamily) ([]netip.Addr, error) {
	var from []netip.Prefix
	if len(o.Nodes) > 0 {
		for _, cidr := range o.Nodes[0].Spec.PodCIDRs {
			if prefix, ok := sim.ParsePrefix(cidr); ok {
				from = append(from, prefix)
			}
		}
	}
	taken := map[netip.Addr]bool{}
	for _, slice := range o.Slices {
		for _, ep := range slice.Endpoints {
			for _, text := range ep.Addresses {
				if addr, ok := sim.ParseAddr(text); ok {
					taken[addr] = true
				}
			}
		}
	}
	var clients []netip.Addr
	for _, prefix := range append(from, ranges...) {
		if familyOf(prefix.Addr()) != family {
			continue
		}
		most := clientsPerFamily
		if host := prefix.Addr().BitLen() - prefix.Bits(); host < 8 {
			most = 1 << max(host-2, 0) // pods that are still to come need the rest
		}
		for addr := lastOf(prefix).Prev(); len(clients) < most && prefix.Contains(addr); addr = addr.Prev() {
			if !taken[addr] {
				clients = append(clients, addr)
			}
		}
		if len(clients) >= 2 {
			return clients, nil
		}
	}
	return nil, fmt.Errorf("no %s addresses left for client pods in the node's pod range or in %v", family, ranges)
}

// startPods runs what answers for all pods, on every port that endpoints have.
func (r *repetition) startPods(ctx context.Context) error {
	ports := r.newPorts(r.world.Objects().Slices...)
	if r.flows.pods != nil {
		return r.flows.pods.Listen(ports)
	}
	var err error
	r.flows.pods, err = traffic.Start(ctx, r.flows.rooms, ports)
	return err
}

// newPorts are the ports of endpoints that nobody listens on so far. From then on they count as listened on.
func (r *repetition) newPorts(endpoints ...*discoveryv1.EndpointSlice) []traffic.Port {
	if r.flows.ports == nil {
		r.flows.ports = map[uint16]bool{}
	}
	var ports []traffic.Port
	for _, slice := range endpoints {
		for _, port := range slice.Ports {
			if port.Port == nil || *port.Port <= 0 || r.flows.ports[uint16(*port.Port)] {
				continue
			}
			r.flows.ports[uint16(*port.Port)] = true
			for _, family := range r.families {
				for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					ports = append(ports, traffic.Port{Family: family, Protocol: protocol, Number: uint16(*port.Port)})
				}
			}
		}
	}
	return ports
}
