package sim

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilnet "k8s.io/utils/net"
	"k8s.io/utils/ptr"
)

// Defaults of the API server. Objects from files and from the fake clientset never passed one, but a proxier may rely
// on these fields. A nil SessionAffinityConfig or a nil EndpointPort.Protocol makes kube-proxy panic; an empty
// protocol makes a rule that iptables refuses.

// affinityTimeout is the API's default for ClientIP affinity, in seconds (3 h).
const affinityTimeout = corev1.DefaultClientIPServiceAffinitySeconds

// DefaultService fills in the API server's static defaults. It allocates nothing, and does not touch the IP families:
// those depend on the cluster, see DefaultFamilies.
func DefaultService(service *corev1.Service) {
	spec := &service.Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	defaultAffinity(spec)
	for i := range spec.Ports {
		port := &spec.Ports[i]
		if port.Protocol == "" {
			port.Protocol = corev1.ProtocolTCP
		}
		// Both an unset value and an empty string mean the port itself.
		if port.TargetPort == intstr.FromInt32(0) || port.TargetPort == intstr.FromString("") {
			port.TargetPort = intstr.FromInt32(port.Port)
		}
	}
	if spec.ExternalTrafficPolicy == "" && ExternallyReachable(service) {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if spec.InternalTrafficPolicy == nil && spec.Type != corev1.ServiceTypeExternalName {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	if spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	if spec.AllocateLoadBalancerNodePorts == nil {
		spec.AllocateLoadBalancerNodePorts = ptr.To(true)
	}
	for i := range service.Status.LoadBalancer.Ingress {
		ingress := &service.Status.LoadBalancer.Ingress[i]
		if ingress.IP != "" && ingress.IPMode == nil {
			ingress.IPMode = ptr.To(corev1.LoadBalancerIPModeVIP)
		}
	}
}

func defaultAffinity(spec *corev1.ServiceSpec) {
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		spec.SessionAffinity = corev1.ServiceAffinityNone
		spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		config := spec.SessionAffinityConfig
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{
				ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(affinityTimeout))},
			}
		}
	}
}

// ExternallyReachable reports whether a Service has an externalTrafficPolicy: clients outside of the cluster can reach
// it through a proxy.
func ExternallyReachable(service *corev1.Service) bool {
	switch service.Spec.Type {
	case corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
		return true
	case corev1.ServiceTypeClusterIP:
		return len(service.Spec.ExternalIPs) > 0
	}
	return false
}

// DefaultFamilies derives clusterIP and clusterIPs from each other, and fills in ipFamilyPolicy and ipFamilies.
// cluster holds the families of the cluster, the preferred one first. It refuses nothing: checkService does that
// later.
func DefaultFamilies(service *corev1.Service, cluster []corev1.IPFamily) {
	spec := &service.Spec
	if spec.Type == corev1.ServiceTypeExternalName || len(cluster) == 0 {
		return
	}
	switch {
	case len(spec.ClusterIPs) == 0 && spec.ClusterIP != "":
		spec.ClusterIPs = []string{spec.ClusterIP}
	case len(spec.ClusterIPs) > 0 && spec.ClusterIP == "":
		spec.ClusterIP = spec.ClusterIPs[0]
	}
	if spec.IPFamilyPolicy == nil {
		spec.IPFamilyPolicy = ptr.To(impliedPolicy(spec))
	}
	for i, ip := range spec.ClusterIPs {
		if i >= len(spec.IPFamilies) && ip != corev1.ClusterIPNone {
			spec.IPFamilies = append(spec.IPFamilies, FamilyOf(ip))
		}
	}
	if len(spec.IPFamilies) == 0 {
		spec.IPFamilies = []corev1.IPFamily{cluster[0]}
	}
	if *spec.IPFamilyPolicy == corev1.IPFamilyPolicySingleStack || len(spec.IPFamilies) > 1 {
		return
	}
	// A headless Service without selector names both families even in a single-stack cluster: its endpoints come from
	// elsewhere.
	second := corev1.IPv6Protocol
	if spec.IPFamilies[0] == corev1.IPv6Protocol {
		second = corev1.IPv4Protocol
	}
	if len(cluster) > 1 || headlessWithoutSelector(spec) {
		spec.IPFamilies = append(spec.IPFamilies, second)
	}
}

// impliedPolicy returns the ipFamilyPolicy of a Service that names none. Two addresses or two families mean dual
// stack, as does a headless Service without a selector.
func impliedPolicy(spec *corev1.ServiceSpec) corev1.IPFamilyPolicy {
	if len(spec.ClusterIPs) > 1 || len(spec.IPFamilies) > 1 {
		return corev1.IPFamilyPolicyRequireDualStack
	}
	if headlessWithoutSelector(spec) && len(spec.IPFamilies) == 0 {
		return corev1.IPFamilyPolicyRequireDualStack
	}
	return corev1.IPFamilyPolicySingleStack
}

func headlessWithoutSelector(spec *corev1.ServiceSpec) bool {
	return spec.ClusterIP == corev1.ClusterIPNone && len(spec.Selector) == 0
}

func FamilyOf(ip string) corev1.IPFamily {
	if utilnet.IsIPv6String(ip) {
		return corev1.IPv6Protocol
	}
	return corev1.IPv4Protocol
}

// DefaultEndpointSlice fills in port names and protocols. Nil conditions stay nil, as the API server leaves them. A
// reader of a slice must take nil as ready, as serving if ready, and as not terminating.
func DefaultEndpointSlice(slice *discoveryv1.EndpointSlice) {
	for i := range slice.Ports {
		port := &slice.Ports[i]
		if port.Name == nil {
			port.Name = ptr.To("")
		}
		if port.Protocol == nil {
			port.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}
