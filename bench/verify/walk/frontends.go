package walk

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/inet"
)

// Frontend is one port of a Service as its clients see it. A PacketSet makes packets for it.
type Frontend struct {
	// Service is its "namespace/name".
	Service  string
	Protocol Protocol
	Port     uint16
	// Addresses whose packets may go to it: cluster IPs, external IPs, load balancers.
	Addresses   []netip.Addr
	NodePort    uint16 // 0: none
	HealthCheck uint16 // 0: none
	Ranges      []netip.Prefix
	Endpoints   []netip.AddrPort
	Sticky      bool
}

// ObjectFrontends returns the frontends of API objects, of one family. They have more than a proxier may use: Services
// of another proxier, addresses that it ignores, endpoints that are not ready.
func ObjectFrontends(family corev1.IPFamily, services []*corev1.Service, eps []*discoveryv1.EndpointSlice) []Frontend {
	var all []Frontend
	for _, svc := range services {
		addresses := slices.Concat([]string{svc.Spec.ClusterIP}, svc.Spec.ClusterIPs, svc.Spec.ExternalIPs)
		for _, ingress := range svc.Status.LoadBalancer.Ingress {
			addresses = append(addresses, ingress.IP)
		}
		for _, port := range svc.Spec.Ports {
			f := Frontend{
				Service: svc.Namespace + "/" + svc.Name, Protocol: ProtocolOf(port.Protocol), Port: uint16(port.Port),
				NodePort: uint16(port.NodePort), HealthCheck: uint16(svc.Spec.HealthCheckNodePort),
				Sticky: svc.Spec.SessionAffinity == corev1.ServiceAffinityClientIP,
			}
			for _, text := range addresses {
				if addr, ok := inet.ParseAddrOf(family, text); ok && !slices.Contains(f.Addresses, addr) {
					f.Addresses = append(f.Addresses, addr)
				}
			}
			for _, text := range svc.Spec.LoadBalancerSourceRanges {
				if prefix, err := inet.ParsePrefix(strings.TrimSpace(text)); err == nil && inet.FamilyOf(prefix.Addr()) == family {
					f.Ranges = append(f.Ranges, prefix)
				}
			}
			f.Endpoints = endpointsOf(family, svc, port, eps)
			all = append(all, f)
		}
	}
	return all
}

func endpointsOf(family corev1.IPFamily, svc *corev1.Service, port corev1.ServicePort, eps []*discoveryv1.EndpointSlice) []netip.AddrPort {
	var found []netip.AddrPort
	for _, s := range eps {
		if s.Namespace != svc.Namespace || s.Labels[discoveryv1.LabelServiceName] != svc.Name {
			continue
		}
		for _, p := range s.Ports {
			if ptr.Deref(p.Name, "") != port.Name || ptr.Deref(p.Port, 0) == 0 {
				continue
			}
			for _, ep := range s.Endpoints {
				if len(ep.Addresses) == 0 {
					continue
				}
				addr, ok := inet.ParseAddrOf(family, ep.Addresses[0])
				if to := netip.AddrPortFrom(addr, uint16(*p.Port)); ok && !slices.Contains(found, to) {
					found = append(found, to)
				}
			}
		}
	}
	return found
}

// ProtocolOf returns the protocol of a Service port, by default TCP.
func ProtocolOf(p corev1.Protocol) Protocol {
	switch p {
	case corev1.ProtocolUDP:
		return UDP
	case corev1.ProtocolSCTP:
		return SCTP
	}
	return TCP
}
