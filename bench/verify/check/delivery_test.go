package check

import (
	"fmt"
	"net/netip"
	"os/exec"
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
			slice("a", end("1", true, true, false), end("2", false, true, true)), slice("a", discoveryv1.Endpoint{Addresses: []string{"10.0.0.3"}, NodeName: ptr.To("here")}),
			slice("draining", end("4", false, true, true), end("5", false, false, true)), slice("hinted", hinted),
		},
	}
	changed := map[types.NamespacedName]bool{}
	for _, s := range o.Services {
		changed[types.NamespacedName{Namespace: "ns", Name: s.Name}] = s.Name != "unchanged"
	}
	var got []string
	for _, p := range deliverable(o, []corev1.IPFamily{corev1.IPv4Protocol}, changed, "here") {
		text := p.service + " " + p.at.String()
		for _, at := range []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080", "10.0.0.4:8080", "10.0.0.5:8080"} {
			if _, may := p.endpoints[netip.MustParseAddrPort(at)]; may {
				text += " " + at
			}
			if p.pod == netip.MustParseAddrPort(at) {
				text += " sends"
			}
		}
		got = append(got, text)
	}
	want := "ns/a:http 10.96.0.1:80 10.0.0.1:8080 10.0.0.3:8080 sends\nns/draining:http 10.96.0.1:80 10.0.0.4:8080 sends\nns/none:http 10.96.0.1:80"
	if strings.Join(got, "\n") != want {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), want)
	}
}

// Without any rule, packets go to no endpoint: that is found, but not held against Services that have none.
func TestDeliverFindsMissingRules(t *testing.T) {
	netns.Fresh(t)
	lone := func(endpoints ...string) servicePort {
		p := servicePort{service: "ns/a:http", at: netip.MustParseAddrPort("127.0.0.1:9"), protocol: corev1.ProtocolUDP, endpoints: map[netip.AddrPort]string{}}
		for _, at := range endpoints {
			p.endpoints[netip.MustParseAddrPort(at)] = "here"
		}
		return p
	}
	var result invariants.Result
	if err := deliver([]servicePort{lone("10.0.0.1:80"), lone()}, corev1.IPv4Protocol, sources{}, &result); err != nil {
		t.Fatal(err)
	}
	if result.Checked != 2*packetsEach || len(result.Findings) != packetsEach || !strings.Contains(result.Findings[0].Text, "goes to none of its 1 endpoints") {
		t.Errorf("%+v", result)
	}
}

// The source of a packet is judged, in both families: the node's packets and those that return to their pod are masqueraded,
// the other packets of pods are not.
func TestDeliverJudgesSources(t *testing.T) {
	const (
		fromNode = "4 packets from NODE, which is no pod, to SERVICE arrive and are not masqueraded"
		back     = "a packet from POD1 to SERVICE, from a pod, arrives at TO1 and is not masqueraded"
		hidden   = "a packet from POD1 to SERVICE, from a pod, arrives at TO2 from NODE"

		right = "IP saddr != PODS masquerade fully-random; IP saddr POD1 IP daddr POD1 masquerade fully-random"
		all   = "masquerade fully-random"
	)
	families := map[corev1.IPFamily]func(string) string{
		corev1.IPv4Protocol: strings.NewReplacer("NODE", "192.0.2.1", "PODS", "10.0.0.0/8", "POD", "10.0.0.", "TO1", "10.0.0.1:9", "TO2", "10.0.0.2:9", "SERVICES", "10.96.0.0/12", "SERVICE", "10.96.0.1:9", "IP", "ip").Replace,
		corev1.IPv6Protocol: strings.NewReplacer("NODE", "2001:db8::1", "PODS", "fd00:10::/32", "POD", "fd00:10::", "TO1", "[fd00:10::1]:9", "TO2", "[fd00:10::2]:9", "SERVICES", "fd00:96::/64", "SERVICE", "[fd00:96::1]:9", "IP", "ip6").Replace,
	}
	for _, c := range []struct {
		name, to, masquerade string
		everything           bool // masqueradeAll
		want                 []string
	}{
		{name: "to another", to: "POD2", masquerade: right},
		{name: "back", to: "POD1", masquerade: right},
		{name: "none", to: "POD2", want: []string{fromNode}},
		{name: "none back", to: "POD1", want: []string{back, back, back, back, fromNode}},
		{name: "all", to: "POD2", masquerade: all, want: []string{hidden, hidden, hidden, hidden}},
		{name: "all as set", to: "POD2", masquerade: all, everything: true},
		{name: "not all as set", to: "POD1", everything: true, want: []string{back, back, back, back, fromNode}},
	} {
		for family, say := range families {
			t.Run(c.name+"/"+string(family), func(t *testing.T) {
				netns.Fresh(t)
				must(t, new(netns.Lab).Connect(netns.Topology{
					Node: []netip.Addr{netip.MustParseAddr(say("NODE"))},
					Sink: []netip.Prefix{netip.MustParsePrefix(say("PODS")), netip.MustParsePrefix(say("SERVICES"))},
				}))
				service := netip.MustParseAddrPort(say("SERVICE"))
				nft := exec.Command("nft", "-f", "-")
				nft.Stdin = strings.NewReader(say(fmt.Sprintf(`
					table IP t {
						chain out { type nat hook output priority -100; IP daddr %s udp dport 9 dnat to %s; }
						chain post { type nat hook postrouting priority 100; %s; }
					}`, service.Addr(), c.to, c.masquerade)))
				if out, err := nft.CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				pod := func(name string) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr(say(name)), 9) }
				p := servicePort{"ns/a:", service, corev1.ProtocolUDP, map[netip.AddrPort]string{pod("POD1"): "here", pod("POD2"): "there"}, pod("POD1")}
				var result invariants.Result
				must(t, deliver([]servicePort{p}, family, sources{"here", netip.MustParsePrefix(say("PODS")), c.everything}, &result))
				for i, f := range result.Findings {
					if i >= len(c.want) || f.Text != say(c.want[i]) {
						t.Errorf("found: %s", f.Text)
					}
				}
				if len(result.Findings) != len(c.want) || result.Checked != 2*packetsEach {
					t.Errorf("%d of %d packets", len(result.Findings), result.Checked)
				}
			})
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
