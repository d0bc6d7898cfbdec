package sim

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// skewed has one Service of 100 endpoints and nine of one, of two families, and two that no proxy handles.
func skewed() *Objects {
	o := &Objects{Nodes: []*corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "n"}}}}
	for i := range 10 {
		name, v4, v6 := fmt.Sprintf("s-%d", i), fmt.Sprintf("10.0.0.%d", i+1), fmt.Sprintf("fd00::%d", i+1)
		o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name}, Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, ClusterIP: v4, ClusterIPs: []string{v4, v6}, Ports: []corev1.ServicePort{{Port: 80, NodePort: int32(30000 + i)}}}})
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name + "-x", Labels: map[string]string{discoveryv1.LabelServiceName: name}}, AddressType: discoveryv1.AddressTypeIPv4}
		for k := range map[bool]int{true: 100, false: 1}[i == 4] {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.1.%d.%d", i, k+1)}})
		}
		o.Slices = append(o.Slices, slice)
	}
	o.Services = append(o.Services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "headless"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "external"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}})
	return o
}

func TestResize(t *testing.T) {
	for _, n := range []int{1, 5, 10, 25, 1000} {
		o, without := Resize(skewed(), n)
		if len(o.Services) != n || len(o.Nodes) != 1 || without != 0 {
			t.Fatalf("%d Services, %d nodes, %d without a node port: want %d, 1, 0", len(o.Services), len(o.Nodes), without, n)
		}
		names, addresses, ports, endpoints := map[string]bool{}, map[string]bool{}, map[int32]bool{}, 0
		once := func(address string) {
			if addresses[address] {
				t.Errorf("%d: address %s twice", n, address)
			}
			addresses[address] = true
		}
		for _, s := range o.Services {
			names[s.Name] = true
			once(s.Spec.ClusterIP)
			once(s.Spec.ClusterIPs[1])
			if s.Spec.ClusterIPs[0] != s.Spec.ClusterIP || ports[s.Spec.Ports[0].NodePort] {
				t.Errorf("%d: %s: %+v", n, s.Name, s.Spec)
			}
			ports[s.Spec.Ports[0].NodePort] = true
		}
		for _, slice := range o.Slices {
			if !names[slice.Labels[discoveryv1.LabelServiceName]] {
				t.Errorf("%d: slice %s of no Service", n, slice.Name)
			}
			for _, e := range slice.Endpoints {
				once(e.Addresses[0])
				endpoints++
			}
		}
		if len(names) != n {
			t.Errorf("%d names of %d Services", len(names), n)
		}
		if want := n / 10 * 109; n%10 == 0 && endpoints != want {
			t.Errorf("%d Services have %d endpoints: want %d, the same mix", n, endpoints, want)
		}
	}
}

// TestResizeKeepsTheInput: the objects of a dump are scaled again and again.
func TestResizeKeepsTheInput(t *testing.T) {
	o := skewed()
	before := fmt.Sprintf("%+v", *o.Slices[4])
	Resize(o, 100)
	if after := fmt.Sprintf("%+v", *o.Slices[4]); after != before || o.Services[0].Spec.ClusterIP != "10.0.0.1" {
		t.Error("Resize changed its input")
	}
}

// TestResizeOfLongNames: names that are cut to a label stay different.
func TestResizeOfLongNames(t *testing.T) {
	o := skewed()
	for i, s := range o.Services[:10] {
		long := fmt.Sprintf("%s%02d", strings.Repeat("x", 61), i)
		o.Slices[i].Labels[discoveryv1.LabelServiceName], o.Slices[i].Name, s.Name = long, long+"-"+strings.Repeat("y", 20), long
	}
	resized, _ := Resize(o, 45)
	names := map[string]bool{}
	for _, s := range resized.Services {
		names[s.Name] = true
		if len(s.Name) > 63 {
			t.Errorf("name of %d characters", len(s.Name))
		}
	}
	for _, s := range resized.Slices {
		names["slice "+s.Name] = true
		if !names[s.Labels[discoveryv1.LabelServiceName]] {
			t.Errorf("slice %s of no Service", s.Name)
		}
	}
	if len(names) != 90 {
		t.Errorf("%d names of 45 Services and 45 slices", len(names))
	}
}

func TestResizeEndsAtTheLastPort(t *testing.T) {
	o, without := Resize(skewed(), 70000)
	if want := 70000 - (65535 - lowestNodePort + 1); without != want || len(o.Services) != 70000 {
		t.Errorf("%d of %d Services without a node port: want %d", without, len(o.Services), want)
	}
}
