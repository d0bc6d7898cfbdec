package invariants

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/plan"
	"synclab/proxier/walk"
)

// Refused is a packet that was really sent to a Service port without endpoints, from the node.
type Refused struct {
	Service string
	To      netip.AddrPort
	// Err is what the socket said: ECONNREFUSED, once the ICMP answer is there.
	Err    error
	Waited time.Duration
}

// refusedPromptly is how long an ICMP answer of the node itself may take: it comes within the system call.
const refusedPromptly = time.Second

// checkRefused: a Service port without endpoints is rejected, and one that has some, but none where its traffic must
// stay, drops what comes.
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

// refusedPackets are of machines outside, to every address of Service ports that have no endpoint for them.
func (e *Evidence) refusedPackets(family corev1.IPFamily, world walk.World) []refusedPacket {
	ports := e.plan(family).Ports()
	claims := claimed(ports)
	outside := walk.DefaultSources(world, family == corev1.IPv4Protocol)[3]
	var all []refusedPacket
	for _, p := range ports {
		add := func(what string, addr netip.Addr, port uint16, want walk.Kind) {
			if claims[claim{addr, port, p.Name.Protocol}] > 1 {
				return // another Service's rules may come first
			}
			to := netip.AddrPortFrom(addr, port)
			all = append(all, refusedPacket{service: serviceOf(p), want: want, Packet: walk.Packet{
				What: serviceOf(p) + " " + what, Input: outside.Input, Protocol: protocolOf(p.Name.Protocol),
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
			if len(p.SourceRanges) == 0 { // else who is outside of them need not be told
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

// clientPort is none that rules ask for.
const clientPort = 45678

// claim is an address and port that a Service port wants; without an address, a NodePort.
type claim struct {
	addr     netip.Addr
	port     uint16
	protocol corev1.Protocol
}

// claimed counts who wants each.
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

func protocolOf(p corev1.Protocol) walk.Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return walk.UDP
	case corev1.ProtocolSCTP:
		return walk.SCTP
	}
	return walk.TCP
}

// Refusing gives a UDP Service port that has no endpoints at all, and its cluster IP; false: there is none.
func (e *Evidence) Refusing(family corev1.IPFamily) (service string, to netip.AddrPort, ok bool) {
	for _, p := range e.plan(family).Ports() {
		if p.Name.Protocol == corev1.ProtocolUDP && !p.HasEndpoints {
			return serviceOf(p), netip.AddrPortFrom(p.ClusterIP, p.Port), true
		}
	}
	return "", netip.AddrPort{}, false
}

// serviceOf names a Service port in records.
func serviceOf(port *plan.ServicePort) string { return port.Name.String() }
