package nftables

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/verify/walk"
	"synclab/bench/verify/walk/walktest"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// cluster makes random events with few addresses, where Services conflict: over addresses and NodePorts most of all.
type cluster struct {
	rng      *rand.Rand
	family   corev1.IPFamily
	tracker  *tracker.Tracker
	plan     *plan.Plan
	services map[int]*corev1.Service
	slices   map[int]*discoveryv1.EndpointSlice
}

const clusterServices = 8

func newCluster(seed uint64, family corev1.IPFamily) *cluster {
	return &cluster{
		rng: rand.New(rand.NewPCG(seed, 7)), family: family,
		tracker:  tracker.New(tracker.Options{Family: family, NodeName: "node-0"}),
		plan:     plan.New(plan.Node{Name: "node-0", Zone: "a"}),
		services: map[int]*corev1.Service{}, slices: map[int]*discoveryv1.EndpointSlice{},
	}
}

func (c *cluster) chance(p float64) bool { return c.rng.Float64() < p }

// addr returns address number n of a network.
func (c *cluster) addr(network, n int) string {
	if c.family == corev1.IPv6Protocol {
		return fmt.Sprintf("fd00:%d::%x", network, n)
	}
	return fmt.Sprintf("10.%d.0.%d", network, n)
}

func (c *cluster) mustAddr(network, n int) netip.Addr { return netip.MustParseAddr(c.addr(network, n)) }

// The networks of the cluster; the node's first address is number 1 of its network.
const (
	netServices, netPods, netLocalPods, netOutside, netNode = 96, 128, 129, 50, 20
)

// step makes one event.
func (c *cluster) step() {
	i, now := c.rng.IntN(clusterServices), time.Unix(0, 0)
	if c.chance(0.5) {
		if old := c.slices[i]; old != nil && c.chance(0.1) {
			delete(c.slices, i)
			c.tracker.DeleteSlice(old, now)
			return
		}
		c.slices[i] = c.slice(i)
		c.tracker.SetSlice(c.slices[i], now)
		return
	}
	if old := c.services[i]; old != nil && c.chance(0.3) {
		delete(c.services, i)
		c.tracker.DeleteService(old, now)
		return
	}
	c.services[i] = c.service(i)
	c.tracker.SetService(c.services[i], now)
}

// take updates the plan.
func (c *cluster) take() plan.Delta {
	changes := c.tracker.Take()
	c.tracker.Commit(changes)
	return c.plan.Update(changes.Services)
}

func (c *cluster) service(i int) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("svc-%d", i), CreationTimestamp: metav1.Unix(int64(c.rng.IntN(3)), 0)},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIP: c.addr(netServices, 1+c.rng.IntN(5))},
	}
	s := &svc.Spec
	port := corev1.ServicePort{Name: "p", Protocol: corev1.ProtocolTCP, Port: int32(80 + c.rng.IntN(2))}
	if c.chance(0.3) {
		port.Protocol = corev1.ProtocolUDP
	}
	if c.chance(0.6) {
		s.Type = corev1.ServiceTypeNodePort
		port.NodePort = int32(30000 + c.rng.IntN(3))
	}
	s.Ports = []corev1.ServicePort{port}
	if s.Type == corev1.ServiceTypeNodePort && c.chance(0.6) {
		s.Type = corev1.ServiceTypeLoadBalancer
		for range 1 + c.rng.IntN(2) {
			svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: c.addr(netServices, 3+c.rng.IntN(4))})
		}
		for range c.rng.IntN(3) {
			bits := []int{24, 32, 28}[c.rng.IntN(3)]
			if c.family == corev1.IPv6Protocol {
				bits += 96
			}
			network := []int{netOutside, netLocalPods, netNode}[c.rng.IntN(3)]
			s.LoadBalancerSourceRanges = append(s.LoadBalancerSourceRanges, fmt.Sprintf("%s/%d", c.addr(network, 1+c.rng.IntN(2)), bits))
		}
	}
	if c.chance(0.3) {
		s.ExternalIPs = []string{c.addr(netServices, 3+c.rng.IntN(4))}
		if c.chance(0.3) {
			s.ExternalIPs = []string{c.addr(netNode, 1)} // the node itself, where NodePorts are
			s.Ports[0].Port = int32(30000 + c.rng.IntN(3))
		}
	}
	if c.chance(0.3) {
		s.SessionAffinity = corev1.ServiceAffinityClientIP
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(100 * (1 + c.rng.IntN(2))))}}
	}
	if c.chance(0.2) {
		s.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
	}
	if c.chance(0.5) {
		s.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		if s.Type == corev1.ServiceTypeLoadBalancer {
			s.HealthCheckNodePort = int32(32000 + c.rng.IntN(2))
		}
	}
	return svc
}

func (c *cluster) slice(i int) *discoveryv1.EndpointSlice {
	obj := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: fmt.Sprintf("svc-%d", i), Labels: map[string]string{discoveryv1.LabelServiceName: fmt.Sprintf("svc-%d", i)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	if c.family == corev1.IPv6Protocol {
		obj.AddressType = discoveryv1.AddressTypeIPv6
	}
	for _, protocol := range []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP} {
		obj.Ports = append(obj.Ports, discoveryv1.EndpointPort{Name: ptr.To("p"), Protocol: ptr.To(protocol), Port: ptr.To(int32(8080))})
	}
	for _, n := range c.rng.Perm(5)[:c.rng.IntN(5)] {
		network, node := netPods, ptr.To("node-1")
		switch {
		case c.chance(0.4):
			network, node = netLocalPods, ptr.To("node-0")
		case c.chance(0.1):
			node = []*string{nil, ptr.To("node-0")}[c.rng.IntN(2)] // the address is, or may be, here now
		}
		obj.Endpoints = append(obj.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{c.addr(network, 1+n)}, NodeName: node, Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(c.chance(0.9))},
		})
	}
	return obj
}

// settings returns random values for the other inputs of the rules.
func (c *cluster) settings() backend.Settings {
	s := backend.Settings{
		Family: c.family, MasqueradeBit: 14, MasqueradeAll: c.chance(0.2), NodeIP: c.mustAddr(netNode, 1), RandomFully: true,
		DropInvalid: c.chance(0.5), LocalhostNodePorts: c.family == corev1.IPv4Protocol && c.chance(0.5),
	}
	switch c.rng.IntN(4) {
	case 0:
		s.Local.Source, _ = c.mustAddr(netLocalPods, 0).Prefix(24)
		if c.family == corev1.IPv6Protocol {
			s.Local.Source, _ = c.mustAddr(netLocalPods, 0).Prefix(32)
		}
	case 1:
		s.Local.Interface = "cbr0"
	case 2:
		s.Local.InterfacePrefix = "veth"
	}
	if c.chance(0.4) {
		s.NodePortAddresses = []netip.Addr{c.mustAddr(netNode, 1)}
		if c.chance(0.5) {
			loopback := netip.IPv6Loopback()
			if c.family == corev1.IPv4Protocol {
				loopback = netip.MustParseAddr("127.0.0.1")
			}
			s.NodePortAddresses = append(s.NodePortAddresses, loopback)
		}
	}
	return s
}

func (c *cluster) world() walk.NodeAddresses {
	return walk.NodeAddresses{Local: []netip.Addr{c.mustAddr(netNode, 1), c.mustAddr(netNode, 2)}}
}

// packets returns packets for all that is or was in the plan.
func (c *cluster) packets(before []*plan.ServicePort, least int) []walk.Packet {
	ipv4 := c.family == corev1.IPv4Protocol
	p := walk.PacketSet{
		Frontends: walktest.PlannedFrontends(append(before, c.plan.Ports()...)), World: c.world(), Seed: c.rng.Uint64(), Least: least,
		Sources: []walk.Source{
			{What: "pod here", Input: "veth7", Addr: c.mustAddr(netLocalPods, 2)},
			{What: "pod on the bridge", Input: "cbr0", Addr: c.mustAddr(netLocalPods, 3)},
			{What: "pod elsewhere", Input: "eth0", Addr: c.mustAddr(netPods, 1)},
			{What: "outside", Input: "eth0", Addr: c.mustAddr(netOutside, 1)},
			{What: "outside 2", Input: "eth0", Addr: c.mustAddr(netOutside, 99)},
			{What: "the node", Addr: c.mustAddr(netNode, 1)},
			{What: "the node by a load balancer", Addr: c.mustAddr(netServices, 4)},
		},
	}
	return p.Packets(ipv4)
}

var bothFamilies = []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// seeds runs a test on some clusters of each family. The test's name has the seed.
func seeds(t *testing.T, n int, test func(t *testing.T, c *cluster)) {
	short = 1 // lists of a few endpoints move between maps, too
	t.Cleanup(func() { short = shortBits })
	for _, family := range bothFamilies {
		for seed := range n {
			t.Run(fmt.Sprintf("%s/seed=%d", family, seed), func(t *testing.T) { test(t, newCluster(uint64(seed), family)) })
		}
	}
}
