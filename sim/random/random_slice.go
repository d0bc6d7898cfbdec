package random

import (
	"fmt"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"slices"
	"synclab/sim/world"
)

// slicesOf makes the slices of a Service: none, one or several a family, sometimes of a family that the Service does
// not have.
func (c *Cluster) slicesOf(svc *corev1.Service) []*discoveryv1.EndpointSlice {
	families := svc.Spec.IPFamilies
	if c.chance(0.08) {
		families = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	}
	var made []*discoveryv1.EndpointSlice
	for _, family := range families {
		for range oneOfThe(c, 0, 1, 1, 1, 1, 1, 2, 2, 3) {
			made = append(made, c.slice(svc, family, made))
		}
	}
	return made
}

// slice makes one more slice of a Service. others are its slices that are not in the cluster yet.
func (c *Cluster) slice(svc *corev1.Service, family corev1.IPFamily, others []*discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: svc.Namespace, Name: c.sliceName(svc, others), CreationTimestamp: svc.CreationTimestamp,
			Labels: map[string]string{
				discoveryv1.LabelServiceName: svc.Name,
				discoveryv1.LabelManagedBy:   "endpointslice-controller.k8s.io",
			},
		},
		AddressType: discoveryv1.AddressType(family),
	}
	s.UID = world.UIDOf(c.options.Seed, fmt.Sprintf("slice/%s/%s/%d", s.Namespace, s.Name, c.version))
	if len(svc.Spec.Selector) == 0 {
		s.Labels[discoveryv1.LabelManagedBy] = "by-hand.example.com"
	}
	if svc.Spec.ClusterIP == corev1.ClusterIPNone && c.chance(0.7) {
		s.Labels[corev1.IsHeadlessService] = ""
	}
	c.setSlicePorts(s, svc)
	s.Endpoints = c.endpoints(s, others, oneOfThe(c, 0, 1, 1, 2, 2, 3, 3, 4, 5, 9))
	return s
}

func (c *Cluster) sliceName(svc *corev1.Service, others []*discoveryv1.EndpointSlice) string {
	for {
		name := fmt.Sprintf("%s-%c%c", svc.Name, 'a'+rune(c.rng.IntN(26)), 'a'+rune(c.rng.IntN(26)))
		taken := func(s *discoveryv1.EndpointSlice) bool { return s.Namespace == svc.Namespace && s.Name == name }
		if !slices.ContainsFunc(others, taken) && !slices.ContainsFunc(c.objects.Slices, taken) {
			return name
		}
	}
}

// setSlicePorts draws ports that match the Service, or nearly match it.
func (c *Cluster) setSlicePorts(s *discoveryv1.EndpointSlice, svc *corev1.Service) {
	s.Ports = nil
	if c.chance(0.04) {
		return // in the API: no port restriction
	}
	for _, port := range svc.Spec.Ports {
		if c.chance(0.06) {
			continue
		}
		number := port.TargetPort.IntVal
		if number == 0 || c.chance(0.1) { // a name, which may have another number in each pod
			number = oneOfThe[int32](c, 8080, 8081, 53, 65535)
		}
		p := discoveryv1.EndpointPort{Name: ptr.To(port.Name), Protocol: ptr.To(port.Protocol), Port: ptr.To(number), AppProtocol: port.AppProtocol}
		if c.chance(0.04) {
			p.Protocol = ptr.To(oneOfThe(c, corev1.ProtocolTCP, corev1.ProtocolUDP))
		}
		if c.chance(0.03) && !c.options.ForOldProxies {
			p.Port = nil
		}
		s.Ports = append(s.Ports, p)
	}
	if c.chance(0.06) {
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("unknown"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](9)})
	}
}

// siblings returns the other slices of the Service that a slice belongs to.
func (c *Cluster) siblings(s *discoveryv1.EndpointSlice) []*discoveryv1.EndpointSlice {
	var found []*discoveryv1.EndpointSlice
	for _, other := range c.objects.Slices {
		if other.Namespace == s.Namespace && other.Name != s.Name && other.AddressType == s.AddressType &&
			other.Labels[discoveryv1.LabelServiceName] == s.Labels[discoveryv1.LabelServiceName] {
			found = append(found, other)
		}
	}
	return found
}

// endpoints makes n endpoints for a slice. Sometimes one has an address of another slice of the Service: a pod that
// moves from slice to slice, or a new pod with the address of a terminating one.
func (c *Cluster) endpoints(s *discoveryv1.EndpointSlice, others []*discoveryv1.EndpointSlice, n int) []discoveryv1.Endpoint {
	known := map[string]discoveryv1.Endpoint{}
	for _, other := range slices.Concat(others, c.siblings(s)) {
		if other.AddressType == s.AddressType {
			addKnown(known, other.Endpoints)
		}
	}
	var made []discoveryv1.Endpoint
	hints := c.rng.IntN(10)
	for range n {
		ep := c.endpoint(s.AddressType, hints)
		if old, twice := known[ep.Addresses[0]]; twice {
			if c.chance(0.8) {
				continue
			}
			c.duplicate(&ep, &old)
		}
		addKnown(known, []discoveryv1.Endpoint{ep})
		made = append(made, ep)
	}
	return made
}

func addKnown(known map[string]discoveryv1.Endpoint, endpoints []discoveryv1.Endpoint) {
	for _, ep := range endpoints {
		if _, there := known[ep.Addresses[0]]; !there {
			known[ep.Addresses[0]] = ep
		}
	}
}

// duplicate makes ep the second endpoint at the address of old: a copy, the running or the terminating one of two, or,
// rarely, anything.
func (c *Cluster) duplicate(ep, old *discoveryv1.Endpoint) {
	terminating := discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(c.chance(0.5)), Terminating: ptr.To(true)}
	switch p := c.rng.Float64(); {
	case p < 0.4:
		*ep = *old.DeepCopy()
	case p < 0.9 && old.Conditions.Terminating != nil && *old.Conditions.Terminating:
		ep.Conditions.Terminating = nil
	case p < 0.9:
		ep.Conditions = terminating
	}
}

func (c *Cluster) endpoint(family discoveryv1.AddressType, hints int) discoveryv1.Endpoint {
	if family == discoveryv1.AddressTypeFQDN {
		return discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("host-%d.example.com", c.rng.IntN(9))}}
	}
	address := func() string {
		return c.address(corev1.IPFamily(family), "10.128.0.", "fd00:10:128::", 1+c.rng.IntN(60))
	}
	ep := discoveryv1.Endpoint{Addresses: []string{address()}, Conditions: c.conditions()}
	if c.chance(0.05) {
		ep.Addresses = append(ep.Addresses, address()) // consumers use the first
	}
	switch p := c.rng.Float64(); {
	case p < 0.35:
		ep.NodeName = ptr.To("node-0")
	case p < 0.85:
		ep.NodeName = ptr.To(fmt.Sprintf("node-%d", 1+c.rng.IntN(randomNodes-1)))
	case p < 0.92:
		ep.NodeName = ptr.To("gone")
	}
	if c.chance(0.7) {
		ep.Zone = ptr.To(c.zone())
	}
	c.setHints(&ep, hints)
	return ep
}

// conditions returns mostly what the controller writes, and sometimes any of the 27 combinations.
func (c *Cluster) conditions() discoveryv1.EndpointConditions {
	any3 := func() *bool { return oneOfThe(c, nil, ptr.To(true), ptr.To(false)) }
	switch p := c.rng.Float64(); {
	case p < 0.5:
		return discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}
	case p < 0.6:
		return discoveryv1.EndpointConditions{}
	case p < 0.7:
		return discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	}
	return discoveryv1.EndpointConditions{Ready: any3(), Serving: any3(), Terminating: any3()}
}

// setHints draws hints. kind is the same for all endpoints of a slice: hints count only if all of them have hints.
func (c *Cluster) setHints(ep *discoveryv1.Endpoint, kind int) {
	ep.Hints = nil
	if kind < 6 || c.chance(0.05) {
		return
	}
	ep.Hints = &discoveryv1.EndpointHints{}
	if kind != 7 {
		for range 1 + c.oneIn(5) {
			ep.Hints.ForZones = append(ep.Hints.ForZones, discoveryv1.ForZone{Name: c.zone()})
		}
	}
	if kind == 7 || kind == 8 {
		ep.Hints.ForNodes = []discoveryv1.ForNode{{Name: fmt.Sprintf("node-%d", c.rng.IntN(3))}}
	}
}

// straySlice returns a slice without a Service, of a missing Service, or with names instead of addresses.
func (c *Cluster) straySlice() *discoveryv1.EndpointSlice {
	c.stray++
	like := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("stray-%d", c.stray)}}
	like.Spec.Selector = map[string]string{"app": "stray"}
	like.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	s := c.slice(like, c.anyFamily(), nil)
	switch c.rng.IntN(3) {
	case 0:
		delete(s.Labels, discoveryv1.LabelServiceName)
	case 1: // of a missing Service
	case 2:
		if n := len(c.objects.Services); n > 0 {
			svc := c.objects.Services[c.rng.IntN(n)]
			s.Namespace, s.Name = svc.Namespace, fmt.Sprintf("names-%d", c.stray)
			s.Labels[discoveryv1.LabelServiceName] = svc.Name
		}
		s.AddressType, s.Endpoints = discoveryv1.AddressTypeFQDN, []discoveryv1.Endpoint{c.endpoint(discoveryv1.AddressTypeFQDN, 0)}
	}
	return s
}
