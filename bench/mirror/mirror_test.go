package mirror

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"synclab/proxier/plan"
	"synclab/sim"
)

func service(name string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	s.Spec.ClusterIP, s.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1", "fd00:96::1"}
	s.Spec.Ports = []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	return s
}

// slice returns a slice with one endpoint in each zone.
func slice(name, service string, zones ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for i, zone := range zones {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}},
		})
	}
	return s
}

func endpoints(p *plan.ServicePort) int {
	if p == nil {
		return -1
	}
	return len(p.Cluster)
}

// Each change returns the affected ports before and after it, by family and name. -1 means that there is no port.
func TestChanged(t *testing.T) {
	m := New(plan.Node{Name: "node-0"}, corev1.IPv4Protocol, corev1.IPv6Protocol)
	at := time.Unix(1, 0)
	m.Load([]*corev1.Service{service("a"), service("b")}, []*discoveryv1.EndpointSlice{slice("s", "a", "east", "west")}, at)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{corev1.LabelTopologyZone: "east"}}}
	other := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", Labels: node.Labels}}
	for i, c := range []struct {
		op     sim.Op
		object runtime.Object
		want   []string
	}{
		{sim.Update, slice("s", "a", "east"), []string{"IPv4 ns/a 2 1"}},
		{sim.Update, slice("s", "a", "east"), nil},
		{sim.Update, slice("s", "a", "east", "west"), []string{"IPv4 ns/a 1 2"}},
		{sim.Update, other, nil},
		{sim.Update, node, []string{"IPv4 ns/a 2 1", "IPv4 ns/b 0 0", "IPv6 ns/a 0 0", "IPv6 ns/b 0 0"}},
		{sim.Update, slice("s", "b", "east", "west"), []string{"IPv4 ns/a 1 0", "IPv4 ns/b 0 1"}}, // moves to b
		{sim.Delete, service("b"), []string{"IPv4 ns/b 1 -1", "IPv6 ns/b 0 -1"}},
		{sim.Add, service("b"), []string{"IPv4 ns/b -1 1", "IPv6 ns/b -1 0"}},
		{sim.Delete, slice("s", "b"), []string{"IPv4 ns/b 1 0"}},
	} {
		var got []string
		for _, p := range m.Changed(c.op, c.object, at) {
			got = append(got, fmt.Sprintf("%s %s %d %d", p.Family, p.Name.NamespacedName, endpoints(p.Before), endpoints(p.After)))
			if now := m.Of(p.Family).Port(p.Name); now != p.After {
				t.Errorf("change %d: port %v differs from the returned one", i, p.Name)
			}
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("change %d (-want +got):\n%s", i, diff)
		}
	}
	if svc := m.Of(corev1.IPv4Protocol).Services()[ServiceOf(service("b"))]; svc == nil || len(svc.Ports) != 1 {
		t.Errorf("service b is %+v", svc)
	}
}
