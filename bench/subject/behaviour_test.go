package subject

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/sim"
)

// docs/differences.md has exactly the behaviours of the table.
func TestBehavioursAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| name | iptables | nftables | ipvs | source |\n| --- | --- | --- | --- | --- |\n")
	var want strings.Builder
	for _, b := range Behaviours {
		cell := func(mode proxier.BackendKind) string {
			if b.In[mode] == "" {
				return "–"
			}
			return b.In[mode]
		}
		fmt.Fprintf(&want, "| `%s` | %s | %s | %s | %s |\n", b.ID, cell(proxier.Iptables), cell(proxier.Nftables), cell(IPVS), b.Source)
	}
	if got, _, _ := strings.Cut(table, "\n\n"); strings.TrimSpace(got) != strings.TrimSpace(want.String()) {
		t.Errorf("docs/differences.md has\n%s\nwant\n%s", got, want.String())
	}
}

// A behaviour counts the Services that it concerns: the predicate of each is tested alone.
func TestBehaviours(t *testing.T) {
	no := false
	for id, c := range map[string]struct {
		with      func(*corev1.Service) // makes the Service a concerned one
		endpoints int
		settings  func(*Cluster) // with which none is concerned; nil: there is none
	}{
		"nodeport-localhost":     {withNodePort, 0, func(c *Cluster) { c.Config.IPTables.LocalhostNodePorts = &no }},
		"nodeport-addresses":     {withNodePort, 0, func(c *Cluster) { c.Config.NodePortAddresses = []string{"10.0.0.0/8"} }},
		"nodeport-firewall":      {withNodePort, 0, nil},
		LocalWithoutEndpoint:     {func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }, 0, nil},
		"cluster-ip-on-node":     {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.9" }, 0, nil},
		"cluster-ip-other-ports": {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.9" }, 0, nil},
		"balancing":              {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.9" }, 2, nil},
		"session-affinity": {func(s *corev1.Service) {
			s.Spec.ClusterIP, s.Spec.SessionAffinity = "10.96.0.9", corev1.ServiceAffinityClientIP
		}, 2, nil},
		"health-check-firewall": {func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30001 }, 0, nil},
		"refuses-the-node":      {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }, 0, nil},
		"source-ranges-first": {func(s *corev1.Service) {
			s.Spec.Type, s.Spec.LoadBalancerSourceRanges = corev1.ServiceTypeLoadBalancer, []string{"192.0.2.0/24"}
		}, 0, nil},
		"one-owner":       {func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.7"} }, 1, nil},
		"hairpin":         {func(s *corev1.Service) { s.Spec.ClusterIP = "10.96.0.9" }, 1, nil},
		"invalid-packets": {func(s *corev1.Service) { s.Spec.Ports[0].Protocol = corev1.ProtocolTCP }, 0, func(c *Cluster) { c.Config.Conntrack.TCPBeLiberal = true }},
	} {
		b, known := BehaviourOf(id)
		if !known {
			t.Errorf("%s is not known", id)
			continue
		}
		concerned, other := service("concerned"), service("other")
		c.with(concerned)
		headless := concerned.DeepCopy()
		headless.Name, headless.Spec.ClusterIP = "headless", corev1.ClusterIPNone
		cluster := &Cluster{Objects: &sim.Objects{Services: []*corev1.Service{concerned, headless}}, Config: config.New()}
		cluster.Objects.Slices = append(cluster.Objects.Slices, endpoints("concerned", c.endpoints), endpoints("headless", c.endpoints))
		want := 1
		if id == "one-owner" { // of two Services
			shares := concerned.DeepCopy()
			shares.Name = "shares"
			cluster.Objects.Services = append(cluster.Objects.Services[:1], shares)
			want = 2
		}
		if got := b.Affected(cluster); got != want {
			t.Errorf("%s concerns %d Services, want %d", id, got, want)
		}
		other.Spec.ClusterIP, other.Spec.Ports[0].Protocol = corev1.ClusterIPNone, corev1.ProtocolUDP
		unconcerned := &Cluster{Objects: &sim.Objects{Services: []*corev1.Service{other}}, Config: config.New()}
		if got := b.Affected(unconcerned); got != 0 {
			t.Errorf("%s concerns %d other Services", id, got)
		}
		if c.settings != nil {
			if c.settings(cluster); b.Affected(cluster) != 0 {
				t.Errorf("%s concerns Services in spite of the settings", id)
			}
		}
	}
	if len(Behaviours) != 14 {
		t.Errorf("%d behaviours, want 14: complete this test", len(Behaviours))
	}
}

// Services without what a behaviour needs are not concerned, although they have a cluster IP.
func TestBehavioursOfPlainServices(t *testing.T) {
	plain := service("plain")
	plain.Spec.Ports[0].Protocol = corev1.ProtocolUDP
	cluster := &Cluster{Objects: &sim.Objects{Services: []*corev1.Service{plain}, Slices: nil}, Config: config.New()}
	for i := range Behaviours {
		b := &Behaviours[i]
		want := 0
		if b.ID == "cluster-ip-on-node" || b.ID == "cluster-ip-other-ports" {
			want = 1
		}
		if got := b.Affected(cluster); got != want {
			t.Errorf("%s concerns %d plain Services, want %d", b.ID, got, want)
		}
	}
}

// Synclab's proxier does what mode iptables does, but for hairpin packets in its nftables. Nothing is known of other programs.
func TestBehavioursDiffer(t *testing.T) {
	for _, c := range []struct {
		id, from, to string
		want         bool
	}{
		{"nodeport-localhost", "kube-proxy/nftables", "kube-proxy/ipvs", false},
		{"nodeport-localhost", "kube-proxy/iptables-nft", "kube-proxy/ipvs", true},
		{"nodeport-localhost", "kube-proxy/iptables-nft", "kube-proxy/iptables-legacy", false},
		{"nodeport-localhost", "kube-proxy/nftables", "synclab/nftables", true},
		{"hairpin", "kube-proxy/nftables", "synclab/nftables", false},
		{"hairpin", "kube-proxy/iptables-nft", "synclab/nftables", true},
		{"hairpin", "kube-proxy/iptables-nft", "synclab/iptables-nft", false},
		{"nodeport-localhost", "kube-proxy/iptables-nft", "synclab/nftables", false},
		{"nodeport-localhost", "kube-proxy@v1.36.3/nftables", "kube-proxy/nftables", false},
		{"nodeport-localhost", "kube-proxy/iptables-nft", "exec:other=command", false},
		{"nodeport-localhost", "synclab/userspace", "kube-proxy/nftables", false},
		{"one-owner", "kube-proxy/ipvs", "kube-proxy/nftables", false}, // of ipvs it is not known
	} {
		b, _ := BehaviourOf(c.id)
		from, err := Parse(c.from)
		if err != nil {
			t.Fatal(err)
		}
		to, err := Parse(c.to)
		if err != nil {
			t.Fatal(err)
		}
		if got := b.Differs(from, to); got != c.want {
			t.Errorf("%s from %s to %s: %v, want %v", c.id, c.from, c.to, got, c.want)
		}
	}
}

func service(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIP, s.Spec.Ports = "10.96.0.1", []corev1.ServicePort{{Port: 80}}
	return s
}

func withNodePort(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30000 }

// endpoints returns a slice of n ready endpoints and one that is not ready.
func endpoints(service string, n int) *discoveryv1.EndpointSlice {
	no := false
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: service, Labels: map[string]string{discoveryv1.LabelServiceName: service}}}
	for i := range n {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.0.%d", i+1)}})
	}
	s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.128.0.200"}, Conditions: discoveryv1.EndpointConditions{Ready: &no}})
	return s
}
