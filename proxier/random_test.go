package proxier

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

// randomCluster makes random events that vary every field of Services and EndpointSlices that a proxier reads.
type randomCluster struct {
	rng      *rand.Rand
	family   corev1.IPFamily
	size     int // Services at most
	services map[int]*corev1.Service
	slices   map[[2]int]*discoveryv1.EndpointSlice
	// sole: no two Services claim one external IP.
	sole bool
}

const (
	randomServices = 12
	randomSlices   = 3
)

func newRandomCluster(seed uint64, family corev1.IPFamily) *randomCluster {
	return &randomCluster{
		rng: rand.New(rand.NewPCG(seed, 1)), family: family, size: randomServices,
		services: map[int]*corev1.Service{}, slices: map[[2]int]*discoveryv1.EndpointSlice{},
	}
}

func (c *randomCluster) chance(p float64) bool { return c.rng.Float64() < p }

func (c *randomCluster) addr(v4, v6 string, n int) string {
	if c.family == corev1.IPv6Protocol {
		return fmt.Sprintf("%s%x", v6, n)
	}
	return fmt.Sprintf("%s%d", v4, n)
}

// step makes one event and passes it to the engine.
func (c *randomCluster) step(e *engine) {
	now := e.clock.Now()
	i := c.rng.IntN(c.size)
	if c.chance(0.35) {
		if old := c.services[i]; old != nil && c.chance(0.3) {
			delete(c.services, i)
			e.tracker.DeleteService(old, now)
			return
		}
		c.services[i] = c.service(i)
		e.tracker.SetService(c.services[i], now)
		return
	}
	key := [2]int{i, c.rng.IntN(randomSlices)}
	if old := c.slices[key]; old != nil && c.chance(0.2) {
		delete(c.slices, key)
		e.tracker.DeleteSlice(old, now)
		return
	}
	c.slices[key] = c.slice(key)
	e.tracker.SetSlice(c.slices[key], now)
}

// tell passes all existing objects to a fresh engine.
func (c *randomCluster) tell(e *engine) {
	for _, svc := range c.services {
		e.tracker.SetService(svc, e.clock.Now())
	}
	for _, slice := range c.slices {
		e.tracker.SetSlice(slice, e.clock.Now())
	}
}

func (c *randomCluster) service(i int) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i), CreationTimestamp: metav1.Unix(int64(1000+i%5), 0)},
		Spec: corev1.ServiceSpec{
			Type:      corev1.ServiceTypeClusterIP,
			ClusterIP: c.addr("10.96.0.", "fd00:96::", i+1),
		},
	}
	s := &svc.Spec
	protocols := []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	for n := range 1 + c.rng.IntN(2) {
		s.Ports = append(s.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("p%d", n), Protocol: protocols[c.rng.IntN(3)], Port: int32(80 + n), TargetPort: intstr.FromInt(8080),
		})
	}
	if c.chance(0.5) {
		s.Type = corev1.ServiceTypeNodePort
		for n := range s.Ports {
			s.Ports[n].NodePort = int32(30000 + i*10 + n)
		}
	}
	if s.Type == corev1.ServiceTypeNodePort && c.chance(0.5) {
		s.Type = corev1.ServiceTypeLoadBalancer
		svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: c.addr("198.18.0.", "fd00:18::", i+1)}}
		if c.chance(0.5) {
			s.LoadBalancerSourceRanges = []string{c.addr("203.0.113.", "fd00:113::", 0) + "/24", " " + c.addr("192.0.2.", "fd00:2::", 1) + "/32"}
		}
	}
	if c.chance(0.3) {
		n := 10 + i%3 // shared by some: conflicts
		if c.sole {
			n = 10 + i
		}
		s.ExternalIPs = []string{c.addr("192.0.2.", "fd00:2::", n)}
	}
	if c.chance(0.3) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	if c.chance(0.3) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if c.chance(0.3) && s.Type != corev1.ServiceTypeClusterIP {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		if s.Type == corev1.ServiceTypeLoadBalancer {
			s.HealthCheckNodePort = int32(32000 + i)
		}
	}
	return svc
}

func (c *randomCluster) slice(key [2]int) *discoveryv1.EndpointSlice {
	family := discoveryv1.AddressTypeIPv4
	if c.family == corev1.IPv6Protocol {
		family = discoveryv1.AddressTypeIPv6
	}
	obj := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("svc-%d-%d", key[0], key[1]),
			Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc-%d", key[0])},
		},
		AddressType: family,
	}
	for n := range 2 {
		for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP} {
			obj.Ports = append(obj.Ports, discoveryv1.EndpointPort{Name: ptr.To(fmt.Sprintf("p%d", n)), Protocol: ptr.To(protocol), Port: ptr.To(int32(8080 + n))})
		}
	}
	hints := c.chance(0.3)
	for range c.rng.IntN(5) {
		ep := discoveryv1.Endpoint{
			Addresses: []string{c.addr("10.128.0.", "fd00:128::", 1+c.rng.IntN(20))}, // some in two slices
			NodeName:  ptr.To(fmt.Sprintf("node-%d", c.rng.IntN(3))),
		}
		if c.chance(0.3) {
			ep.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(c.chance(0.5)), Terminating: ptr.To(c.chance(0.7))}
		}
		if hints {
			ep.Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprintf("zone-%d", c.rng.IntN(2))}}}
		}
		obj.Endpoints = append(obj.Endpoints, ep)
	}
	return obj
}
