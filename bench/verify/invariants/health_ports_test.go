package invariants

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
)

// Health check NodePorts must answer at every address and family that takes NodePorts, each with the endpoints of its
// family. They are not asked where another Service may have the port.
func TestHealthPorts(t *testing.T) {
	const second, node6, second6 = "192.0.2.11", "2001:db8:1::10", "2001:db8:1::11"
	dual := func(e *Evidence) {
		e.Families = append(e.Families, corev1.IPv6Protocol)
		e.Options.NodeIPs = append(e.Options.NodeIPs, netip.MustParseAddr(node6))
		e.Node = []netip.Addr{e.Options.NodeIPs[0], netip.MustParseAddr(node6), netip.MustParseAddr(second), netip.MustParseAddr(second6), netip.MustParseAddr("fe80::1")}
		// Mode ipvs has the Services' addresses on a device of its own.
		local := append(slices.Clone(e.Node), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("10.96.0.11"), netip.MustParseAddr("fd00::14"))
		e.Options.Addresses = func() ([]netip.Addr, error) { return local, nil }
		svc := e.service("edge")
		svc.Spec.ClusterIPs, svc.Spec.IPFamilies = append(svc.Spec.ClusterIPs, "fd00::14"), e.Families
		slice := e.Objects.Slices[len(e.Objects.Slices)-1].DeepCopy()
		slice.Name, slice.AddressType = "edge-6", discoveryv1.AddressTypeIPv6
		slice.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"fd00:1::20"}, NodeName: ptr.To("node-0")}}
		e.Objects.Slices = append(e.Objects.Slices, slice)
	}
	for _, c := range []struct {
		what, subject string
		change        func(*Evidence)
		want          []string
	}{
		{"all addresses", "classic", func(*Evidence) {}, []string{"192.0.2.10:30100 2", "192.0.2.11:30100 2", "[2001:db8:1::10]:30100 1", "[2001:db8:1::11]:30100 1"}},
		{"one family is limited", "kube-proxy", func(e *Evidence) { e.Options.Config.NodePortAddresses = []string{"192.0.2.10/32"} },
			[]string{"192.0.2.10:30100 2", "[2001:db8:1::10]:30100 1", "[2001:db8:1::11]:30100 1"}},
		{"the primary addresses", "classic", func(e *Evidence) { e.Options.Config.NodePortAddresses = []string{"primary"} },
			[]string{"192.0.2.10:30100 2", "[2001:db8:1::10]:30100 1"}},
		{"kube-proxy's mode nftables", "kube-proxy/nftables", func(*Evidence) {}, []string{"192.0.2.10:30100 2", "[2001:db8:1::10]:30100 1"}},
		{"another Service's NodePort", "classic", func(e *Evidence) {
			other := e.service("web")
			other.Spec.Type, other.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30100
		}, nil},
		{"a policy that needs none", "classic", func(e *Evidence) {
			e.service("edge").Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
		}, nil},
	} {
		t.Run(c.what, func(t *testing.T) {
			subject, ok := subjects[c.subject]
			if !ok {
				subject = subjects["nftables"]
			}
			e := good(t, subject)
			e.Subject.Own = e.Subject.Own && ok
			dual(e)
			c.change(e)
			ports, err := e.HealthPorts()
			if err != nil {
				t.Fatal(err)
			}
			if again, err := e.HealthPorts(); err != nil || len(again) > 0 && &again[0] != &ports[0] {
				t.Errorf("the list was made again: %v", err)
			}
			var got []string
			for _, p := range ports {
				if p.Service.String() != "ns/edge" {
					t.Errorf("%+v", p)
				}
				got = append(got, fmt.Sprint(p.At, " ", p.Ready))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func (e *Evidence) service(name string) *corev1.Service {
	return e.Objects.Services[slices.IndexFunc(e.Objects.Services, func(s *corev1.Service) bool { return s.Name == name })]
}
