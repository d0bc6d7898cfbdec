package world

import (
	"fmt"
	"net/netip"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"synclab/internal/inet"
	"synclab/scenarios"
	"synclab/sim"
)

// Generate returns the cluster of a shape: its Nodes, its Services with every field that the API server would default
// or allocate, and their EndpointSlices as the EndpointSlice controller packs them. Same shape and seed, same bytes;
// with more Services, the first ones stay the same.
func Generate(shape scenarios.Shape, seed uint64) (*sim.Objects, error) {
	w, err := NewWorld(shape, seed)
	if err != nil {
		return nil, err
	}
	if err := w.createServices(w.shape.Services, func(*workload) {}); err != nil {
		return nil, err
	}
	return w.Objects(), nil
}

// The kinds of Service that a shape takes, by the name it uses, besides ClusterIP.
const (
	kindNodePort     = "NodePort"
	kindLoadBalancer = "LoadBalancer"
	kindHeadless     = "Headless"
	kindExternalName = "ExternalName"
	kindClusterIP    = "ClusterIP"
)

// The order of shares is part of what makes the same seed give the same bytes.
var (
	serviceKinds  = []string{kindNodePort, kindLoadBalancer, kindHeadless, kindExternalName, kindClusterIP}
	protocolKinds = []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolSCTP, corev1.ProtocolTCP}
)

// pick returns the name whose share u falls into, or the last name.
func pick[T ~string](names []T, shares map[string]float64, u float64) T {
	for _, name := range names[:len(names)-1] {
		if u < shares[string(name)] {
			return name
		}
		u -= shares[string(name)]
	}
	return names[len(names)-1]
}

// First port of a Service, and of its pods; further ports follow.
const firstPort, firstTargetPort = 80, 8080

// newService returns the i-th Service, "svc-<i>", without endpoints. All but its name and addresses is drawn for the
// index like.
func (w *World) newService(i, like int) (*workload, error) {
	name := fmt.Sprintf("svc-%05d", i)
	namespace := fmt.Sprintf("ns-%02d", i%w.shape.Namespaces)
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:              name,
			Namespace:         namespace,
			UID:               UIDOf(w.seed, "service/"+name),
			CreationTimestamp: metav1.NewTime(Epoch.Add(time.Duration(i) * time.Second)),
			Labels:            map[string]string{"app": name},
		},
		Spec: corev1.ServiceSpec{
			Type:            corev1.ServiceTypeClusterIP,
			SessionAffinity: corev1.ServiceAffinityNone,
		},
	}
	l := &workload{service: s, like: like}
	kind := pick(serviceKinds, w.shape.Types, draw(w.seed, traitType, like))
	if kind == kindExternalName {
		s.Spec.Type = corev1.ServiceTypeExternalName
		s.Spec.ExternalName = name + ".example.com"
		return l, nil
	}
	s.Spec.Selector = map[string]string{"app": name}
	w.setPorts(s, like)
	w.setFamilies(s)
	cluster := corev1.ServiceInternalTrafficPolicyCluster
	s.Spec.InternalTrafficPolicy = &cluster
	for _, family := range w.families {
		l.groups = append(l.groups, sliceGroup{family: discoveryv1.AddressType(family)})
	}
	l.nameless = draw(w.seed, traitNameless, like) < w.shape.WithoutTargetRef
	l.hints = draw(w.seed, traitHints, like) < w.shape.TopologyHints
	if l.hints {
		same := corev1.ServiceTrafficDistributionPreferSameZone
		s.Spec.TrafficDistribution = &same
	}
	if kind == kindHeadless {
		s.Spec.ClusterIP = corev1.ClusterIPNone
		s.Spec.ClusterIPs = []string{corev1.ClusterIPNone}
		return l, nil
	}
	if kind != kindClusterIP {
		s.Spec.Type = corev1.ServiceType(kind)
	}
	if err := w.setReach(s, like); err != nil {
		w.release(s)
		return nil, fmt.Errorf("service %s/%s: %w", namespace, name, err)
	}
	return l, nil
}

// setPorts sets the ports of a Service. A single port has no name, as in most Services.
func (w *World) setPorts(s *corev1.Service, i int) {
	protocol := pick(protocolKinds, w.shape.Protocols, draw(w.seed, traitProtocol, i))
	s.Spec.Ports = make([]corev1.ServicePort, w.shape.Ports)
	for k := range s.Spec.Ports {
		port := corev1.ServicePort{
			Protocol:   protocol,
			Port:       int32(firstPort + k),
			TargetPort: intstr.FromInt32(int32(firstTargetPort + k)),
		}
		if w.shape.Ports > 1 {
			port.Name = "port-" + strconv.Itoa(firstPort+k)
		}
		s.Spec.Ports[k] = port
	}
}

func (w *World) setFamilies(s *corev1.Service) {
	policy := corev1.IPFamilyPolicySingleStack
	if len(w.families) > 1 {
		policy = corev1.IPFamilyPolicyRequireDualStack
	}
	s.Spec.IPFamilyPolicy = &policy
	s.Spec.IPFamilies = w.families
}

// setReach sets a Service's addresses, node ports, and traffic policies.
func (w *World) setReach(s *corev1.Service, i int) error {
	var err error
	if s.Spec.ClusterIPs, err = w.takeAll(w.clusterIPs); err != nil {
		return err
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	if draw(w.seed, traitAffinity, i) < w.shape.Affinity {
		timeout := corev1.DefaultClientIPServiceAffinitySeconds
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &timeout}}
	}
	if draw(w.seed, traitInternalLocal, i) < w.shape.InternalLocal {
		local := corev1.ServiceInternalTrafficPolicyLocal
		s.Spec.InternalTrafficPolicy = &local
	}
	if draw(w.seed, traitExternalIPs, i) < w.shape.ExternalIPs {
		if s.Spec.ExternalIPs, err = w.takeAll(w.externalIPs); err != nil {
			return err
		}
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	if s.Spec.Type == corev1.ServiceTypeClusterIP {
		return nil
	}
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	if draw(w.seed, traitExternalLocal, i) < w.shape.ExternalLocal {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	for k := range s.Spec.Ports {
		if s.Spec.Ports[k].NodePort, err = w.nodePorts.take(); err != nil {
			return err
		}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		return w.setLoadBalancer(s, i)
	}
	return nil
}

func (w *World) setLoadBalancer(s *corev1.Service, i int) error {
	yes := true
	s.Spec.AllocateLoadBalancerNodePorts = &yes
	addresses, err := w.takeAll(w.loadBalancerIPs)
	if err != nil {
		return err
	}
	vip := corev1.LoadBalancerIPModeVIP
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a, IPMode: &vip})
	}
	if s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal {
		if s.Spec.HealthCheckNodePort, err = w.nodePorts.take(); err != nil {
			return err
		}
	}
	if draw(w.seed, traitSourceRanges, i) < w.shape.SourceRanges {
		s.Spec.LoadBalancerSourceRanges = w.sourceRanges(s.Name)
	}
	return nil
}

// Client addresses of load balancers: shared address space (RFC 6598) and documentation.
var clientRanges = map[corev1.IPFamily]netip.Prefix{
	corev1.IPv4Protocol: netip.MustParsePrefix("100.64.0.0/10"),
	corev1.IPv6Protocol: netip.MustParsePrefix("2001:db8:64::/48"),
}

// sourceRanges returns one to three ranges of each family.
func (w *World) sourceRanges(name string) []string {
	high, low := words(w.seed, "ranges/"+name)
	var ranges []string
	for _, family := range w.families {
		for k := range 1 + high%3 {
			// Steps of 256 addresses (/24) or of 2^64 (/64), different for each k.
			n, length, shift := low%4096+k, 24, 8
			if family == corev1.IPv6Protocol {
				length, shift = 64, 64
			}
			base := shiftedAddress(clientRanges[family].Addr(), n, shift)
			ranges = append(ranges, netip.PrefixFrom(base, length).String())
		}
	}
	return ranges
}

// takeAll takes one address of each family of the shape.
func (w *World) takeAll(pools map[corev1.IPFamily]*addressRange) ([]string, error) {
	var addresses []string
	for _, family := range w.families {
		addr, err := pools[family].take()
		if err != nil {
			return addresses, err
		}
		addresses = append(addresses, addr.String())
	}
	return addresses, nil
}

// release frees the addresses and ports of a Service.
func (w *World) release(s *corev1.Service) {
	giveAll := func(pools map[corev1.IPFamily]*addressRange, address string) {
		if addr, ok := inet.ParseAddr(address); ok && pools[inet.FamilyOf(addr)] != nil {
			pools[inet.FamilyOf(addr)].give(addr)
		}
	}
	for _, a := range s.Spec.ClusterIPs {
		giveAll(w.clusterIPs, a)
	}
	for _, a := range s.Spec.ExternalIPs {
		giveAll(w.externalIPs, a)
	}
	for _, in := range s.Status.LoadBalancer.Ingress {
		giveAll(w.loadBalancerIPs, in.IP)
	}
	for _, p := range s.Spec.Ports {
		w.nodePorts.give(p.NodePort)
	}
	w.nodePorts.give(s.Spec.HealthCheckNodePort)
}

// initialEndpoints returns how many endpoints the i-th Service starts with.
func (w *World) initialEndpoints(i int) int {
	if draw(w.seed, traitWithoutEndpoint, i) < w.shape.WithoutEndpoint {
		return 0
	}
	return w.counts.of(draw(w.seed, traitEndpoints, i))
}

// initialConditions returns the conditions of the n-th pod of the cluster.
func (w *World) initialConditions(n int) discoveryv1.EndpointConditions {
	u := draw(w.seed, traitCondition, n)
	switch terminating := w.shape.Terminating; {
	case u < terminating/2:
		return w.conditions.draining
	case u < terminating:
		return w.conditions.stopping
	case u < terminating+w.shape.NotReady:
		return w.conditions.unready
	default:
		return w.conditions.ready
	}
}
