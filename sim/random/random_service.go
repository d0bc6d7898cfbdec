package random

import (
	"fmt"
	"slices"
	"strings"
	"synclab/internal/inet"
	"synclab/sim"
	"synclab/sim/world"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// labelProxyName assigns a Service to another proxier.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// Names of the maximum length that the API allows. Their common part is in front: a proxier that truncates them
// confuses them.
var (
	longNamespace = strings.Repeat("n", 63)
	longService   = "s" + strings.Repeat("v", 60)
	longPort      = "p" + strings.Repeat("t", 61)
)

// addService adds a Service under a free name, with its slices.
func (c *Cluster) addService() {
	for {
		namespace := oneOfThe(c, "default", "default", "shop", longNamespace)
		name := fmt.Sprintf("svc-%d", c.rng.IntN(40))
		if c.chance(0.06) {
			name = fmt.Sprintf("%s%02d", longService, c.rng.IntN(10))
		}
		if _, taken := c.find(namespace, name); taken {
			continue
		}
		svc := c.service(namespace, name)
		slices := c.slicesOf(svc)
		// A proxier may see either first, because it has two watches.
		if c.chance(0.5) {
			c.put(sim.Add, svc)
		}
		for _, s := range slices {
			c.put(sim.Add, s)
		}
		if _, put := c.find(namespace, name); !put {
			c.put(sim.Add, svc)
		}
		return
	}
}

func (c *Cluster) find(namespace, name string) (*corev1.Service, bool) {
	i := slices.IndexFunc(c.objects.Services, func(s *corev1.Service) bool { return s.Namespace == namespace && s.Name == name })
	if i < 0 {
		return nil, false
	}
	return c.objects.Services[i], true
}

// service makes a Service of any type.
func (c *Cluster) service(namespace, name string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: world.UIDOf(c.options.Seed, fmt.Sprintf("service/%s/%s/%d", namespace, name, c.version)),
			CreationTimestamp: metav1.NewTime(world.Epoch.Add(time.Duration(c.rng.IntN(6)) * time.Minute)), // some are equal
			Labels:            map[string]string{"app": name},
		},
	}
	if c.chance(0.85) {
		svc.Spec.Selector = map[string]string{"app": name}
	}
	switch p := c.rng.Float64(); {
	case p < 0.05:
		svc.Spec.Type, svc.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
	case p < 0.12:
		svc.Spec.Type, svc.Spec.ClusterIP = corev1.ServiceTypeClusterIP, corev1.ClusterIPNone
	case p < 0.45:
		svc.Spec.Type = corev1.ServiceTypeClusterIP
	case p < 0.65:
		svc.Spec.Type = corev1.ServiceTypeNodePort
	default:
		svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	}
	if c.chance(0.05) {
		svc.Labels[labelProxyName] = oneOfThe(c, "other", "")
	}
	svc.Spec.PublishNotReadyAddresses = c.chance(0.1)
	c.setServiceFamilies(svc)
	c.setServicePorts(svc)
	c.setPolicies(svc)
	c.setReachable(svc)
	c.completeService(svc)
	return svc
}

// proxied reports whether proxiers handle a Service.
func proxied(svc *corev1.Service) bool {
	return svc.Spec.Type != corev1.ServiceTypeExternalName && svc.Spec.ClusterIP != corev1.ClusterIPNone
}

func (c *Cluster) setServiceFamilies(svc *corev1.Service) {
	if svc.Spec.Type == corev1.ServiceTypeExternalName {
		return
	}
	families := slices.Clone(c.families)
	if len(families) > 1 && c.chance(0.3) {
		slices.Reverse(families)
	}
	if len(families) > 1 && c.chance(0.5) {
		families = families[:1]
	}
	svc.Spec.IPFamilies = families
	svc.Spec.IPFamilyPolicy = ptr.To(corev1.IPFamilyPolicySingleStack)
	if len(families) > 1 {
		svc.Spec.IPFamilyPolicy = ptr.To(oneOfThe(c, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack))
	}
	if !proxied(svc) {
		svc.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return
	}
	svc.Spec.ClusterIPs = nil
	for _, family := range families {
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, c.clusterIP(family))
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
}

// clusterIP returns a free address. The pool is small, so that addresses are reused.
func (c *Cluster) clusterIP(family corev1.IPFamily) string {
	for {
		n := 1 + c.rng.IntN(200)
		text := c.address(family, "10.96.0.", "fd00:10:96::", n)
		addr, _ := inet.ParseAddr(text)
		taken := slices.ContainsFunc(c.objects.Services, func(s *corev1.Service) bool {
			return slices.ContainsFunc(s.Spec.ClusterIPs, func(ip string) bool {
				other, ok := inet.ParseAddr(ip)
				return ok && other == addr
			})
		})
		if !taken {
			return text
		}
	}
}

func (c *Cluster) setServicePorts(svc *corev1.Service) {
	svc.Spec.Ports = nil
	n := 1 + c.rng.IntN(2)*c.rng.IntN(2)*c.rng.IntN(5)
	if c.chance(0.3) {
		n = 2
	}
	if !proxied(svc) && c.chance(0.4) {
		n = 0
	}
	for range n {
		c.addPort(svc)
	}
	if len(svc.Spec.Ports) == 1 && c.chance(0.5) {
		svc.Spec.Ports[0].Name = ""
	}
}

// addPort appends a port that differs from the others by name, and by number or protocol.
func (c *Cluster) addPort(svc *corev1.Service) {
	for {
		port := corev1.ServicePort{
			Name:     oneOfThe(c, "http", "https", "dns", "dns-tcp", "a", "metrics", longPort+"1", longPort+"2"),
			Protocol: oneOfThe(c, corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP),
			Port:     oneOfThe[int32](c, 80, 80, 443, 53, 53, 8080, 1, 65535),
		}
		switch {
		case c.chance(0.3):
			port.TargetPort = intstr.FromInt32(oneOfThe[int32](c, 8080, 8443, 5353))
		case c.chance(0.2):
			port.TargetPort = intstr.FromString(oneOfThe(c, "web", "dns-port"))
		}
		if c.chance(0.1) {
			port.AppProtocol = ptr.To("kubernetes.io/h2c")
		}
		alike := func(p corev1.ServicePort) bool {
			return p.Name == port.Name || p.Port == port.Port && p.Protocol == port.Protocol
		}
		if !slices.ContainsFunc(svc.Spec.Ports, alike) {
			svc.Spec.Ports = append(svc.Spec.Ports, port)
			return
		}
	}
}

// setPolicies draws affinity, traffic policies and distribution.
func (c *Cluster) setPolicies(svc *corev1.Service) {
	s := &svc.Spec
	s.SessionAffinity, s.SessionAffinityConfig = corev1.ServiceAffinityNone, nil
	if c.chance(0.25) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		if c.chance(0.7) {
			s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(oneOfThe[int32](c, 1, 180, 10800, 86400))},
			}
		}
	}
	s.InternalTrafficPolicy = nil
	if c.chance(0.3) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	s.ExternalTrafficPolicy = ""
	if c.chance(0.45) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal // removed where it is not allowed
	}
	s.TrafficDistribution = nil
	if c.chance(0.2) {
		s.TrafficDistribution = ptr.To(oneOfThe(c, corev1.ServiceTrafficDistributionPreferClose,
			corev1.ServiceTrafficDistributionPreferSameNode, corev1.ServiceTrafficDistributionPreferSameZone))
	}
}

// setReachable draws how clients reach a Service: external IPs, load balancer, source ranges.
func (c *Cluster) setReachable(svc *corev1.Service) {
	s := &svc.Spec
	s.ExternalIPs, s.LoadBalancerSourceRanges, svc.Status.LoadBalancer = nil, nil, corev1.LoadBalancerStatus{}
	if proxied(svc) && c.chance(0.25) {
		for range 1 + c.rng.IntN(3) {
			// The pool is so small that Services share addresses.
			ip := c.address(c.anyFamily(), "203.0.113.", "2001:db8:113::", 1+c.rng.IntN(6))
			s.ExternalIPs = append(s.ExternalIPs, ip)
		}
	}
	if s.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if c.chance(0.3) {
		s.AllocateLoadBalancerNodePorts = ptr.To(false)
	}
	for range c.rng.IntN(4) {
		c.addIngress(svc)
	}
	if c.chance(0.5) {
		for range 1 + c.rng.IntN(3) {
			s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, c.sourceRange())
		}
	}
	if c.chance(0.1) { // kube-proxy reads the field only
		svc.Annotations = map[string]string{corev1.AnnotationLoadBalancerSourceRangesKey: "198.51.100.0/24"}
	}
}

func (c *Cluster) addIngress(svc *corev1.Service) {
	ingress := corev1.LoadBalancerIngress{IP: c.address(c.anyFamily(), "198.18.0.", "2001:db8:18::", 1+c.rng.IntN(30))}
	switch p := c.rng.Float64(); {
	case p < 0.15 && !c.options.ForOldProxies:
		ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeProxy)
	case p < 0.3: // from before the field existed
	case p < 0.4:
		ingress = corev1.LoadBalancerIngress{Hostname: "lb.example.com"}
	default:
		ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
	}
	svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, ingress)
}

func (c *Cluster) sourceRange() string {
	for {
		text := c.anyRange()
		r, ok := sim.ParsePrefix(text)
		if ok && (c.options.NoOpenRanges && r.Bits() == 0 || c.options.ForOldProxies && r.Masked().String() != text) {
			continue
		}
		return text
	}
}

func (c *Cluster) anyRange() string {
	if c.anyFamily() == corev1.IPv6Protocol {
		return oneOfThe(c, "2001:db8:1::/48", " 2001:db8:2::/64", "2001:db8:1::/48 ", "fd00:192:0:2::/64", RandomNode6+"/128",
			"2001:db8:1::5/48", "::/0", "FD00:192::/32")
	}
	return oneOfThe(c, "198.51.100.0/24", " 198.51.100.0/25", "198.51.100.0/24 ", "192.0.2.0/24", RandomNode4+"/32",
		"203.0.113.7/24", "0.0.0.0/0", "010.0.0.0/8", "192.0.2.128/25",
		"::ffff:198.51.100.0/120", "::ffff:0:0/96")
}

// completeService sets what follows from the type, and what an API server sets.
func (c *Cluster) completeService(svc *corev1.Service) {
	s := &svc.Spec
	if !sim.ExternallyReachable(svc) {
		s.ExternalTrafficPolicy = ""
	}
	if s.Type == corev1.ServiceTypeExternalName {
		s.InternalTrafficPolicy = nil
	}
	allocates := s.AllocateLoadBalancerNodePorts == nil || *s.AllocateLoadBalancerNodePorts || c.chance(0.3)
	for i := range s.Ports {
		port := &s.Ports[i]
		switch {
		case s.Type == corev1.ServiceTypeClusterIP, s.Type == corev1.ServiceTypeExternalName:
			port.NodePort = 0
		case port.NodePort == 0 && allocates:
			port.NodePort = c.nodePort(svc, port.Protocol)
		}
	}
	s.HealthCheckNodePort = 0
	if sim.NeedsHealthCheck(s) && c.chance(0.9) {
		s.HealthCheckNodePort = c.healthCheckNodePort()
	}
	sim.DefaultService(svc)
	if !proxied(svc) {
		return
	}
	for i := range svc.Status.LoadBalancer.Ingress {
		if c.chance(0.1) {
			svc.Status.LoadBalancer.Ingress[i].IPMode = nil
		}
	}
}

// nodePort returns a free node port of that protocol. TCP and UDP may have the same number.
func (c *Cluster) nodePort(svc *corev1.Service, protocol corev1.Protocol) int32 {
	for {
		number := int32(30000 + c.rng.IntN(150))
		has := func(s *corev1.Service) bool {
			return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.NodePort == number && p.Protocol == protocol })
		}
		if !has(svc) && !slices.ContainsFunc(c.objects.Services, has) {
			return number
		}
	}
}

func (c *Cluster) healthCheckNodePort() int32 {
	for {
		number := int32(32000 + c.rng.IntN(100))
		if !slices.ContainsFunc(c.objects.Services, func(s *corev1.Service) bool { return s.Spec.HealthCheckNodePort == number }) {
			return number
		}
	}
}
