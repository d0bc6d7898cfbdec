package flow

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/subject"
	"synclab/bench/subject/visible"
	"synclab/bench/traffic"
	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// Sends reports whether a step needs pods that send flows and pods that answer.
func Sends(step scenarios.Step) bool {
	return step.Traffic != nil || step.Connections != nil || step.Probe != nil && (step.Probe.Method == methodFlow || step.Probe.Kind == kindVerdicts)
}

// ShownByPackets reports whether packets may have to show what a subject does: perhaps no reader knows its rules.
func ShownByPackets(s subject.Spec) bool { return s.RulesetReader == "" }

// MayWatch reports whether packets may have to show what a subject of the repetition does.
func (r *Flows) MayWatch() bool {
	return ShownByPackets(r.About) || slices.ContainsFunc(r.Scenario.Steps, func(step scenarios.Step) bool {
		return step.Migrate != nil && step.Migrate.To != "" && ShownByPackets(subject.Named(step.Migrate.To))
	})
}

// methodFlow is the probe's method that sends flows of pods.
const methodFlow = "flow"

// kindVerdicts is the kind of probe that sends packets to every address.
const kindVerdicts = "verdicts"

// clientsPerFamily is the number of client addresses. Each has some 64,000 source ports, and conntrack keeps a UDP flow
// for up to two minutes. With so many, even the highest rate of a scenario reuses a port only after that time.
const clientsPerFamily = 32

// ConnectPods makes client pods and all other pods, in place of the device that drops the packets to pods.
func (r *Flows) ConnectPods(objects *sim.Objects, all []netip.Prefix) error {
	ranges := podRanges(r.Scenario.Shape, objects, r.Families)
	sink := slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool {
		return slices.ContainsFunc(ranges, func(q netip.Prefix) bool { return q.Bits() <= p.Bits() && q.Contains(p.Addr()) })
	})
	r.Outside = map[corev1.IPFamily]netip.Addr{}
	for _, family := range r.Families {
		clients, err := clientPods(objects, ranges, family, r.MayWatch())
		if err != nil && !slices.ContainsFunc(r.Scenario.Steps, Sends) {
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("packets cannot show what %s does: %v", r.Subject, err)})
			r.watching = nil
			return r.Lab.Connect(netns.Topology{Node: r.Node, Sink: all})
		}
		if err != nil {
			return err
		}
		if r.MayWatch() { // the stream and the watcher must not send from the same ports
			half := len(clients) / 2
			r.watching, clients = append(r.watching, clients[:half]...), clients[half:]
		}
		r.Clients = append(r.Clients, clients...)
		r.Outside[family] = outsideOf(objects, family, ranges)
	}
	if err := r.Lab.Connect(netns.Topology{Node: r.Node, Sink: sink}); err != nil {
		return err
	}
	var err error
	r.Rooms, err = r.Lab.ConnectPods(netns.PodTopology{Clients: slices.Concat(r.Clients, r.watching), Outside: slices.Collect(maps.Values(r.Outside)), Ranges: ranges, Network: r.Scenario.Shape.PodNetwork})
	return err
}

// Watched returns how to watch the subject by packets, whose pods then answer; nil if its rules are known.
func (r *Flows) Watched(ctx context.Context) (*visible.PacketOptions, error) {
	if len(r.watching) == 0 || !ShownByPackets(r.About) {
		return nil, nil
	}
	if err := r.StartPods(ctx); err != nil {
		return nil, err
	}
	return &visible.PacketOptions{Namespace: r.Rooms.Client, Clients: r.watching, Node: r.Node}, nil
}

// podRanges returns the ranges that cover every endpoint.
func podRanges(shape scenarios.Shape, o *sim.Objects, families []corev1.IPFamily) []netip.Prefix {
	pods := shape
	pods.ServiceCIDRs = nil
	all := pass.Sinks(pods, &sim.Objects{Slices: o.Slices}, families)
	return slices.DeleteFunc(slices.Clone(all), func(p netip.Prefix) bool { // inside of another
		return slices.ContainsFunc(all, func(q netip.Prefix) bool { return q.Bits() < p.Bits() && q.Contains(p.Addr()) })
	})
}

// HasRoom returns an error if a cluster has no free addresses for client pods: for two streams if packets may have to show
// what a subject does.
func HasRoom(shape scenarios.Shape, o *sim.Objects, families []corev1.IPFamily, watches bool) error {
	ranges := podRanges(shape, o, families)
	for _, family := range families {
		if _, err := clientPods(o, ranges, family, watches); err != nil {
			return err
		}
	}
	return nil
}

// outsideOf returns an address of documentation (RFC 5737, RFC 3849) that the cluster does not use, and that is in none of
// its ranges.
func outsideOf(o *sim.Objects, family corev1.IPFamily, ranges []netip.Prefix) netip.Addr {
	first := []string{"203.0.113.9", "198.51.100.9", "192.0.2.9"}
	if family == corev1.IPv6Protocol {
		first = []string{"2001:db8::9", "2001:db8:ffff::9"}
	}
	used := sim.AddressesOf(o)
	for _, text := range first {
		addr := netip.MustParseAddr(text)
		for used[addr] {
			addr = addr.Next()
		}
		if !slices.ContainsFunc(ranges, func(p netip.Prefix) bool { return p.Contains(addr) }) {
			return addr
		}
	}
	return sim.FreeRange(o, family, ranges...).Addr().Next()
}

// clientPods returns free addresses of the node's pod range, the last ones first. If the node's range is not known, it
// uses any pod range. For two streams it wants four.
func clientPods(o *sim.Objects, ranges []netip.Prefix, family corev1.IPFamily, watches bool) ([]netip.Addr, error) {
	least := 2
	if watches {
		least = 4
	}
	var from []netip.Prefix
	if len(o.Nodes) > 0 {
		for _, cidr := range o.Nodes[0].Spec.PodCIDRs {
			if prefix, ok := sim.ParsePrefix(cidr); ok {
				from = append(from, prefix)
			}
		}
	}
	used := sim.AddressesOf(o)
	var clients []netip.Addr
	for _, prefix := range append(from, ranges...) {
		if inet.FamilyOf(prefix.Addr()) != family {
			continue
		}
		most := clientsPerFamily
		if host := prefix.Addr().BitLen() - prefix.Bits(); host < 8 {
			most = 1 << max(host-2, 0) // later pods need the rest
		}
		for addr := sim.LastOf(prefix).Prev(); len(clients) < most && prefix.Contains(addr); addr = addr.Prev() {
			if !used[addr] {
				clients = append(clients, addr)
			}
		}
		if len(clients) >= least {
			return clients, nil
		}
	}
	return nil, fmt.Errorf("no %s addresses left for client pods in the node's pod range or in %v", family, ranges)
}

// StartPods runs the process that answers for all pods, on every port of an endpoint.
func (r *Flows) StartPods(ctx context.Context) error {
	ports := r.newPorts(r.World.Objects().Slices...)
	if r.pods != nil {
		return r.pods.Listen(ports)
	}
	var err error
	r.pods, err = traffic.Start(ctx, r.Rooms, ports)
	return err
}

// Loop runs a closed loop of connections from the client pods of a family. No stream must run.
func (r *Flows) Loop(family corev1.IPFamily, o traffic.Loop) (traffic.Looped, error) {
	o.From = slices.DeleteFunc(slices.Clone(r.Clients), func(addr netip.Addr) bool { return inet.FamilyOf(addr) != family })
	return r.pods.Loop(o)
}

// Place makes the pods' process answer on these CPUs only.
func (r *Flows) Place(cpus []int) error { return r.pods.Place(cpus) }

// newPorts returns the endpoints' ports without a listener. From then on they count as having one.
func (r *Flows) newPorts(endpoints ...*discoveryv1.EndpointSlice) []traffic.Port {
	if r.ports == nil {
		r.ports = map[uint16]bool{}
	}
	var ports []traffic.Port
	for _, slice := range endpoints {
		for _, port := range slice.Ports {
			if port.Port == nil || *port.Port <= 0 || r.ports[uint16(*port.Port)] {
				continue
			}
			r.ports[uint16(*port.Port)] = true
			for _, family := range r.Families {
				for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
					ports = append(ports, traffic.Port{Family: family, Protocol: protocol, Number: uint16(*port.Port)})
				}
			}
		}
	}
	return ports
}
