package check

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/traffic"
	"synclab/bench/verify/invariants"
	"synclab/internal/inet"
	"synclab/proxier/config"
	"synclab/scenarios"
	"synclab/sim"
)

// delivery asks the kernel where packets to changed Services go, and with which source. Everything else that the lab knows
// of a subject's state comes from its own tracker, plan and readers of rules. Here, what is right comes from the objects of
// the API and the configuration alone, and what happens from the kernel's table of connections.

// delivered is the invariant: packets to changed Services go to the endpoints of the API's objects. Those from the node are
// masqueraded, unless it is one of the pods by its address; those from a pod only when they return to it.
const delivered = "I15"

// Bounds of the packets of a repetition.
const (
	mostServices = 40
	packetsEach  = 4
)

// deliveryBound is the longest wait until the subject has converged.
const deliveryBound = 10 * time.Second

// Changing keeps the names of the Services that change once a subject runs.
func (r *Checks) Changing(c mirror.Change) {
	name := mirror.ServiceOf(c.Object)
	if r.Host.Subject == nil || name.Name == "" {
		return
	}
	if r.changed == nil {
		r.changed = map[types.NamespacedName]bool{}
	}
	r.changed[name] = true
}

// Deliver sends a few packets to Services that changed, and records a violation for each that does not go where the API's
// objects say. It is for subjects whose rules carry packets from the node itself, when nothing disturbs them.
func (r *Checks) Deliver(ctx context.Context) error {
	disturbed := slices.ContainsFunc(r.Scenario.Steps, func(s scenarios.Step) bool { return s.Fault != nil || s.Migrate != nil })
	if r.Feed != raw.FeedAPI || r.Followed || disturbed || r.About.Carrier != subject.Rules || len(r.changed) == 0 || r.Host.Subject == nil {
		return nil
	}
	waiting, cancel := context.WithTimeout(ctx, deliveryBound)
	defer cancel()
	if r.InSync(ctx, waiting) != nil {
		return ctx.Err() // the steps have judged that
	}
	objects := r.World.Objects()
	node := ""
	var podCIDRs []string
	if len(objects.Nodes) > 0 {
		node, podCIDRs = pass.NodeName(objects), objects.Nodes[0].Spec.PodCIDRs
	}
	ports := deliverable(objects, r.Families, r.changed, node)
	result := invariants.Result{Invariant: delivered}
	for _, family := range r.Families {
		pods, err := config.DetectLocal(r.Config, family, podCIDRs)
		if err != nil {
			return err
		}
		of := slices.DeleteFunc(slices.Clone(ports), func(p servicePort) bool { return inet.FamilyOf(p.at.Addr()) != family })
		if err := deliver(of, family, sources{node, pods.Source, r.Settings().MasqueradeAll}, &result); err != nil {
			return fmt.Errorf("packets to changed Services: %w", err)
		}
	}
	r.RecordResults([]invariants.Result{result})
	return nil
}

// servicePort is a port of a cluster IP, with the endpoints that may get its packets.
type servicePort struct {
	service   string
	at        netip.AddrPort
	protocol  corev1.Protocol
	endpoints map[netip.AddrPort]string // and their nodes
	pod       netip.AddrPort            // one of them, that sends packets too; if there is one, of this node
}

// sources say which packets are masqueraded.
type sources struct {
	node string       // this node's name
	pods netip.Prefix // of the pods' addresses, if packets of pods are known by their source
	all  bool         // masqueradeAll
}

// deliverable returns the ports of some of the Services, evenly spread by name, whose endpoints do not depend on where a
// packet comes from: no policy Local, and no hints.
func deliverable(o *sim.Objects, families []corev1.IPFamily, changed map[types.NamespacedName]bool, node string) []servicePort {
	services := slices.DeleteFunc(slices.Clone(o.Services), func(s *corev1.Service) bool {
		_, others := s.Labels["service.kubernetes.io/service-proxy-name"]
		return others || !changed[types.NamespacedName{Namespace: s.Namespace, Name: s.Name}] || s.Spec.Type == corev1.ServiceTypeExternalName ||
			ptr.Deref(s.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal
	})
	slices.SortFunc(services, func(a, b *corev1.Service) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	var all []servicePort
	for i := range min(mostServices, len(services)) {
		service := services[i*len(services)/min(mostServices, len(services))]
		for _, ip := range service.Spec.ClusterIPs {
			addr, err := netip.ParseAddr(ip) // "None" is none
			if err != nil || !slices.Contains(families, inet.FamilyOf(addr)) {
				continue
			}
			for _, port := range service.Spec.Ports {
				if port.Protocol == corev1.ProtocolSCTP {
					continue
				}
				p := servicePort{service: service.Namespace + "/" + service.Name + ":" + port.Name, at: netip.AddrPortFrom(addr, uint16(port.Port)), protocol: port.Protocol}
				hinted := false
				if p.endpoints, hinted = endpointsOf(o.Slices, service, port, inet.FamilyOf(addr)); hinted {
					continue
				}
				for _, at := range slices.SortedFunc(maps.Keys(p.endpoints), netip.AddrPort.Compare) {
					if !p.pod.IsValid() || p.endpoints[at] == node && p.endpoints[p.pod] != node {
						p.pod = at
					}
				}
				all = append(all, p)
			}
		}
	}
	return all
}

// endpointsOf returns the ready endpoints of a Service's port, with their nodes; without one, those that are terminating and
// still serve. hinted: some have topology hints.
func endpointsOf(all []*discoveryv1.EndpointSlice, service *corev1.Service, of corev1.ServicePort, family corev1.IPFamily) (endpoints map[netip.AddrPort]string, hinted bool) {
	ready, serving := map[netip.AddrPort]string{}, map[netip.AddrPort]string{}
	for _, slice := range all {
		if slice.Namespace != service.Namespace || slice.Labels[discoveryv1.LabelServiceName] != service.Name || string(slice.AddressType) != string(family) {
			continue
		}
		for _, port := range slice.Ports {
			if ptr.Deref(port.Name, "") != of.Name || ptr.Deref(port.Protocol, corev1.ProtocolTCP) != of.Protocol || port.Port == nil {
				continue
			}
			for _, ep := range slice.Endpoints {
				addr, ok := inet.ParseAddr(ep.Addresses[0])
				if !ok {
					continue
				}
				hinted = hinted || ep.Hints != nil
				at := netip.AddrPortFrom(addr, uint16(*port.Port))
				switch c := ep.Conditions; {
				case ptr.Deref(c.Ready, true):
					ready[at] = ptr.Deref(ep.NodeName, "")
				case ptr.Deref(c.Serving, false) && ptr.Deref(c.Terminating, false):
					serving[at] = ptr.Deref(ep.NodeName, "")
				}
			}
		}
	}
	if len(ready) == 0 {
		return serving, hinted
	}
	return ready, hinted
}

// packet is the first packet of a flow, as it was sent. No two have one source port.
type packet struct {
	protocol uint8
	port     uint16
	to       netip.AddrPort
}

// arrival is what became of a packet: where it came from, and where it goes from which source.
type arrival struct{ from, as, to netip.AddrPort }

// firstPort is the first source port; the kernel gives higher ones to other sockets.
const firstPort = 2000

// deliver sends the packets of a family, from the node and from pods, and judges what the kernel's table of connections has
// of them.
func deliver(ports []servicePort, family corev1.IPFamily, by sources, result *invariants.Result) error {
	numbers := map[corev1.Protocol]uint8{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP}
	inet, node := netlink.InetFamily(unix.AF_INET), netip.IPv4Unspecified()
	if family == corev1.IPv6Protocol {
		inet, node = unix.AF_INET6, netip.IPv6Unspecified()
	}
	var sent [][]packet // by port
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	next := uint16(firstPort)
	for _, p := range ports {
		from := []netip.Addr{node}
		if by.pods.Contains(p.pod.Addr()) {
			from = append(from, p.pod.Addr())
		}
		var of []packet
		for _, source := range from {
			for range packetsEach {
				fd, port, err := send(p.protocol, source, next, p.at)
				if err != nil {
					return fmt.Errorf("a packet from %s to %s: %w", source, p.at, err)
				}
				open, of, next = append(open, fd), append(of, packet{numbers[p.protocol], port, p.at}), port+1
			}
		}
		sent = append(sent, of)
	}
	table, err := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
	if err != nil {
		return fmt.Errorf("table of connections: %w", err)
	}
	arrived := map[packet]arrival{}
	for _, c := range table {
		arrived[packet{c.Forward.Protocol, c.Forward.SrcPort, addrPort(c.Forward.DstIP, c.Forward.DstPort)}] = arrival{
			addrPort(c.Forward.SrcIP, c.Forward.SrcPort), addrPort(c.Reverse.DstIP, c.Reverse.DstPort), addrPort(c.Reverse.SrcIP, c.Reverse.SrcPort),
		}
	}
	for i, p := range ports {
		result.Checked += len(sent[i])
		for _, text := range p.judge(sent[i], arrived, by) {
			result.Findings = append(result.Findings, invariants.Finding{Invariant: delivered, Service: p.service, Text: text})
		}
	}
	return nil
}

// judge returns what is wrong with the packets to a port.
func (p *servicePort) judge(sent []packet, arrived map[packet]arrival, by sources) (wrong []string) {
	// The node's own address may be the one that masquerading gives. Then only the port tells, which is drawn, and may stay the
	// same. So the node's packets are judged together.
	var node netip.Addr
	fromNode, hidden := 0, 0
	for _, s := range sent {
		now, known := arrived[s]
		_, right := p.endpoints[now.to]
		what := fmt.Sprintf("a packet from %s to %s", now.from.Addr(), p.at)
		back, masqueraded := now.to.Addr() == now.from.Addr(), now.as.Addr() != now.from.Addr()
		switch {
		case !known || now.to == p.at:
			if len(p.endpoints) > 0 {
				wrong = append(wrong, fmt.Sprintf("a packet to %s goes to none of its %d endpoints", p.at, len(p.endpoints)))
			}
		case !right:
			wrong = append(wrong, fmt.Sprintf("%s goes to %s, which is none of its %d endpoints", what, now.to, len(p.endpoints)))
		case now.from.Addr() != p.pod.Addr():
			node = now.from.Addr()
			fromNode++
			if now.as != now.from {
				hidden++
			}
		case masqueraded && !back && !by.all:
			wrong = append(wrong, fmt.Sprintf("%s, from a pod, arrives at %s from %s", what, now.to, now.as.Addr()))
		case !masqueraded && (by.all || back && p.endpoints[now.to] == by.node): // nftables: only on the pod's node
			wrong = append(wrong, fmt.Sprintf("%s, from a pod, arrives at %s and is not masqueraded", what, now.to))
		}
	}
	if fromNode > 0 && hidden == 0 && (by.all || by.pods.IsValid() && !by.pods.Contains(node)) {
		wrong = append(wrong, fmt.Sprintf("%d packets from %s, which is no pod, to %s arrive and are not masqueraded", fromNode, node, p.at))
	}
	return wrong
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// send sends the first packet of a flow from a port that nothing else uses, at or above next, and returns its socket. A pod's
// address is not the machine's own. A rule may refuse the packet.
func send(protocol corev1.Protocol, source netip.Addr, next uint16, to netip.AddrPort) (fd int, port uint16, err error) {
	var failed error
	transparent := func(fd int) error {
		switch {
		case source.IsUnspecified():
		case source.Is4():
			failed = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TRANSPARENT, 1)
		default:
			failed = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TRANSPARENT, 1)
		}
		return failed
	}
	fd, err = traffic.Dial(protocol, netip.AddrPortFrom(source, next), to, transparent)
	for ; errors.Is(err, unix.EADDRINUSE); fd, err = traffic.Dial(protocol, netip.AddrPortFrom(source, next), to, transparent) {
		next++
	}
	if err == nil && protocol == corev1.ProtocolUDP {
		_, _ = unix.Write(fd, []byte{0})
	}
	return fd, next, failed
}
