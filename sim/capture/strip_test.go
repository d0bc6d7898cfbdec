package capture

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// Strip drops what no proxy reads, keeps what one reads, and does not change its input.
func TestStrip(t *testing.T) {
	meta := func(labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{
			Namespace: "ns", Name: "name", UID: "uid-stays", ResourceVersion: "77", Generation: 3, Labels: labels,
			Finalizers: []string{"drop/me"}, OwnerReferences: []metav1.OwnerReference{{Name: "drop"}},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "drop"}},
			Annotations:   map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "drop", corev1.EndpointsLastChangeTriggerTime: "time-stays"},
		}
	}
	for _, c := range []struct {
		object runtime.Object
		stays  []string
	}{
		{&corev1.Service{
			ObjectMeta: meta(map[string]string{"team": "drop", "service.kubernetes.io/service-proxy-name": "proxy-stays"}),
			Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Selector: map[string]string{"app": "drop"}, LoadBalancerClass: ptr.To("drop")},
			Status: corev1.ServiceStatus{
				LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}},
				Conditions:   []metav1.Condition{{Type: "drop"}},
			},
		}, []string{"uid-stays", "77", "proxy-stays", "10.0.0.1", "192.0.2.1", "time-stays"}},
		{&discoveryv1.EndpointSlice{
			ObjectMeta: meta(map[string]string{"app": "drop", discoveryv1.LabelServiceName: "service-stays", corev1.IsHeadlessService: ""}),
			Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.1"}, Hostname: ptr.To("drop"), NodeName: ptr.To("node-stays"), Zone: ptr.To("zone-stays"),
				TargetRef: &corev1.ObjectReference{Name: "drop"}, DeprecatedTopology: map[string]string{"drop": "drop"},
				Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "hint-stays"}}},
			}},
		}, []string{"service-stays", corev1.IsHeadlessService, "10.1.0.1", "node-stays", "zone-stays", "hint-stays", "time-stays"}},
		{&corev1.Node{
			ObjectMeta: meta(map[string]string{"kubernetes.io/hostname": "drop", corev1.LabelTopologyZone: "zone-stays"}),
			Spec: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: []string{"10.1.0.0/24"}, ProviderID: "drop",
				Taints: []corev1.Taint{{Key: "drop"}, {Key: taintLeaving}}},
			Status: corev1.NodeStatus{
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.9"}},
				Images:    []corev1.ContainerImage{{Names: []string{"drop"}}},
			},
		}, []string{"zone-stays", "10.1.0.0/24", "192.0.2.9", taintLeaving}},
	} {
		before := text(t, c.object)
		got := text(t, Strip(c.object))
		if strings.Contains(got, "drop") {
			t.Errorf("something was kept that no proxy reads:\n%s", got)
		}
		for _, part := range c.stays {
			if !strings.Contains(got, part) {
				t.Errorf("%s is gone:\n%s", part, got)
			}
		}
		if text(t, c.object) != before {
			t.Errorf("Strip wrote to the object: %s", before)
		}
	}
	if pod := (&corev1.Pod{}); Strip(pod) != runtime.Object(pod) {
		t.Error("Strip changed an object of another kind")
	}
}

func text(t *testing.T, object any) string {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
