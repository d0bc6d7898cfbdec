package capture

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/sim"
)

// labelProxyName assigns a Service to another proxy.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// copy makes the anonymized objects. It names every field that it copies: a new field of the API is left out until it
// has been reviewed.
func (a *anonymizer) copy(o *sim.Objects) *sim.Objects {
	var c sim.Objects
	for _, node := range o.Nodes {
		c.Nodes = append(c.Nodes, a.node(node))
	}
	for _, service := range o.Services {
		c.Services = append(c.Services, a.service(service))
	}
	for _, slice := range o.Slices {
		c.Slices = append(c.Slices, a.slice(slice))
	}
	c.Sort()
	return &c
}

func (a *anonymizer) meta(m *metav1.ObjectMeta, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: a.name(namespaces, m.Namespace), Name: name, UID: a.uid(m.UID),
		CreationTimestamp: metav1.NewTime(a.time(m.CreationTimestamp.Time)),
	}
}

func (a *anonymizer) node(n *corev1.Node) *corev1.Node {
	c := &corev1.Node{ObjectMeta: a.meta(&n.ObjectMeta, a.name(nodes, n.Name))}
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != "" {
		c.Labels = map[string]string{corev1.LabelTopologyZone: a.name(zones, zone)}
	}
	c.Spec.PodCIDR, c.Spec.PodCIDRs = a.cidr(n.Spec.PodCIDR), a.cidrs(n.Spec.PodCIDRs)
	for _, taint := range n.Spec.Taints {
		if taint.Key == taintLeaving {
			c.Spec.Taints = append(c.Spec.Taints, corev1.Taint{Key: taint.Key, Effect: taint.Effect})
		}
	}
	for _, address := range n.Status.Addresses {
		if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
			continue // names
		}
		if replaced := a.address(address.Address, nil); replaced != "" {
			c.Status.Addresses = append(c.Status.Addresses, corev1.NodeAddress{Type: address.Type, Address: replaced})
		}
	}
	return c
}

func (a *anonymizer) service(s *corev1.Service) *corev1.Service {
	c := &corev1.Service{ObjectMeta: a.meta(&s.ObjectMeta, a.inNamespace(services, s.Namespace, s.Name))}
	labels := map[string]string{}
	if name, ok := s.Labels[labelProxyName]; ok {
		labels[labelProxyName] = a.name(proxies, name)
	}
	if _, ok := s.Labels[corev1.IsHeadlessService]; ok {
		labels[corev1.IsHeadlessService] = ""
	}
	if len(labels) > 0 {
		c.Labels = labels
	}
	from, to := &s.Spec, &c.Spec
	to.Type, to.SessionAffinity, to.SessionAffinityConfig = from.Type, from.SessionAffinity, from.SessionAffinityConfig
	to.ExternalTrafficPolicy, to.InternalTrafficPolicy = from.ExternalTrafficPolicy, from.InternalTrafficPolicy
	to.HealthCheckNodePort, to.TrafficDistribution = a.nodePort(from.HealthCheckNodePort), from.TrafficDistribution
	to.IPFamilies, to.IPFamilyPolicy = from.IPFamilies, from.IPFamilyPolicy
	to.AllocateLoadBalancerNodePorts = from.AllocateLoadBalancerNodePorts
	for _, p := range from.Ports {
		to.Ports = append(to.Ports, corev1.ServicePort{
			Name: a.name(portNames, p.Name), Protocol: p.Protocol, Port: p.Port, NodePort: a.nodePort(p.NodePort),
		})
	}
	to.ClusterIP = from.ClusterIP
	if from.ClusterIP != corev1.ClusterIPNone {
		to.ClusterIP = a.address(from.ClusterIP, &a.clusterIPs)
	}
	for _, ip := range from.ClusterIPs {
		if ip != corev1.ClusterIPNone {
			ip = a.address(ip, &a.clusterIPs)
		}
		to.ClusterIPs = append(to.ClusterIPs, ip)
	}
	to.ExternalIPs = a.addresses(from.ExternalIPs, nil)
	to.LoadBalancerSourceRanges = a.trimmedCIDRs(from.LoadBalancerSourceRanges)
	to.ExternalName = a.host(from.ExternalName)
	for _, in := range s.Status.LoadBalancer.Ingress {
		out := corev1.LoadBalancerIngress{IP: a.address(in.IP, nil), Hostname: a.host(in.Hostname), IPMode: in.IPMode}
		c.Status.LoadBalancer.Ingress = append(c.Status.LoadBalancer.Ingress, out)
	}
	return c
}

// trimmedCIDRs trims spaces first: source ranges are the only field where the API allows them.
func (a *anonymizer) trimmedCIDRs(all []string) []string {
	var trimmed []string
	for _, text := range all {
		trimmed = append(trimmed, strings.TrimSpace(text))
	}
	return a.cidrs(trimmed)
}

func (a *anonymizer) slice(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	c := &discoveryv1.EndpointSlice{
		ObjectMeta: a.meta(&s.ObjectMeta, a.inNamespace(slicesOf, s.Namespace, s.Name)), AddressType: s.AddressType,
	}
	labels := map[string]string{}
	if name := s.Labels[discoveryv1.LabelServiceName]; name != "" {
		a.serviceOf[s.Namespace+"/"+s.Name] = s.Namespace + "/" + name
		labels[discoveryv1.LabelServiceName] = a.inNamespace(services, s.Namespace, name)
	}
	if _, ok := s.Labels[corev1.IsHeadlessService]; ok {
		labels[corev1.IsHeadlessService] = ""
	}
	if len(labels) > 0 {
		c.Labels = labels
	}
	if at, err := time.Parse(time.RFC3339Nano, s.Annotations[corev1.EndpointsLastChangeTriggerTime]); err == nil {
		c.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: a.time(at).Format(time.RFC3339Nano)}
	}
	for _, p := range s.Ports {
		port := discoveryv1.EndpointPort{Protocol: p.Protocol, Port: p.Port}
		if p.Name != nil {
			port.Name = ptr.To(a.name(portNames, *p.Name))
		}
		c.Ports = append(c.Ports, port)
	}
	for i := range s.Endpoints {
		c.Endpoints = append(c.Endpoints, a.endpoint(&s.Endpoints[i], s.AddressType))
	}
	return c
}

func (a *anonymizer) endpoint(e *discoveryv1.Endpoint, kind discoveryv1.AddressType) discoveryv1.Endpoint {
	c := discoveryv1.Endpoint{Conditions: e.Conditions}
	if kind == discoveryv1.AddressTypeFQDN {
		for _, name := range e.Addresses {
			c.Addresses = append(c.Addresses, a.host(name))
		}
	} else {
		c.Addresses = a.addresses(e.Addresses, &a.endpoints)
	}
	if e.NodeName != nil {
		c.NodeName = ptr.To(a.name(nodes, *e.NodeName))
	}
	if e.Zone != nil {
		c.Zone = ptr.To(a.name(zones, *e.Zone))
	}
	if e.Hints != nil {
		c.Hints = &discoveryv1.EndpointHints{}
		for _, zone := range e.Hints.ForZones {
			c.Hints.ForZones = append(c.Hints.ForZones, discoveryv1.ForZone{Name: a.name(zones, zone.Name)})
		}
		for _, node := range e.Hints.ForNodes {
			c.Hints.ForNodes = append(c.Hints.ForNodes, discoveryv1.ForNode{Name: a.name(nodes, node.Name)})
		}
	}
	return c
}
