package verdictstest

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/verify/conform"
	"synclab/bench/verify/walk"
	"synclab/proxier/config"
	"synclab/sim"
)

// plainState returns n Services with one port and the given number of endpoints each.
func plainState(n, endpoints int) *State {
	cfg := config.New()
	cfg.ClusterCIDR = "10.128.0.0/9"
	o := &sim.Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "node-0"}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}},
	}}}}
	for i := range n {
		name := fmt.Sprintf("svc-%06d", i)
		svc := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeClusterIP, ClusterIP: plainIP(i).String(), IPFamilies: both[:1],
				Ports: []corev1.ServicePort{{Name: "p", Protocol: corev1.ProtocolTCP, Port: 80}},
			},
		}
		sim.DefaultService(svc)
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("p"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
		}
		for j := range endpoints {
			k := i*endpoints + j
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+k>>16, k>>8&0xff, k&0xff)}})
		}
		o.Services, o.Slices = append(o.Services, svc), append(o.Slices, slice)
	}
	return &State{Setting: conform.Setting{Families: both[:1], Config: cfg}, Node: "node-0", Objects: o}
}

func plainIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, byte((i + 1) >> 8), byte(i + 1)})
}

// Packets to the first Service, the last Service, and no Service, of 10,000. rules counts the evaluated rules, dispatch
// those until the Service was found. Both are exact.
func BenchmarkWalk(b *testing.B) {
	const services, endpoints = 10_000, 10
	s := plainState(services, endpoints)
	world, err := s.World()
	if err != nil {
		b.Fatal(err)
	}
	for _, kind := range Kinds {
		r, err := Render(b.Context(), s, kind)
		if err != nil {
			b.Fatal(err)
		}
		for _, at := range []struct {
			name  string
			index int
		}{{"first", 0}, {"last", services - 1}, {"none", services + 5}} {
			b.Run(fmt.Sprintf("kind=%s/services=%d/endpoints=%d/at=%s", kind, services, endpoints, at.name), func(b *testing.B) {
				w := walk.New(r.Rules[both[0]], world)
				p := walk.Packet{
					Input: "eth0", Protocol: walk.TCP, Source: netip.MustParseAddrPort("10.200.0.1:40000"), Destination: netip.AddrPortFrom(plainIP(at.index), 80),
				}
				var v walk.Result
				b.ReportAllocs()
				for b.Loop() {
					if v, err = w.Walk(&p); err != nil {
						b.Fatal(err)
					}
				}
				if there := at.index < services; there != (len(v.Outcomes) == endpoints) {
					b.Fatalf("%s: %s", &p, v)
				}
				b.ReportMetric(float64(v.Crossed.Total), "rules")
				b.ReportMetric(float64(v.Crossed.Dispatch), "dispatch")
			})
		}
	}
}
