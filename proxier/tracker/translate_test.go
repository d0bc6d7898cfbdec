package tracker

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Unset conditions mean: ready, serving, not terminating, not local.
func TestEndpointConditions(t *testing.T) {
	yes, no := ptr.To(true), ptr.To(false)
	for _, c := range []struct {
		name       string
		conditions discoveryv1.EndpointConditions
		node       *string
		want       Endpoint
	}{
		{"nothing said", discoveryv1.EndpointConditions{}, nil, Endpoint{Ready: true, Serving: true}},
		{"all said", discoveryv1.EndpointConditions{Ready: yes, Serving: yes, Terminating: no}, ptr.To("here"),
			Endpoint{Ready: true, Serving: true, Local: true}},
		{"not ready", discoveryv1.EndpointConditions{Ready: no, Serving: no}, ptr.To("there"), Endpoint{Elsewhere: true}},
		{"not ready, serving unsaid", discoveryv1.EndpointConditions{Ready: no}, nil, Endpoint{Serving: true}},
		{"draining", discoveryv1.EndpointConditions{Ready: no, Serving: yes, Terminating: yes}, nil,
			Endpoint{Serving: true, Terminating: true}},
		{"stopping", discoveryv1.EndpointConditions{Ready: no, Serving: no, Terminating: yes}, ptr.To(""), Endpoint{Terminating: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			obj := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: c.conditions, NodeName: c.node}
			slice := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{obj}}
			got := translateEndpoints(slice, 80, "here", &hintsPool{})
			c.want.Addr, c.want.Text = netip.MustParseAddrPort("10.0.0.1:80"), "10.0.0.1:80"
			if diff := cmp.Diff([]*Endpoint{&c.want}, got, cmpopts.EquateComparable(netip.AddrPort{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestIgnoredOfSlices(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*discoveryv1.EndpointSlice)
		want   []string
	}{
		{"as it is", func(*discoveryv1.EndpointSlice) {}, []string{"10.0.0.1:8080"}},
		{"port without a name", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = nil }, nil},
		{"port without a number", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil }, nil},
		{"port 0", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = ptr.To[int32](0) }, nil},
		{"port without a protocol is TCP", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = nil }, []string{"10.0.0.1:8080"}},
		{"port of another protocol", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Protocol = ptr.To(corev1.ProtocolUDP) }, nil},
		{"port of another name", func(s *discoveryv1.EndpointSlice) { s.Ports[0].Name = ptr.To("https") }, nil},
		{"no ports", func(s *discoveryv1.EndpointSlice) { s.Ports = nil }, nil},
		{"no addresses", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil }, nil},
		{"several addresses", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"10.0.0.2", "10.0.0.3"} },
			[]string{"10.0.0.2:8080"}},
		{"no address at all", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"localhost"} }, nil},
		{"leading zeros", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"010.000.000.010"} }, []string{"10.0.0.10:8080"}},
		{"address of the other family", func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"fd00::1"} }, nil},
		{"other family", func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }, nil},
		{"names", func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }, nil},
		{"no Service", func(s *discoveryv1.EndpointSlice) { s.Labels = nil }, nil},
		{"Service of another namespace", func(s *discoveryv1.EndpointSlice) { s.Namespace = "other" }, nil},
		{"headless", func(s *discoveryv1.EndpointSlice) { s.Labels[LabelHeadless] = "" }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := newTracker()
			tr.SetService(testService(nil), at(0))
			slice := testSlice("a", at(0), "10.0.0.1")
			c.change(slice)
			tr.SetSlice(slice, at(0))
			for _, change := range tr.Take().Services {
				if change.Name != svcName {
					continue
				}
				if diff := cmp.Diff(c.want, texts(change.New)); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

// Endpoints are sorted by text, as kube-proxy writes them. The order determines the probability of each rule.
func TestEndpointsAreSortedByText(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(0))
	tr.SetSlice(testSlice("a", at(0), "10.0.0.9", "10.0.0.10"), at(0))
	tr.SetSlice(testSlice("b", at(0), "10.0.0.1"), at(0))
	want := []string{"10.0.0.10:8080", "10.0.0.1:8080", "10.0.0.9:8080"} // "0" sorts before ":"
	if diff := cmp.Diff(want, texts(tr.Take().Services[0].New)); diff != "" {
		t.Error(diff)
	}
}

// A family's proxier ignores these Services.
func TestServicesThatAreSkipped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*corev1.Service)
		v4, v6 bool
	}{
		{"IPv4", nil, true, false},
		{"IPv6", func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "fd00::1", []string{"fd00::1"} }, false, true},
		{"dual stack", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"} }, true, true},
		{"headless", func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, false, false},
		{"headless, both fields", func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.ClusterIPs = corev1.ClusterIPNone, []string{corev1.ClusterIPNone}
		}, false, false},
		{"no cluster IP yet", func(s *corev1.Service) { s.Spec.ClusterIP = "" }, false, false},
		{"ExternalName", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, false, false},
		{"another proxier's", func(s *corev1.Service) { s.Labels = map[string]string{LabelProxyName: ""} }, false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			svc := testService(c.change)
			if got := translateService(svc, svcName, corev1.IPv4Protocol) != nil; got != c.v4 {
				t.Errorf("IPv4: %v", got)
			}
			if got := translateService(svc, svcName, corev1.IPv6Protocol) != nil; got != c.v6 {
				t.Errorf("IPv6: %v", got)
			}
		})
	}
}

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// The fields of a Service, one by one. Each case has the difference from the plain Service.
func TestServicePortFields(t *testing.T) {
	local := corev1.ServiceExternalTrafficPolicyLocal
	loadBalancer := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.HealthCheckNodePort = 32000
		s.Spec.ExternalTrafficPolicy = local
	}
	affinity := func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP }
	for _, c := range []struct {
		name   string
		change func(*corev1.Service)
		want   func(*ServicePort)
	}{
		{"plain", func(*corev1.Service) {}, func(*ServicePort) {}},
		{"no protocol", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = "" }, func(*ServicePort) {}},
		{"node port", func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30080 }, func(p *ServicePort) { p.NodePort = 30080 }},
		{"leading zeros", func(s *corev1.Service) { s.Spec.ClusterIP = "010.096.000.001" }, func(*ServicePort) {}},
		{"external IPs", func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{"192.0.2.9", "fd00::9", "nonsense", "192.0.002.008"}
		},
			func(p *ServicePort) { p.ExternalIPs = addrs("192.0.2.9", "192.0.2.8") }},
		{"load balancer IPs", func(s *corev1.Service) {
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{
				{IP: "198.18.0.1"}, {IP: "198.18.0.2", IPMode: ptr.To(corev1.LoadBalancerIPModeVIP)},
				{IP: "198.18.0.3", IPMode: ptr.To(corev1.LoadBalancerIPModeProxy)}, {Hostname: "lb.example.com"}, {IP: "fd00::1"},
			}
		}, func(p *ServicePort) { p.LoadBalancerVIPs = addrs("198.18.0.1", "198.18.0.2") }},
		{"source ranges", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{" 203.0.113.0/24 ", "fd00::/64", "010.1.0.0/16", "nonsense"}
		}, func(p *ServicePort) {
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.1.0.0/16")}
		}},
		{"mapped source ranges", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"::ffff:203.0.113.0/120", "::ffff:10.0.0.0/104", "::ffff:0.0.0.0/90"}
		}, func(p *ServicePort) {
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("10.0.0.0/8")}
		}},
		{"mapped source ranges for all clients", func(s *corev1.Service) { // as in kube-proxy: a range, not none
			s.Spec.LoadBalancerSourceRanges = []string{"::ffff:0.0.0.0/96", "10.0.0.0/8"}
		}, func(p *ServicePort) {
			p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/8")}
		}},
		{"source ranges for all clients", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "0.0.0.0/0"}
		}, func(*ServicePort) {}},
		{"all clients of the other family", func(s *corev1.Service) {
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", "::/0"}
		}, func(p *ServicePort) { p.SourceRanges = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")} }},
		{"affinity, not defaulted", affinity, func(p *ServicePort) { p.AffinitySeconds = 10800 }},
		{"affinity, half defaulted", func(s *corev1.Service) {
			affinity(s)
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
		}, func(p *ServicePort) { p.AffinitySeconds = 10800 }},
		{"affinity", func(s *corev1.Service) {
			affinity(s)
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To[int32](60)}}
		}, func(p *ServicePort) { p.AffinitySeconds = 60 }},
		{"internal policy", func(s *corev1.Service) {
			s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
		},
			func(p *ServicePort) { p.InternalPolicyLocal = true }},
		{"external policy of a load balancer", loadBalancer,
			func(p *ServicePort) { p.ExternalPolicyLocal, p.HealthCheckNodePort = true, 32000 }},
		{"policy Cluster needs no health check", func(s *corev1.Service) {
			loadBalancer(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}, func(*ServicePort) {}},
		{"external policy of a node port", func(s *corev1.Service) {
			s.Spec.Type, s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = corev1.ServiceTypeNodePort, local, 32000
		}, func(p *ServicePort) { p.ExternalPolicyLocal = true }},
		{"external policy without outside traffic", func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = local }, func(*ServicePort) {}},
		{"external policy of external IPs", func(s *corev1.Service) {
			s.Spec.ExternalTrafficPolicy, s.Spec.ExternalIPs = local, []string{"192.0.2.9"}
		}, func(p *ServicePort) { p.ExternalPolicyLocal, p.ExternalIPs = true, addrs("192.0.2.9") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := &ServicePort{
				Name: ServicePortName{svcName, httpTCP}, ClusterIP: netip.MustParseAddr("10.96.0.1"), Port: 80,
			}
			c.want(want)
			got := translateService(testService(c.change), svcName, corev1.IPv4Protocol)
			if diff := cmp.Diff([]*ServicePort{want}, got.ports, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// One name may be used for TCP and for UDP: each is a Service port, in a stable order.
func TestPortsAreKeyedByNameAndProtocol(t *testing.T) {
	svc := testService(func(s *corev1.Service) {
		s.Spec.Ports = []corev1.ServicePort{
			{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}, {Name: "dns", Protocol: corev1.ProtocolTCP, Port: 53},
			{Name: "alt", Protocol: corev1.ProtocolSCTP, Port: 53},
		}
	})
	var got []string
	for _, p := range translateService(svc, svcName, corev1.IPv4Protocol).ports {
		got = append(got, p.Name.String()+" "+string(p.Name.Protocol))
	}
	if diff := cmp.Diff([]string{"ns/svc:alt SCTP", "ns/svc:dns TCP", "ns/svc:dns UDP"}, got); diff != "" {
		t.Error(diff)
	}
}
