package check

import (
	"context"
	"fmt"
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
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/verify/invariants"
	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// delivery asks the kernel where packets to changed Services go. Everything else that the lab knows of a subject's state
// comes from its own tracker, plan and readers of rules. Here, what is right comes from the objects of the API alone, and
// what happens from the kernel's table of connections.

// delivered is the invariant: packets to changed Services go to the endpoints of the API's objects.
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
	ports := deliverable(r.World.Objects(), r.Families, r.changed)
	result := invariants.Result{Invariant: delivered}
	for _, family := range r.Families {
		of := slices.DeleteFunc(slices.Clone(ports), func(p servicePort) bool { return inet.FamilyOf(p.at.Addr()) != family })
		if err := deliver(of, family, &result); err != nil {
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
	endpoints map[netip.AddrPort]bool
}

// deliverable returns the ports of some of the Services, evenly spread by name, whose endpoints do not depend on where a
// packet comes from: no policy Local, and no hints.
func deliverable(o *sim.Objects, families []corev1.IPFamily, changed map[types.NamespacedName]bool) []servicePort {
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
				p := servicePort{service.Namespace + "/" + service.Name + ":" + port.Name, netip.AddrPortFrom(addr, uint16(port.Port)), port.Protocol, nil}
				hinted := false
				if p.endpoints, hinted = endpointsOf(o.Slices, service, port, inet.FamilyOf(addr)); !hinted {
					all = append(all, p)
				}
			}
		}
	}
	return all
}

// endpointsOf returns the ready endpoints of a Service's port; without one, those that are terminating and still serve.
// hinted: some have topology hints.
func endpointsOf(all []*discoveryv1.EndpointSlice, service *corev1.Service, of corev1.ServicePort, family corev1.IPFamily) (endpoints map[netip.AddrPort]bool, hinted bool) {
	ready, serving := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
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
					ready[at] = true
				case ptr.Deref(c.Serving, false) && ptr.Deref(c.Terminating, false):
					serving[at] = true
				}
			}
		}
	}
	if len(ready) == 0 {
		return serving, hinted
	}
	return ready, hinted
}

// deliver sends the packets of a family, and judges where the kernel's table of connections has them.
func deliver(ports []servicePort, family corev1.IPFamily, result *invariants.Result) error {
	type sent struct {
		*servicePort
		from uint16
	}
	var all []sent
	var open []int
	defer func() {
		for _, fd := range open {
			unix.Close(fd)
		}
	}()
	for i := range ports {
		for range packetsEach {
			fd, from, err := send(ports[i].protocol, ports[i].at)
			if err != nil {
				return fmt.Errorf("%s: %w", ports[i].at, err)
			}
			open = append(open, fd) // until the table was read: no two packets have one source port
			all = append(all, sent{&ports[i], from})
		}
	}
	inet := netlink.InetFamily(unix.AF_INET)
	if family == corev1.IPv6Protocol {
		inet = unix.AF_INET6
	}
	table, err := netlink.ConntrackTableList(netlink.ConntrackTable, inet)
	if err != nil {
		return fmt.Errorf("table of connections: %w", err)
	}
	type flow struct {
		protocol uint8
		from     uint16
		to       netip.AddrPort
	}
	went := map[flow]netip.AddrPort{}
	for _, c := range table {
		went[flow{c.Forward.Protocol, c.Forward.SrcPort, addrPort(c.Forward.DstIP, c.Forward.DstPort)}] = addrPort(c.Reverse.SrcIP, c.Reverse.SrcPort)
	}
	numbers := map[corev1.Protocol]uint8{corev1.ProtocolTCP: unix.IPPROTO_TCP, corev1.ProtocolUDP: unix.IPPROTO_UDP}
	for _, s := range all {
		result.Checked++
		to, known := went[flow{numbers[s.protocol], s.from, s.at}]
		translated := known && to != s.at
		switch {
		case translated && !s.endpoints[to]:
			result.Findings = append(result.Findings, invariants.Finding{Invariant: delivered, Service: s.service, Text: fmt.Sprintf("a %s packet to %s goes to %s, which is none of its %d endpoints", s.protocol, s.at, to, len(s.endpoints))})
		case !translated && len(s.endpoints) > 0:
			result.Findings = append(result.Findings, invariants.Finding{Invariant: delivered, Service: s.service, Text: fmt.Sprintf("a %s packet to %s goes to none of its %d endpoints", s.protocol, s.at, len(s.endpoints))})
		}
	}
	return nil
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	addr, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(addr.Unmap(), port)
}

// send sends the first packet of a flow, and returns the open socket and its port. A rule may refuse the packet.
func send(protocol corev1.Protocol, to netip.AddrPort) (fd int, from uint16, err error) {
	domain, kind := unix.AF_INET6, unix.SOCK_STREAM
	var sockaddr unix.Sockaddr = &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}
	if to.Addr().Is4() {
		domain, sockaddr = unix.AF_INET, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}
	}
	if protocol == corev1.ProtocolUDP {
		kind = unix.SOCK_DGRAM
	}
	if fd, err = unix.Socket(domain, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return 0, 0, err
	}
	_ = unix.Connect(fd, sockaddr) // in progress, or refused
	if protocol == corev1.ProtocolUDP {
		_, _ = unix.Write(fd, []byte{0})
	}
	local, err := unix.Getsockname(fd)
	if err != nil {
		unix.Close(fd)
		return 0, 0, err
	}
	switch l := local.(type) {
	case *unix.SockaddrInet4:
		from = uint16(l.Port)
	case *unix.SockaddrInet6:
		from = uint16(l.Port)
	}
	return fd, from, nil
}
