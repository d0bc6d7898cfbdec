package invariants

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/verify/walk"
	"synclab/proxier/plan"
)

// Refused is the result of a real packet from the node to a Service port without endpoints.
type Refused struct {
	Service string
	To      netip.AddrPort
	// Err is the socket's error: ECONNREFUSED after an ICMP answer.
	Err    error
	Waited time.Duration
}

// refusedPromptly bounds the time of an ICMP answer from the node itself, which arrives within the system call.
const refusedPromptly = time.Second

// checkRefused: packets to a Service port without endpoints are rejected. Packets are dropped if the port has
// endpoints, but none that its traffic policy allows.
func checkRefused(ctx context.Context, e *Evidence, r *report) error {
	world, err := e.world()
	if err != nil {
		return err
	}
	for _, family := range e.Families {
		w := walk.New(e.Rules[family], world)
		for _, packet := range e.refusedPackets(family, world) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			v, err := w.Walk(&packet.Packet)
			if err != nil {
				return err
			}
			r.checked++
			if len(v.Outcomes) != 1 || v.Outcomes[0].Kind != packet.want {
				r.violated(packet.service, "%s: %s: %s, not %s", family, &packet.Packet, v, packet.want)
			}
		}
	}
	for _, sent := range e.Refused {
		r.checked++
		switch {
		case !errors.Is(sent.Err, unix.ECONNREFUSED):
			r.violated(sent.Service, "a UDP packet to %s, which has no endpoints: %v, not refused", sent.To, sent.Err)
		case sent.Waited > refusedPromptly:
			r.violated(sent.Service, "a UDP packet to %s, which has no endpoints: refused after %v", sent.To, sent.Waited)
		}
	}
	return nil
}

type refusedPacket struct {
	walk.Packet
	service string
	want    walk.Kind
}

// refusedPackets returns packets from outside hosts to every address of Service ports without an endpoint for them.
func (e *Evidence) refusedPackets(family corev1.IPFamily, world walk.NodeAddresses) []refusedPacket {
	ports := e.plan(family).Ports()
	claims := claimed(ports)
	outside := walk.DefaultSources(world, family == corev1.IPv4Protocol)[3]
	var all []refusedPacket
	for _, p := range ports {
		add := func(what string, addr netip.Addr, port uint16, want walk.Kind) {
			if claims[claim{addr, port, p.Name.Protocol}] > 1 {
				return // another Service port's rules may come first
			}
			to := netip.AddrPortFrom(addr, port)
			all = append(all, refusedPacket{service: serviceOf(p), want: want, Packet: walk.Packet{
				What: serviceOf(p) + " " + what, Input: outside.Input, Protocol: walk.ProtocolOf(p.Name.Protocol),
				Source: netip.AddrPortFrom(outside.Addr, clientPort), Destination: to,
			}})
		}
		want := func(has, somewhere bool) (walk.Kind, bool) {
			if somewhere {
				return walk.Drop, !has
			}
			return walk.Reject, true
		}
		if kind, none := want(p.HasInternalEndpoints(), p.HasEndpoints); none {
			add("cluster IP", p.ClusterIP, p.Port, kind)
		}
		kind, none := want(p.HasExternalEndpoints(), p.HasEndpoints)
		if !none {
			continue
		}
		for _, addr := range p.ExternalIPs {
			add("external IP", addr, p.Port, kind)
		}
		for _, addr := range p.LoadBalancerVIPs {
			if len(p.SourceRanges) == 0 { // a load balancer may drop packets from outside its source ranges
				add("load balancer", addr, p.Port, kind)
			}
		}
		for _, addr := range e.Options.NodeIPs {
			if p.NodePort != 0 && addr.Is4() == (family == corev1.IPv4Protocol) && len(e.Options.Config.NodePortAddresses) == 0 {
				add("NodePort", addr, p.NodePort, kind)
			}
		}
	}
	return all
}

// clientPort is a port that no rule matches.
const clientPort = 45678

// claim is a frontend of a Service port: address and port; without an address, a NodePort.
type claim struct {
	addr     netip.Addr
	port     uint16
	protocol corev1.Protocol
}

// claimed counts the Service ports of each frontend.
func claimed(ports []*plan.ServicePort) map[claim]int {
	counts := map[claim]int{}
	for _, p := range ports {
		for _, addr := range append(append([]netip.Addr{p.ClusterIP}, p.ExternalIPs...), p.LoadBalancerVIPs...) {
			counts[claim{addr, p.Port, p.Name.Protocol}]++
		}
		if p.NodePort != 0 {
			counts[claim{netip.Addr{}, p.NodePort, p.Name.Protocol}]++
		}
	}
	return counts
}

// Refusing returns a UDP Service port without any endpoint, and its cluster IP; false if there is none.
func (e *Evidence) Refusing(family corev1.IPFamily) (service string, to netip.AddrPort, ok bool) {
	for _, p := range e.plan(family).Ports() {
		if p.Name.Protocol == corev1.ProtocolUDP && !p.HasEndpoints {
			return serviceOf(p), netip.AddrPortFrom(p.ClusterIP, p.Port), true
		}
	}
	return "", netip.AddrPort{}, false
}

// serviceOf returns the name of a Service port in records.
func serviceOf(port *plan.ServicePort) string { return port.Name.String() }
