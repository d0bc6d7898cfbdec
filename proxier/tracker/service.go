package tracker

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/utils/net"
)

// defaultAffinitySeconds is the API's default for ClientIP affinity. Objects from a fake clientset were never defaulted.
const defaultAffinitySeconds = 10800

// LabelProxyName hands a Service to another proxier; LabelHeadless marks slices of headless Services.
const (
	LabelProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless  = corev1.IsHeadlessService
)

// PortKey names a port within a Service.
type PortKey struct {
	Name     string // empty for the nameless port
	Protocol corev1.Protocol
}

// ServicePortName names one port of one Service.
type ServicePortName struct {
	types.NamespacedName
	PortKey
}

// String is "namespace/name", or "namespace/name:port" for a named port, as in the comments of rules.
func (n ServicePortName) String() string {
	if n.Port() == "" {
		return n.Namespace + "/" + n.NamespacedName.Name
	}
	return n.Namespace + "/" + n.NamespacedName.Name + ":" + n.Port()
}

// Port is the port's name.
func (n ServicePortName) Port() string { return n.PortKey.Name }

// ServicePort is one port of a Service as one IP family sees it. It is never changed after it was made.
type ServicePort struct {
	Name             ServicePortName
	ClusterIP        netip.Addr
	Port             uint16
	NodePort         uint16 // 0: none
	ExternalIPs      []netip.Addr
	LoadBalancerVIPs []netip.Addr
	// SourceRanges limit who may use the load balancer; empty means everybody.
	SourceRanges []netip.Prefix
	// AffinitySeconds is the ClientIP affinity timeout; 0 means no affinity.
	AffinitySeconds     int
	ExternalPolicyLocal bool
	InternalPolicyLocal bool
	HealthCheckNodePort uint16 // 0: none
}

// ExternallyAccessible says whether traffic from outside the cluster can be meant for the port.
func (p *ServicePort) ExternallyAccessible() bool {
	return p.NodePort != 0 || len(p.LoadBalancerVIPs) > 0 || len(p.ExternalIPs) > 0
}

// UsesClusterEndpoints says whether any traffic goes to endpoints of all nodes. External traffic always may: policy
// Local still sends what comes from the node itself and its pods to all endpoints.
func (p *ServicePort) UsesClusterEndpoints() bool {
	return !p.InternalPolicyLocal || p.ExternallyAccessible()
}

// UsesLocalEndpoints says whether any traffic is restricted to endpoints of this node.
func (p *ServicePort) UsesLocalEndpoints() bool {
	return p.InternalPolicyLocal || (p.ExternalPolicyLocal && p.ExternallyAccessible())
}

func (p *ServicePort) equal(q *ServicePort) bool {
	return p.Name == q.Name && p.ClusterIP == q.ClusterIP && p.Port == q.Port && p.NodePort == q.NodePort &&
		p.AffinitySeconds == q.AffinitySeconds && p.ExternalPolicyLocal == q.ExternalPolicyLocal &&
		p.InternalPolicyLocal == q.InternalPolicyLocal && p.HealthCheckNodePort == q.HealthCheckNodePort &&
		slices.Equal(p.ExternalIPs, q.ExternalIPs) && slices.Equal(p.LoadBalancerVIPs, q.LoadBalancerVIPs) &&
		slices.Equal(p.SourceRanges, q.SourceRanges)
}

// spec is what a Service object says to one family: its ports, sorted, and its age.
type spec struct {
	created time.Time
	ports   []*ServicePort
}

func (s *spec) equal(t *spec) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.created.Equal(t.created) && slices.EqualFunc(s.ports, t.ports, (*ServicePort).equal)
}

// translateService gives nil for a Service that is not for this family's proxier: headless, ExternalName, without a
// cluster IP of the family, or handed to another proxier by label.
func translateService(svc *corev1.Service, name types.NamespacedName, family corev1.IPFamily) *spec {
	if _, other := svc.Labels[LabelProxyName]; other || svc.Spec.Type == corev1.ServiceTypeExternalName {
		return nil
	}
	clusterIP, ok := clusterIPOf(svc, family)
	if !ok {
		return nil
	}
	template := ServicePort{
		ClusterIP:           clusterIP,
		ExternalIPs:         addrsOf(svc.Spec.ExternalIPs, family),
		LoadBalancerVIPs:    vipsOf(svc, family),
		SourceRanges:        sourceRangesOf(svc, family),
		AffinitySeconds:     affinityOf(svc),
		ExternalPolicyLocal: externalPolicyLocal(svc),
		InternalPolicyLocal: svc.Spec.InternalTrafficPolicy != nil && *svc.Spec.InternalTrafficPolicy == corev1.ServiceInternalTrafficPolicyLocal,
	}
	if svc.Spec.Type == corev1.ServiceTypeLoadBalancer && template.ExternalPolicyLocal {
		template.HealthCheckNodePort = uint16(svc.Spec.HealthCheckNodePort)
	}
	s := &spec{created: svc.CreationTimestamp.Time, ports: make([]*ServicePort, 0, len(svc.Spec.Ports))}
	made := make([]ServicePort, len(svc.Spec.Ports))
	for i := range slices.Backward(svc.Spec.Ports) { // of two with one name, which the API refuses, the last counts
		port, from := &made[i], &svc.Spec.Ports[i]
		*port = template
		port.Name = ServicePortName{name, PortKey{Name: intern(from.Name), Protocol: protocolOf(from.Protocol)}}
		port.Port, port.NodePort = uint16(from.Port), uint16(from.NodePort)
		s.ports = append(s.ports, port)
	}
	slices.SortStableFunc(s.ports, func(a, b *ServicePort) int { return comparePorts(a.Name.PortKey, b.Name.PortKey) })
	s.ports = slices.CompactFunc(s.ports, func(a, b *ServicePort) bool { return a.Name == b.Name })
	return s
}

// closeExternalIPs takes the external IPs from all ports.
func (s *spec) closeExternalIPs() {
	if s == nil {
		return
	}
	for _, port := range s.ports {
		port.ExternalIPs = nil
	}
}

func comparePorts(a, b PortKey) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(string(a.Protocol), string(b.Protocol)))
}

func clusterIPOf(svc *corev1.Service, family corev1.IPFamily) (netip.Addr, bool) {
	ips := svc.Spec.ClusterIPs
	if len(ips) == 0 {
		ips = []string{svc.Spec.ClusterIP}
	}
	for _, ip := range ips {
		if addr, ok := ParseAddr(ip); ok && FamilyOf(addr) == family {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// externalPolicyLocal: the policy counts only where external traffic can come (as in kube-proxy:
// LoadBalancer, NodePort, or a cluster IP Service with external IPs).
func externalPolicyLocal(svc *corev1.Service) bool {
	external := svc.Spec.Type == corev1.ServiceTypeLoadBalancer || svc.Spec.Type == corev1.ServiceTypeNodePort ||
		(svc.Spec.Type == corev1.ServiceTypeClusterIP && len(svc.Spec.ExternalIPs) > 0)
	return external && svc.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

func affinityOf(svc *corev1.Service) int {
	if svc.Spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	if c := svc.Spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && c.ClientIP.TimeoutSeconds != nil {
		return int(*c.ClientIP.TimeoutSeconds)
	}
	return defaultAffinitySeconds
}

func vipsOf(svc *corev1.Service, family corev1.IPFamily) []netip.Addr {
	var ips []string
	for _, ingress := range svc.Status.LoadBalancer.Ingress {
		// IPMode Proxy: the load balancer delivers to the node, the address itself is not ours to capture (KEP-1860).
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, ingress.IP)
		}
	}
	return addrsOf(ips, family)
}

func sourceRangesOf(svc *corev1.Service, family corev1.IPFamily) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		_, ipnet, err := utilnet.ParseCIDRSloppy(strings.TrimSpace(text))
		if err != nil {
			continue
		}
		addr, ok := netip.AddrFromSlice(ipnet.IP)
		if !ok || FamilyOf(addr.Unmap()) != family {
			continue
		}
		ones, bits := ipnet.Mask.Size()
		if ones == 0 {
			return nil // everybody may: the same as no ranges
		}
		if addr.Is4In6() && bits == 128 {
			// The prefix ::ffff:0:0 makes up the first 96. What is left may be none: kube-proxy writes a range for it.
			ones -= 96
		}
		if prefix := netip.PrefixFrom(addr.Unmap(), ones); prefix.IsValid() {
			ranges = append(ranges, prefix)
		}
	}
	return ranges
}

func addrsOf(texts []string, family corev1.IPFamily) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		if addr, ok := ParseAddr(text); ok && FamilyOf(addr) == family {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}

// ParseAddr reads an address as old API objects may hold it: leading zeros are taken as decimal, as Go did before 1.17.
func ParseAddr(text string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Unmap(), addr.Zone() == ""
	}
	ip := utilnet.ParseIPSloppy(text)
	if ip == nil {
		return netip.Addr{}, false
	}
	addr, ok := netip.AddrFromSlice(ip)
	return addr.Unmap(), ok
}

// FamilyOf an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
