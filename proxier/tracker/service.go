package tracker

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/internal/inet"
)

// defaultAffinitySeconds is the API's default for ClientIP affinity. Objects of a fake clientset have no defaults.
const defaultAffinitySeconds = 10800

// LabelProxyName assigns a Service to another proxier; LabelHeadless marks slices of headless Services.
const (
	LabelProxyName = "service.kubernetes.io/service-proxy-name"
	LabelHeadless  = corev1.IsHeadlessService
)

// PortKey identifies a port within a Service.
type PortKey struct {
	Name     string // empty for an unnamed port
	Protocol corev1.Protocol
}

// ServicePortName identifies one port of one Service.
type ServicePortName struct {
	types.NamespacedName
	PortKey
}

// String returns "namespace/name", or "namespace/name:port" for a named port, as in the comments of rules.
func (n ServicePortName) String() string {
	if n.Port() == "" {
		return n.Namespace + "/" + n.NamespacedName.Name
	}
	return n.Namespace + "/" + n.NamespacedName.Name + ":" + n.Port()
}

// Port returns the port's name.
func (n ServicePortName) Port() string { return n.PortKey.Name }

// ServicePort is one port of a Service in one IP family. Immutable.
type ServicePort struct {
	Name             ServicePortName
	ClusterIP        netip.Addr
	Port             uint16
	NodePort         uint16 // 0: none
	ExternalIPs      []netip.Addr
	LoadBalancerVIPs []netip.Addr
	// SourceRanges are the allowed clients of the load balancer; empty: all clients.
	SourceRanges []netip.Prefix
	// AffinitySeconds is the ClientIP affinity timeout; 0 means no affinity.
	AffinitySeconds     int
	ExternalPolicyLocal bool
	InternalPolicyLocal bool
	HealthCheckNodePort uint16 // 0: none
}

// ExternallyAccessible reports whether the port has a frontend for traffic from outside the cluster.
func (p *ServicePort) ExternallyAccessible() bool {
	return p.NodePort != 0 || len(p.LoadBalancerVIPs) > 0 || len(p.ExternalIPs) > 0
}

// UsesClusterEndpoints reports whether any traffic may go to endpoints of all nodes. External traffic always may: with
// policy Local, traffic from the node itself and its pods still goes to all endpoints.
func (p *ServicePort) UsesClusterEndpoints() bool {
	return !p.InternalPolicyLocal || p.ExternallyAccessible()
}

// UsesLocalEndpoints reports whether any traffic is restricted to endpoints of this node.
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

// spec is the content of a Service object for one family: its ports, sorted, and its creation time.
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

// translateService returns nil for a Service that this family's proxier ignores: headless, ExternalName, without a
// cluster IP of the family, or assigned to another proxier by label.
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
	for i := range slices.Backward(svc.Spec.Ports) { // the API refuses two ports with one name; here the last one counts
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

// closeExternalIPs removes the external IPs of all ports.
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
	return inet.ParseAddrOf(family, ips...)
}

// externalPolicyLocal: as in kube-proxy, the policy counts only if external traffic is possible: LoadBalancer,
// NodePort, or a cluster IP Service with external IPs.
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
		// With IPMode Proxy, the load balancer sends to the node. The proxier must not capture the address (KEP-1860).
		if ingress.IP != "" && (ingress.IPMode == nil || *ingress.IPMode == corev1.LoadBalancerIPModeVIP) {
			ips = append(ips, ingress.IP)
		}
	}
	return addrsOf(ips, family)
}

func sourceRangesOf(svc *corev1.Service, family corev1.IPFamily) []netip.Prefix {
	var ranges []netip.Prefix
	for _, text := range svc.Spec.LoadBalancerSourceRanges {
		prefix, err := inet.ParsePrefix(strings.TrimSpace(text))
		if err != nil || inet.FamilyOf(prefix.Addr()) != family {
			continue
		}
		// ::ffff:0:0/96 also becomes 0.0.0.0/0, but kube-proxy writes a rule for it: only a range spelled /0 allows all clients.
		if spelledAs6 := strings.Contains(text, ":"); prefix.Bits() == 0 && prefix.Addr().Is6() == spelledAs6 {
			return nil // all clients are allowed, as without ranges
		}
		ranges = append(ranges, prefix)
	}
	return ranges
}

func addrsOf(texts []string, family corev1.IPFamily) []netip.Addr {
	var addrs []netip.Addr
	for _, text := range texts {
		if addr, ok := inet.ParseAddrOf(family, text); ok {
			addrs = append(addrs, addr)
		}
	}
	return addrs
}
