package manifests

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"synclab/sim"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

// TestEverything pins the result for one object of each kind.
func TestEverything(t *testing.T) {
	text, err := os.ReadFile("testdata/manifests/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got := proxyView(readText(t, ReadOptions{}, string(text)))
	want := `service kube-system/dns NodePort [fd00:10:96::2] dns:53/UDP->53@30000 dns-tcp:53/TCP->53@30000
service shop/db ClusterIP [None] :5432/TCP->5432
service shop/elsewhere ExternalName []
service shop/idle ClusterIP [10.96.0.2] :80/TCP->80
service shop/outside ClusterIP [10.96.0.3] :3306/TCP->3306
service shop/web LoadBalancer [10.96.0.4 fd00:10:96::3] http:80/TCP->http@30001 tls:443/TCP->8443@30002 quic:443/UDP->quic@30002 ingress 198.18.0.1 healthcheck 30003
`
	if diff := gocmp.Diff(want, got[:min(len(want), len(got))]); diff != "" {
		t.Errorf("Services (-want +got)\n%s", diff)
	}
	// The terminating pod has another number for the named target port: a separate slice.
	for _, want := range []string{`
slice of kube-system/dns IPv6 dns:53/UDP dns-tcp:53/TCP
  fd00:172:20::1 on a ready serving
  fd00:172:20::2 on b ready serving
`, `
slice of shop/db IPv4 :5432/TCP
  10.128.0.1 on b ready serving
  10.128.200.200 on b ready
  10.200.0.2 on a ready serving
`, `
slice of shop/idle IPv4
slice of`, `
slice of shop/outside IPv4 :3306/TCP
  192.0.2.7 ready
  192.0.2.8
`, `
slice of shop/outside IPv6 :3306/TCP
  2001:db8::7 ready
`, `
slice of shop/web IPv4 http:8080/TCP tls:8443/TCP quic:8443/UDP
  10.128.0.2 on b ready serving
  10.200.0.3 on a ready serving
  10.200.0.4 on a ready serving
`, `
slice of shop/web IPv4 http:9090/TCP tls:8443/TCP
  10.200.0.5 on a serving terminating
`, `
slice of shop/web IPv6 http:8080/TCP tls:8443/TCP quic:8443/UDP
`} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %s", want)
		}
	}
	if t.Failed() {
		t.Logf("got\n%s", got)
	}
}

// TestSlicesAgreeWithController gives the same Service, pods and nodes to the real controller's Reconciler. The
// Reconciler chooses names and order at random, so the test compares groups: ports, family and the endpoints that
// share them.
func TestSlicesAgreeWithController(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 0))
		service, pods, nodes := randomService(random)
		byName := map[string]*corev1.Node{}
		indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		for _, node := range nodes {
			byName[node.Name] = node
			if err := indexer.Add(node); err != nil {
				t.Fatal(err)
			}
		}
		client := fake.NewClientset()
		made := 0
		// The fake server leaves generated names empty.
		client.PrependReactor("create", "endpointslices", func(action clienttesting.Action) (bool, runtime.Object, error) {
			made++
			slice := action.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
			slice.Name = fmt.Sprint(slice.GenerateName, made)
			return false, nil, nil
		})
		reconciler := endpointslice.NewReconciler(client, corelisters.NewNodeLister(indexer), slicesCapacity,
			endpointsliceutil.NewEndpointSliceTracker(), nil, record.NewFakeRecorder(10), slicesBy,
			endpointslice.WithPreferSameTrafficDistributionEnabled(true))
		if err := reconciler.Reconcile(klog.Background(), service.DeepCopy(), pods, nil, time.Time{}); err != nil {
			t.Fatal(err)
		}
		list, err := client.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var want []*discoveryv1.EndpointSlice
		for i := range list.Items {
			want = append(want, &list.Items[i])
		}
		got := slicesOf(service, pods, byName, sliceNames{})
		if diff := gocmp.Diff(grouped(want), grouped(got)); diff != "" {
			t.Fatalf("seed %d: (-controller +synclab)\n%s", seed, diff)
		}
	}
}

// comparableSlices is the part of slices that does not depend on the order of endpoints.
type comparableSlices struct {
	Key       string // family, ports, labels
	Sizes     []int  // of the slices
	Endpoints []discoveryv1.Endpoint
}

func grouped(all []*discoveryv1.EndpointSlice) []comparableSlices {
	groups := map[string]*comparableSlices{}
	for _, slice := range all {
		ports := []string{}
		for _, port := range slice.Ports {
			ports = append(ports, fmt.Sprint(*port.Name, *port.Port, *port.Protocol))
		}
		slices.Sort(ports)
		key := fmt.Sprint(slice.AddressType, ports, slice.Labels)
		if groups[key] == nil {
			groups[key] = &comparableSlices{Key: key}
		}
		groups[key].Sizes = append(groups[key].Sizes, len(slice.Endpoints))
		groups[key].Endpoints = append(groups[key].Endpoints, slice.Endpoints...)
	}
	var list []comparableSlices
	for _, group := range groups {
		slices.Sort(group.Sizes)
		slices.SortFunc(group.Endpoints, func(a, b discoveryv1.Endpoint) int {
			return cmp.Compare(a.TargetRef.Name, b.TargetRef.Name)
		})
		list = append(list, *group)
	}
	slices.SortFunc(list, func(a, b comparableSlices) int { return cmp.Compare(a.Key, b.Key) })
	return list
}

// randomService makes a Service and the pods that it selects: ready and not ready, terminating, completed, of one
// family or two, with a named port in two places.
func randomService(random *rand.Rand) (*corev1.Service, []*corev1.Pod, []*corev1.Node) {
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s", UID: "u", Labels: map[string]string{"l": "v"}}}
	service.Spec.Ports = []corev1.ServicePort{
		{Name: "http", Port: 80, TargetPort: intstr.FromString("web")},
		{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP},
	}
	service.Spec.PublishNotReadyAddresses = random.IntN(4) == 0
	if random.IntN(3) == 0 {
		service.Spec.ClusterIP = corev1.ClusterIPNone
	} else {
		service.Spec.ClusterIP = "10.96.0.9"
	}
	if random.IntN(3) == 0 {
		service.Spec.TrafficDistribution = ptr.To(corev1.ServiceTrafficDistributionPreferClose)
	}
	sim.DefaultService(service)
	service.Spec.IPFamilies = sim.IPFamilies[:1+random.IntN(2)]
	var nodes []*corev1.Node
	for i := range 3 {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("node-", i), Labels: map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i)},
		}})
	}
	var pods []*corev1.Pod
	for i := range random.IntN(320) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: fmt.Sprint("pod-", i)}}
		pod.Spec.NodeName = nodes[random.IntN(3)].Name
		number := 8080 + random.Int32N(2)
		pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{
			{Name: "web", ContainerPort: number, Protocol: corev1.ProtocolTCP},
		}}}
		if random.IntN(10) == 0 {
			pod.Spec.Containers = nil
			pod.Spec.Hostname, pod.Spec.Subdomain = pod.Name, "s"
		}
		ready := corev1.ConditionTrue
		if random.IntN(4) == 0 {
			ready = corev1.ConditionFalse
		}
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		if random.IntN(6) == 0 {
			pod.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}
		pod.Status.Phase = corev1.PodRunning
		if random.IntN(12) == 0 {
			pod.Status.Phase = corev1.PodSucceeded
		}
		pod.Status.PodIP = fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)
		pod.Status.PodIPs = []corev1.PodIP{{IP: pod.Status.PodIP}}
		if random.IntN(2) == 0 {
			pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: fmt.Sprintf("fd00::%x", i+1)})
		}
		pods = append(pods, pod)
	}
	return service, pods, nodes
}
