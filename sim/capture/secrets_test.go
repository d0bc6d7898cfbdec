package capture

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"synclab/sim"
)

// planted is a cluster of one Service, one slice and one node, with hidden secrets.
type planted struct {
	service *corev1.Service
	slice   *discoveryv1.EndpointSlice
	node    *corev1.Node
}

func (c planted) objects() *sim.Objects {
	return &sim.Objects{Services: []*corev1.Service{c.service}, Slices: []*discoveryv1.EndpointSlice{c.slice}, Nodes: []*corev1.Node{c.node}}
}

// unplanted returns the cluster without secrets.
func unplanted() planted {
	conditions := discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)}
	return planted{
		service: &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{}, Annotations: map[string]string{}},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, Selector: map[string]string{},
				Ports: []corev1.ServicePort{{Name: "a", Protocol: corev1.ProtocolTCP, Port: 80, NodePort: 30001}, {Name: "b", Protocol: corev1.ProtocolTCP, Port: 81, NodePort: 30002}},
			},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "198.18.0.1"}}}},
		},
		slice: &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}, Annotations: map[string]string{}},
			AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.128.0.1"}, Conditions: conditions, NodeName: ptr.To("node-0"), Zone: ptr.To("zone-0")}},
			Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("a"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To(int32(8080))}},
		},
		node: &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{corev1.LabelTopologyZone: "zone-0"}, Annotations: map[string]string{}},
			Spec:       corev1.NodeSpec{PodCIDR: "10.128.0.0/24", PodCIDRs: []string{"10.128.0.0/24"}},
			Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "172.16.0.1"}}},
		},
	}
}

// secrets are the kinds of values that identify a cluster, each hidden where real clusters have it.
var secrets = []struct {
	kind, secret string
	plant        func(c planted, secret string)
}{
	{"namespace", "acme-payments", func(c planted, s string) { c.service.Namespace, c.slice.Namespace = s, s }},
	{"name of a Service", "acme-login", func(c planted, s string) { c.service.Name, c.slice.Labels[discoveryv1.LabelServiceName] = s, s }},
	{"UID", "5c0c2f1e-9f0e-4b43-8b65-acme", func(c planted, s string) { c.service.UID = types.UID(s) }},
	{"resource version", "918273645", func(c planted, s string) { c.service.ResourceVersion = s }},
	{"generated name", "acme-gen-", func(c planted, s string) { c.service.GenerateName = s }},
	{"key of a label", "acme.example/team", func(c planted, s string) { c.service.Labels[s] = "x" }},
	{"value of a label", "acme-team", func(c planted, s string) { c.service.Labels["team"] = s }},
	{"key of an annotation", "acme.example/contact", func(c planted, s string) { c.service.Annotations[s] = "x" }},
	{"value of an annotation", "ops at acme", func(c planted, s string) { c.service.Annotations["contact"] = s }},
	{"what kubectl applied", "acme-last-applied", func(c planted, s string) { c.service.Annotations[corev1.LastAppliedConfigAnnotation] = s }},
	{"annotation that proxies read", "acme-mode", func(c planted, s string) { c.service.Annotations["service.kubernetes.io/topology-mode"] = s }},
	{"finalizer", "acme.example/cleanup", func(c planted, s string) { c.service.Finalizers = []string{s} }},
	{"owner", "acme-operator", func(c planted, s string) { c.service.OwnerReferences = []metav1.OwnerReference{{Name: s}} }},
	{"manager of fields", "acme-deployer", func(c planted, s string) { c.service.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: s}} }},
	{"key of a selector", "acme.example/app", func(c planted, s string) { c.service.Spec.Selector[s] = "x" }},
	{"value of a selector", "acme-app", func(c planted, s string) { c.service.Spec.Selector["app"] = s }},
	{"name of a port", "acme-port", func(c planted, s string) { c.service.Spec.Ports[0].Name, c.slice.Ports[0].Name = s, ptr.To(s) }},
	{"application protocol", "acme.example/rpc", func(c planted, s string) { c.service.Spec.Ports[0].AppProtocol = ptr.To(s) }},
	{"name of a target port", "acme-target", func(c planted, s string) { c.service.Spec.Ports[0].TargetPort = intstr.FromString(s) }},
	{"external name", "db.acme.example", func(c planted, s string) { c.service.Spec.ExternalName = s }},
	{"class of a load balancer", "acme.example/balancer", func(c planted, s string) { c.service.Spec.LoadBalancerClass = ptr.To(s) }},
	{"host name of a load balancer", "lb.acme.example", func(c planted, s string) { c.service.Status.LoadBalancer.Ingress[0].Hostname = s }},
	{"cluster IP", "10.99.88.77", func(c planted, s string) { c.service.Spec.ClusterIP, c.service.Spec.ClusterIPs = s, []string{s} }},
	{"external IP", "203.0.113.77", func(c planted, s string) { c.service.Spec.ExternalIPs = []string{s} }},
	{"wanted IP of a load balancer", "203.0.113.78", func(c planted, s string) { c.service.Spec.LoadBalancerIP = s }},
	{"IP of a load balancer", "203.0.113.79", func(c planted, s string) { c.service.Status.LoadBalancer.Ingress[0].IP = s }},
	{"range of sources", "198.51.100.64/27", func(c planted, s string) { c.service.Spec.LoadBalancerSourceRanges = []string{s} }},
	{"port on nodes", "31234", func(c planted, s string) { fmt.Sscan(s, &c.service.Spec.Ports[0].NodePort) }},
	{"health-check port", "31777", func(c planted, s string) { fmt.Sscan(s, &c.service.Spec.HealthCheckNodePort) }},
	{"message of a condition", "acme quota", func(c planted, s string) { c.service.Status.Conditions = []metav1.Condition{{Message: s}} }},
	{"time of creation", "2024-05-17T11:22:33Z", func(c planted, s string) {
		at, _ := time.Parse(time.RFC3339, s)
		c.service.CreationTimestamp = metav1.NewTime(at)
	}},

	{"name of a slice", "acme-slice-x7k", func(c planted, s string) { c.slice.Name = s }},
	{"controller of a slice", "acme.example/controller", func(c planted, s string) { c.slice.Labels[discoveryv1.LabelManagedBy] = s }},
	{"time of a change", "2024-05-18T01:02:03.456789Z", func(c planted, s string) { c.slice.Annotations[corev1.EndpointsLastChangeTriggerTime] = s }},
	{"address of a pod", "10.200.33.44", func(c planted, s string) { c.slice.Endpoints[0].Addresses = []string{s} }},
	{"address of class E", "247.1.2.3", func(c planted, s string) { c.slice.Endpoints[0].Addresses = []string{s} }},
	{"IPv6 address", "2001:db8:acde::77", func(c planted, s string) {
		c.slice.AddressType, c.slice.Endpoints[0].Addresses = discoveryv1.AddressTypeIPv6, []string{s}
	}},
	{"host name of a pod", "acme-pod-0", func(c planted, s string) { c.slice.Endpoints[0].Hostname = ptr.To(s) }},
	{"name of a pod", "acme-pod-1", func(c planted, s string) { c.slice.Endpoints[0].TargetRef = &corev1.ObjectReference{Name: s} }},
	{"UID of a pod", "77c1a1ff-acme", func(c planted, s string) {
		c.slice.Endpoints[0].TargetRef = &corev1.ObjectReference{UID: types.UID(s)}
	}},
	{"zone", "acme-dc-east", func(c planted, s string) {
		c.slice.Endpoints[0].Zone, c.node.Labels[corev1.LabelTopologyZone] = ptr.To(s), s
	}},
	{"zone of a hint", "acme-dc-west", func(c planted, s string) {
		c.slice.Endpoints[0].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: s}}}
	}},
	{"topology of old slices", "acme-rack", func(c planted, s string) { c.slice.Endpoints[0].DeprecatedTopology = map[string]string{"rack": s} }},
	{"application protocol of an endpoint", "acme.example/wire", func(c planted, s string) { c.slice.Ports[0].AppProtocol = ptr.To(s) }},

	{"name of a node", "acme-node-17", func(c planted, s string) { c.node.Name, c.slice.Endpoints[0].NodeName = s, ptr.To(s) }},
	{"host name of a node", "node17.acme.example", func(c planted, s string) { c.node.Labels[corev1.LabelHostname] = s }},
	{"instance type", "acme.huge", func(c planted, s string) { c.node.Labels[corev1.LabelInstanceTypeStable] = s }},
	{"annotation of a node", "acme-rack-9", func(c planted, s string) { c.node.Annotations["rack"] = s }},
	{"provider's id", "acme://project/vm-17", func(c planted, s string) { c.node.Spec.ProviderID = s }},
	{"pod range", "10.201.7.0/24", func(c planted, s string) { c.node.Spec.PodCIDR, c.node.Spec.PodCIDRs = s, []string{s} }},
	{"taint", "acme-gpu", func(c planted, s string) { c.node.Spec.Taints = []corev1.Taint{{Key: s}} }},
	{"address of a node", "172.21.5.6", func(c planted, s string) { c.node.Status.Addresses[0].Address = s }},
	{"machine id", "aa55acme", func(c planted, s string) { c.node.Status.NodeInfo.MachineID = s }},
	{"UUID of the system", "bb66acme", func(c planted, s string) { c.node.Status.NodeInfo.SystemUUID = s }},
	{"operating system", "AcmeOS 7", func(c planted, s string) { c.node.Status.NodeInfo.OSImage = s }},
	{"image", "registry.acme.example/app:1", func(c planted, s string) { c.node.Status.Images = []corev1.ContainerImage{{Names: []string{s}}} }},
	{"volume", "acme-disk-1", func(c planted, s string) { c.node.Status.VolumesAttached = []corev1.AttachedVolume{{DevicePath: s}} }},
	{"message of a node", "acme kubelet is sad", func(c planted, s string) { c.node.Status.Conditions = []corev1.NodeCondition{{Message: s}} }},
}

// The capture contains none of the secrets, tested one by one, nor any other word of the cluster.
func TestSecrets(t *testing.T) {
	if len(secrets) < 40 {
		t.Fatalf("only %d kinds of secrets", len(secrets))
	}
	for _, planting := range secrets {
		c := unplanted()
		planting.plant(c, planting.secret)
		if before := written(t, c.objects()); !strings.Contains(before, planting.secret) {
			t.Errorf("%s: is not in the original, and shows nothing:\n%s", planting.kind, before)
		}
		for n := range byte(3) {
			a, err := Anonymize(c.objects(), key(n+1))
			if err != nil {
				t.Errorf("%s: %v", planting.kind, err)
				break
			}
			after := written(t, a.Objects)
			base, _, _ := strings.Cut(planting.secret, "/") // for a range, its address
			if strings.Contains(after, planting.secret) || strings.Contains(strings.ToLower(after), "acme") {
				t.Errorf("%s: %s survives:\n%s", planting.kind, planting.secret, after)
			} else if _, err := netip.ParseAddr(base); err == nil && strings.Contains(after, base) {
				t.Errorf("%s: %s survives:\n%s", planting.kind, base, after)
			}
		}
	}
}
