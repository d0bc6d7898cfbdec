package sim

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// clusterOf makes a cluster of cluster IPs, endpoints, and Nodes with podCIDRs and addresses ("10.0.0.0/24=192.168.0.1").
func clusterOf(clusterIPs, endpoints, nodes string) *Objects {
	o := &Objects{}
	for ip := range strings.FieldsSeq(clusterIPs) {
		o.Services = append(o.Services, &corev1.Service{Spec: corev1.ServiceSpec{ClusterIP: ip, ClusterIPs: []string{ip}}})
	}
	for ip := range strings.FieldsSeq(endpoints) {
		slice := &discoveryv1.EndpointSlice{AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{Addresses: []string{ip}}}}
		if strings.Contains(ip, ":") {
			slice.AddressType = "IPv6"
		}
		o.Slices = append(o.Slices, slice)
	}
	for text := range strings.FieldsSeq(nodes) {
		cidr, addr, _ := strings.Cut(text, "=")
		node := &corev1.Node{}
		if cidr != "" {
			node.Spec.PodCIDRs = []string{cidr}
		}
		if addr != "" {
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}
		}
		o.Nodes = append(o.Nodes, node)
	}
	return o
}

// Ranges of a given cluster come from its objects: the range of Services has most cluster IPs and no pod, the range of
// pods overlaps no Service range, and the range of strangers has nothing of the cluster.
func TestRanges(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, test := range []struct {
		about                        string
		clusterIPs, endpoints, nodes string
		family                       corev1.IPFamily
		services, pods, free         string
	}{
		{"nothing", "", "", "", v4, "10.96.0.0/12", "10.128.0.0/9", "100.96.0.0/11"},
		{"nothing, IPv6", "", "", "", v6, "fd00:10:96::/108", "fd00:10:128::/64", "2001:db8:64:ffff::/64"},
		{"kubeadm", "10.96.0.1 10.110.3.4", "10.244.0.5 10.244.1.7", "10.244.0.0/24=172.18.0.2 10.244.1.0/24=172.18.0.3", v4, "10.96.0.0/12", "10.244.0.0/23", "100.96.0.0/11"},
		{"k3s", "10.43.0.1 10.43.200.9", "10.42.0.5", "10.42.0.0/24=192.168.1.5", v4, "10.43.0.0/16", "10.42.0.0/24", "100.96.0.0/11"},
		{"kops: pods in shared address space", "100.64.0.1 100.70.3.2", "100.96.1.5", "100.96.1.0/24=172.20.33.1 100.97.0.0/24=172.20.33.2", v4, "100.64.0.0/13", "100.96.0.0/15", "10.240.0.0/12"},
		{"EKS: pods beside nodes", "172.20.0.1 172.20.99.1", "192.168.12.7 192.168.80.3", "=192.168.12.1 =192.168.80.1", v4, "172.20.0.0/16", "192.168.0.0/16", "100.96.0.0/11"},
		{"Services among the pods", "10.100.7.1 10.100.7.9", "10.100.1.2 10.100.2.3", "", v4, "10.100.4.0/22", "10.100.0.0/22", "100.96.0.0/11"},
		{"one Service elsewhere", "10.0.0.1 10.0.3.2 172.30.0.9", "", "", v4, "10.0.0.0/16", "10.128.0.0/9", "100.96.0.0/11"},
		{"Services in the default range of pods", "10.200.0.1", "", "", v4, "10.200.0.0/16", "100.96.0.0/11", "100.96.0.0/11"},
		{"IPv6", "fd98::1 fd98::abcd", "fd96:0:0:1::5", "fd96:0:0:1::/64 fd96:0:0:2::/64", v6, "fd98::/112", "fd96::/62", "2001:db8:64:ffff::/64"},
		{"podCIDRs far apart", "10.0.0.10", "10.4.0.5", "10.4.0.0/24 10.200.0.0/24", v4, "10.0.0.0/16", "10.4.0.0/16", "100.96.0.0/11"},
	} {
		o := clusterOf(test.clusterIPs, test.endpoints, test.nodes)
		services, pods, free := ServiceRange(o, test.family), PodRanges(o, test.family), FreeRange(o, test.family)
		if services.String() != test.services || pods[0].String() != test.pods || free.String() != test.free {
			t.Errorf("%s: Services %s, pods %s, free %s; want %s, %s, %s", test.about, services, pods, free, test.services, test.pods, test.free)
		}
		if slices.ContainsFunc(pods, services.Overlaps) {
			t.Errorf("%s: Services %s and pods %s overlap", test.about, services, pods)
		}
		if last := pods[len(pods)-1]; last.Addr().BitLen()-last.Bits() < 20 || len(pods) > 1 && last.Overlaps(pods[0]) {
			t.Errorf("%s: %s is no large range for more pods", test.about, pods)
		}
		for addr := range AddressesOf(o) {
			if free.Contains(addr) {
				t.Errorf("%s: %s is not free of %s", test.about, free, addr)
			}
		}
	}
	// Addresses in every candidate: still a range, outside of the Services.
	var everywhere []string
	for i := range 16 {
		everywhere = append(everywhere, netip.AddrFrom4([4]byte{10, byte(i << 4), 0, 9}).String())
	}
	o := clusterOf("10.0.0.1", strings.Join(append(everywhere, "100.96.0.9", "100.64.0.9", "172.16.0.9"), " "), "")
	if free := FreeRange(o, v4); free.Overlaps(ServiceRange(o, v4)) {
		t.Errorf("%s overlaps the Services", free)
	}
}

func TestFamiliesOf(t *testing.T) {
	for _, test := range []struct{ clusterIPs, endpoints, want string }{
		{"", "", "IPv4"}, {"10.0.0.1", "", "IPv4"}, {"fd00::1", "", "IPv6"}, {"fd00::1 10.0.0.1", "", "IPv4 IPv6"}, {"None", "fd00::5", "IPv6"},
	} {
		var got []string
		for _, family := range FamiliesOf(clusterOf(test.clusterIPs, test.endpoints, "")) {
			got = append(got, string(family))
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
}
