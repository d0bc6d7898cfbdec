package check

import (
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/invariants"
	"synclab/sim"
)

// What may get a packet comes from the objects alone.
func TestDeliverable(t *testing.T) {
	service := func(name string, change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Spec: corev1.ServiceSpec{
			ClusterIPs: []string{"10.96.0.1", "fd00::1"}, Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}}}
		if change != nil {
			change(s)
		}
		return s
	}
	slice := func(of string, endpoints ...discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
		return &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Labels: map[string]string{discoveryv1.LabelServiceName: of}}, AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Port: ptr.To[int32](8080)}}, Endpoints: endpoints}
	}
	end := func(last string, ready, serving, terminating bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{"10.0.0." + last}, Conditions: discoveryv1.EndpointConditions{Ready: &ready, Serving: &serving, Terminating: &terminating}}
	}
	hinted := end("9", true, true, false)
	hinted.Hints = &discoveryv1.EndpointHints{}
	o := &sim.Objects{
		Services: []*corev1.Service{
			service("a", nil), service("unchanged", nil), service("draining", nil), service("none", nil), service("hinted", nil),
			service("local", func(s *corev1.Service) {
				s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyLocal)
			}),
			service("headless", func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"None"} }),
			service("of-others", func(s *corev1.Service) { s.Labels = map[string]string{"service.kubernetes.io/service-proxy-name": ""} }),
			service("sctp", func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolSCTP }),
		},
		Slices: []*discoveryv1.EndpointSlice{
			slice("a", end("1", true, true, false), end("2", false, true, true)), slice("a", discoveryv1.Endpoint{Addresses: []string{"10.0.0.3"}}),
			slice("draining", end("4", false, true, true), end("5", false, false, true)), slice("hinted", hinted),
		},
	}
	changed := map[types.NamespacedName]bool{}
	for _, s := range o.Services {
		changed[types.NamespacedName{Namespace: "ns", Name: s.Name}] = s.Name != "unchanged"
	}
	var got []string
	for _, p := range deliverable(o, []corev1.IPFamily{corev1.IPv4Protocol}, changed) {
		text := p.service + " " + p.at.String()
		for _, at := range []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080", "10.0.0.5:8080"} {
			if p.endpoints[netip.MustParseAddrPort(at)] {
				text += " " + at
			}
		}
		got = append(got, text)
	}
	want := "ns/a:http 10.96.0.1:80 10.0.0.1:8080 10.0.0.3:8080\nns/draining:http 10.96.0.1:80 10.0.0.4:8080\nns/none:http 10.96.0.1:80"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// Without any rule, packets go to no endpoint: that is found, but not held against Services that have none.
func TestDeliverFindsMissingRules(t *testing.T) {
	netns.Fresh(t)
	lone := func(endpoints ...string) servicePort {
		p := servicePort{"ns/a:http", netip.MustParseAddrPort("127.0.0.1:9"), corev1.ProtocolUDP, map[netip.AddrPort]bool{}}
		for _, at := range endpoints {
			p.endpoints[netip.MustParseAddrPort(at)] = true
		}
		return p
	}
	var result invariants.Result
	if err := deliver([]servicePort{lone("10.0.0.1:80"), lone()}, corev1.IPv4Protocol, &result); err != nil {
		t.Fatal(err)
	}
	if result.Checked != 2*packetsEach || len(result.Findings) != packetsEach || !strings.Contains(result.Findings[0].Text, "goes to none of its 1 endpoints") {
		t.Errorf("%+v", result)
	}
}
