package random

import (
	"slices"
	"synclab/sim"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Next makes a few random changes that an API server accepts. The trace holds them in their order, all due at once.
func (c *Cluster) Next() sim.Trace {
	var t sim.Trace
	c.trace = &t
	for range 1 + c.rng.IntN(6) {
		c.mutate()
	}
	return t
}

// Limits of random growth over days: names are few, and more objects show nothing new.
const (
	mostServices = 90
	mostSlices   = 400
)

// mutate makes one change, sometimes of several objects.
func (c *Cluster) mutate() {
	switch p := c.rng.Float64(); {
	case len(c.objects.Slices) >= mostSlices:
		c.removeSlice()
	case p < 0.08 && len(c.objects.Services) < mostServices || len(c.objects.Services) == 0:
		c.addService()
	case p < 0.16:
		c.removeService()
	case p < 0.20:
		c.recreateService()
	case p < 0.50:
		c.editService()
	case p < 0.56:
		svc := c.anyService()
		c.put(sim.Add, c.slice(svc, c.anyFamily(), nil))
	case p < 0.62:
		c.removeSlice()
	case p < 0.95:
		c.editSlice()
	case p < 0.97:
		c.put(sim.Add, c.straySlice())
	default:
		node := c.objects.Nodes[c.oneIn(3)*c.rng.IntN(len(c.objects.Nodes))].DeepCopy()
		c.setZone(node)
		c.put(sim.Update, node)
	}
}

func (c *Cluster) anyService() *corev1.Service {
	return c.objects.Services[c.rng.IntN(len(c.objects.Services))]
}

// removeService deletes a Service with its slices, or without them, as before the garbage collector runs.
func (c *Cluster) removeService() {
	svc := c.anyService()
	c.put(sim.Delete, svc.DeepCopy())
	if c.chance(0.2) {
		return
	}
	for _, s := range c.ownSlices(svc) {
		c.put(sim.Delete, s.DeepCopy())
	}
}

func (c *Cluster) ownSlices(svc *corev1.Service) []*discoveryv1.EndpointSlice {
	var own []*discoveryv1.EndpointSlice
	for _, s := range c.objects.Slices {
		if s.Namespace == svc.Namespace && s.Labels[discoveryv1.LabelServiceName] == svc.Name {
			own = append(own, s)
		}
	}
	return own
}

// recreateService deletes a Service and at once makes another one of the same name.
func (c *Cluster) recreateService() {
	svc := c.anyService()
	c.put(sim.Delete, svc.DeepCopy())
	c.put(sim.Add, c.service(svc.Namespace, svc.Name))
}

// editService changes a Service in place.
func (c *Cluster) editService() {
	svc := c.anyService().DeepCopy()
	switch c.rng.IntN(8) {
	case 0:
		c.retype(svc)
	case 1:
		c.setPolicies(svc)
	case 2:
		c.setReachable(svc)
	case 3:
		c.setServicePorts(svc)
	case 4:
		if len(svc.Spec.Ports) > 0 {
			svc.Spec.Ports = slices.Delete(svc.Spec.Ports, 0, 1)
		}
		c.addPort(svc)
		if i := slices.IndexFunc(svc.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "" }); i >= 0 && len(svc.Spec.Ports) > 1 {
			svc.Spec.Ports = slices.Delete(svc.Spec.Ports, i, i+1)
		}
	case 5:
		if _, foreign := svc.Labels[labelProxyName]; foreign || c.chance(0.6) {
			delete(svc.Labels, labelProxyName)
		} else {
			svc.Labels[labelProxyName] = "other"
		}
	case 6:
		if svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
			c.addIngress(svc)
		}
	case 7: // no rule depends on it
		svc.Labels["touched"] = "yes"
	}
	c.completeService(svc)
	c.put(sim.Update, svc)
}

// retype changes the type of a Service. One that becomes an ExternalName loses its addresses, and gets others when it
// changes back. A headless Service stays headless: its clusterIP is immutable.
func (c *Cluster) retype(svc *corev1.Service) {
	if svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return
	}
	was := svc.Spec.Type
	svc.Spec.Type = oneOfThe(c, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer {
		svc.Spec.AllocateLoadBalancerNodePorts, svc.Spec.LoadBalancerSourceRanges = nil, nil
	}
	status := svc.Status.LoadBalancer
	switch {
	case svc.Spec.Type == corev1.ServiceTypeExternalName:
		svc.Spec.ExternalName, svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "example.com", "", nil
		svc.Spec.IPFamilies, svc.Spec.IPFamilyPolicy, svc.Spec.ExternalIPs = nil, nil, nil
	case was == corev1.ServiceTypeExternalName:
		svc.Spec.ExternalName = ""
		c.setServiceFamilies(svc)
		c.setServicePorts(svc)
	}
	c.setReachable(svc)
	if svc.Spec.Type != corev1.ServiceTypeLoadBalancer && c.chance(0.3) {
		svc.Status.LoadBalancer = status // its controller has not cleared it yet
	}
	if c.chance(0.3) {
		c.setPolicies(svc)
	}
}

func (c *Cluster) removeSlice() {
	if n := len(c.objects.Slices); n > 0 {
		c.put(sim.Delete, c.objects.Slices[c.rng.IntN(n)].DeepCopy())
	}
}

// editSlice changes a slice in place: endpoints come, go, and change their conditions; less often ports and labels.
func (c *Cluster) editSlice() {
	if len(c.objects.Slices) == 0 {
		return
	}
	s := c.objects.Slices[c.rng.IntN(len(c.objects.Slices))].DeepCopy()
	i := -1
	if len(s.Endpoints) > 0 {
		i = c.rng.IntN(len(s.Endpoints))
	}
	switch p := c.rng.Float64(); {
	case p < 0.30 || i < 0:
		s.Endpoints = append(s.Endpoints, c.endpoints(s, []*discoveryv1.EndpointSlice{s}, 1+c.rng.IntN(3))...)
	case p < 0.50:
		s.Endpoints = slices.Delete(s.Endpoints, i, i+1)
	case p < 0.75:
		s.Endpoints[i].Conditions = c.conditions()
	case p < 0.82:
		s.Endpoints = nil
	case p < 0.90:
		kind := c.rng.IntN(10)
		for n := range s.Endpoints {
			c.setHints(&s.Endpoints[n], kind)
		}
	case p < 0.93:
		s.Endpoints[i].NodeName = ptr.To(oneOfThe(c, "node-0", "node-1"))
	case p < 0.97:
		if svc, there := c.find(s.Namespace, s.Labels[discoveryv1.LabelServiceName]); there {
			c.setSlicePorts(s, svc)
		}
	default:
		c.relabel(s)
	}
	c.put(sim.Update, s)
}

// relabel moves a slice to another Service or to none, or hides it from proxiers.
func (c *Cluster) relabel(s *discoveryv1.EndpointSlice) {
	switch c.rng.IntN(3) {
	case 0:
		if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
			delete(s.Labels, corev1.IsHeadlessService)
		} else {
			s.Labels[corev1.IsHeadlessService] = ""
		}
	case 1:
		delete(s.Labels, discoveryv1.LabelServiceName)
	case 2:
		if svc := c.anyService(); svc.Namespace == s.Namespace {
			s.Labels[discoveryv1.LabelServiceName] = svc.Name
		}
	}
}
