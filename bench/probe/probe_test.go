package probe

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"synclab/bench/pass"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// Misses are different addresses of the pods' ranges that no endpoint and no Service has, in either family.
func TestMisses(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.2"}}}}
	svc := &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: "10.0.0.5", ClusterIPs: []string{"10.0.0.5", "fd00::fffd"}}}
	r := &Probes{Env: &pass.Env{World: world.WorldOf(&sim.Objects{Slices: []*discoveryv1.EndpointSlice{slice}, Services: []*corev1.Service{svc}}, 1)}}
	r.Scenario.Shape = scenarios.Shape{PodCIDRs: []string{"10.0.0.0/29", "fd00::/112"}}
	for family, want := range map[corev1.IPFamily][]string{
		corev1.IPv4Protocol: {"10.0.0.6", "10.0.0.4", "10.0.0.3", "10.0.0.1", "10.0.0.0"}, // and no more
		corev1.IPv6Protocol: {"fd00::fffe", "fd00::fffc", "fd00::fffb"},
	} {
		n := len(want)
		if family == corev1.IPv4Protocol {
			n = 100
		}
		got := r.misses(family, n)
		if len(got) != len(want) {
			t.Fatalf("%s: misses %v, want %v", family, got, want)
		}
		for i, addr := range got {
			if addr.Addr() != netip.MustParseAddr(want[i]) {
				t.Errorf("%s: misses %v, want %v", family, got, want)
			}
		}
	}
}
