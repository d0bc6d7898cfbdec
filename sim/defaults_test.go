package sim

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

const (
	v4, v6        = corev1.IPv4Protocol, corev1.IPv6Protocol
	single        = corev1.IPFamilyPolicySingleStack
	preferDual    = corev1.IPFamilyPolicyPreferDualStack
	requireDual   = corev1.IPFamilyPolicyRequireDualStack
	externalLocal = corev1.ServiceExternalTrafficPolicyLocal
)

func TestDefaultService(t *testing.T) {
	cluster := ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	tests := []struct {
		name     string
		in, want corev1.ServiceSpec
	}{
		{
			"ClusterIP",
			corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}, {Port: 53, Protocol: "UDP", TargetPort: intstr.FromString("dns")}}},
			corev1.ServiceSpec{
				Type: "ClusterIP", SessionAffinity: "None", InternalTrafficPolicy: cluster,
				Ports: []corev1.ServicePort{
					{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)},
					{Port: 53, Protocol: "UDP", TargetPort: intstr.FromString("dns")},
				},
			},
		},
		{
			"affinity without a timeout, externalIPs",
			corev1.ServiceSpec{SessionAffinity: "ClientIP", ExternalIPs: []string{"192.0.2.1"}, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromString("")}}},
			corev1.ServiceSpec{
				Type: "ClusterIP", SessionAffinity: "ClientIP", InternalTrafficPolicy: cluster, ExternalTrafficPolicy: "Cluster",
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(int32(10800))}},
				ExternalIPs:           []string{"192.0.2.1"},
				Ports:                 []corev1.ServicePort{{Port: 80, Protocol: "TCP", TargetPort: intstr.FromInt32(80)}},
			},
		},
		{
			"LoadBalancer, a config left over from ClientIP",
			corev1.ServiceSpec{Type: "LoadBalancer", SessionAffinity: "None", ExternalTrafficPolicy: externalLocal,
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{}}},
			corev1.ServiceSpec{Type: "LoadBalancer", SessionAffinity: "None", ExternalTrafficPolicy: externalLocal,
				InternalTrafficPolicy: cluster, AllocateLoadBalancerNodePorts: ptr.To(true)},
		},
		{
			"ExternalName",
			corev1.ServiceSpec{Type: "ExternalName"},
			corev1.ServiceSpec{Type: "ExternalName", SessionAffinity: "None"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			service := &corev1.Service{Spec: tc.in}
			for range 2 { // the second time changes nothing
				DefaultService(service)
				if diff := cmp.Diff(tc.want, service.Spec); diff != "" {
					t.Errorf("(-want +got)\n%s", diff)
				}
			}
		})
	}
}

func TestDefaultFamilies(t *testing.T) {
	selector := map[string]string{"a": "b"}
	type families = []corev1.IPFamily
	tests := []struct {
		name    string
		cluster families
		in      corev1.ServiceSpec
		policy  corev1.IPFamilyPolicy
		want    families
	}{
		{"nothing said", families{v4, v6}, corev1.ServiceSpec{}, single, families{v4}},
		{"IPv6 preferred", families{v6, v4}, corev1.ServiceSpec{}, single, families{v6}},
		{"family of the clusterIP", families{v4, v6}, corev1.ServiceSpec{ClusterIP: "fd00::1"}, single, families{v6}},
		{"two clusterIPs", families{v4, v6}, corev1.ServiceSpec{ClusterIPs: []string{"fd00::1", "10.0.0.1"}}, requireDual, families{v6, v4}},
		{"two families", families{v4, v6}, corev1.ServiceSpec{IPFamilies: families{v6, v4}}, requireDual, families{v6, v4}},
		{"dual preferred", families{v4, v6}, corev1.ServiceSpec{IPFamilyPolicy: ptr.To(preferDual)}, preferDual, families{v4, v6}},
		{"dual preferred, IPv6 first", families{v4, v6}, corev1.ServiceSpec{IPFamilyPolicy: ptr.To(preferDual), IPFamilies: families{v6}}, preferDual, families{v6, v4}},
		{"dual preferred, not to be had", families{v4}, corev1.ServiceSpec{IPFamilyPolicy: ptr.To(preferDual)}, preferDual, families{v4}},
		{"headless", families{v4}, corev1.ServiceSpec{ClusterIP: "None", Selector: selector}, single, families{v4}},
		{"headless without selector", families{v4}, corev1.ServiceSpec{ClusterIP: "None"}, requireDual, families{v4, v6}},
		{"ExternalName", families{v4}, corev1.ServiceSpec{Type: "ExternalName"}, "", nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			service := &corev1.Service{Spec: tc.in}
			DefaultFamilies(service, tc.cluster)
			if got := ptr.Deref(service.Spec.IPFamilyPolicy, ""); got != tc.policy {
				t.Errorf("policy %s, want %s", got, tc.policy)
			}
			if diff := cmp.Diff(tc.want, service.Spec.IPFamilies); diff != "" {
				t.Errorf("families (-want +got)\n%s", diff)
			}
			if ips := service.Spec.ClusterIPs; len(ips) > 0 && ips[0] != service.Spec.ClusterIP {
				t.Errorf("clusterIP %q, clusterIPs %q", service.Spec.ClusterIP, ips)
			}
		})
	}
}

func TestDefaultEndpointSlice(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{
		Ports:     []discoveryv1.EndpointPort{{}, {Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP)}},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
	}
	DefaultEndpointSlice(slice)
	want := &discoveryv1.EndpointSlice{
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP)},
			{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP)},
		},
		Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}}, // conditions stay nil
	}
	if diff := cmp.Diff(want, slice); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
