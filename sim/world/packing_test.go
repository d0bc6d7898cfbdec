package world

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/endpointslice"
	endpointsliceutil "k8s.io/endpointslice/util"
	"k8s.io/klog/v2"

	"synclab/scenarios"
)

func sizes(group []*discoveryv1.EndpointSlice) []int {
	n := make([]int, len(group))
	for i, s := range group {
		n[i] = len(s.Endpoints)
	}
	return n
}

func TestPack(t *testing.T) {
	tests := []struct {
		name    string
		slices  []int // endpoints before
		drop    []int // how many of each slice
		add     int
		want    []int
		changes string // operations, in order
	}{
		{"first endpoint reuses the empty slice", []int{0}, nil, 1, []int{1}, "Update"},
		{"250 at once", []int{0}, nil, 250, []int{50, 100, 100}, "Add Add Update"},
		{"replacement stays where it was", []int{40, 30}, []int{0, 1}, 1, []int{40, 30}, "Update"},
		{"one more goes into the fullest with room", []int{100, 30, 60}, nil, 1, []int{100, 30, 61}, "Update"},
		{"one more, all full", []int{100, 100}, nil, 1, []int{100, 100, 1}, "Add"},
		{"changed slices fill first", []int{90, 100}, []int{0, 20}, 15, []int{90, 95}, "Update"},
		{"more than one slice has room for", []int{60, 50}, nil, 60, []int{60, 50, 60}, "Add"},
		{"an emptied slice goes", []int{10, 30}, []int{10, 0}, 0, []int{30}, "Delete"},
		{"the last endpoint leaves an empty slice", []int{10}, []int{10}, 0, []int{0}, "Update"},
		{"nothing changes", []int{10}, nil, 0, []int{10}, ""},
		{"empty stays empty", []int{0}, nil, 0, []int{0}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, l := worldOfSizes(t, tt.slices)
			e := edit{drop: map[string]bool{}, add: newPods(t, w, l, tt.add)}
			for i, n := range tt.drop {
				for k := range n {
					e.drop[w.podKey(&l.groups[0].slices[i].Endpoints[k])] = true
				}
			}
			ops := ""
			for i, c := range w.pack(l, e) {
				if i > 0 {
					ops += " "
				}
				ops += string(c.op)
			}
			if got := sizes(l.groups[0].slices); !slices.Equal(got, tt.want) {
				t.Errorf("slices of %v, want %v", got, tt.want)
			}
			if ops != tt.changes {
				t.Errorf("changes %q, want %q", ops, tt.changes)
			}
		})
	}
}

// worldOfSizes returns a World of one Service with slices of these sizes.
func worldOfSizes(t *testing.T, sizes []int) (*World, *workload) {
	t.Helper()
	w, err := NewWorld(scenarios.Shape{Services: 1, WithoutEndpoint: 1, Nodes: 3}, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	l := w.live[0]
	l.groups[0].slices = nil
	for _, n := range sizes {
		pods := newPods(t, w, l, n)
		l.groups[0].slices = append(l.groups[0].slices, w.newSlice(l, discoveryv1.AddressTypeIPv4, w.endpointsOf(l, discoveryv1.AddressTypeIPv4, pods)))
	}
	return w, l
}

func newPods(t *testing.T, w *World, l *workload, n int) []pod {
	t.Helper()
	pods := make([]pod, n)
	for i := range pods {
		var err error
		if pods[i], err = w.newPod(l, w.conditions.ready); err != nil {
			t.Fatal(err)
		}
	}
	return pods
}

// TestPackAgainstController edits a Service at random. At each step the controller's own reconciler gets the same
// slices and the new pods, and must make slices of the same sizes.
func TestPackAgainstController(t *testing.T) {
	const seed = 20250101
	random := rand.New(rand.NewPCG(seed, 0))
	w, l := worldOfSizes(t, []int{0})
	pods := map[string]*corev1.Pod{}
	for step := range 150 {
		e := edit{drop: map[string]bool{}, add: newPods(t, w, l, random.IntN(3)*random.IntN(60))}
		for _, name := range w.names(l) {
			if random.Float64() < 0.15*float64(step%3) {
				e.drop[name] = true
				delete(pods, name)
			}
		}
		for _, p := range e.add {
			pods[p.name] = podObject(l.service, p)
		}
		before := sizes(l.groups[0].slices)
		want := reconciled(t, w, l, pods)
		w.pack(l, e)
		got := sorted(sizes(l.groups[0].slices))
		if !slices.Equal(got, want) {
			t.Fatalf("seed %d, step %d: %v, %d dropped, %d added: slices of %v, the controller has %v", seed, step, before, len(e.drop), len(e.add), got, want)
		}
	}
}

func (w *World) names(l *workload) []string {
	var names []string
	for i := range l.size() {
		names = append(names, w.podKey(l.endpoint(i)))
	}
	return names
}

func sorted(n []int) []int {
	slices.Sort(n)
	return n
}

func podObject(svc *corev1.Service, p pod) *corev1.Pod {
	address := p.addresses[discoveryv1.AddressTypeIPv4]
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: p.name, Namespace: svc.Namespace, UID: p.uid},
		Spec:       corev1.PodSpec{NodeName: p.host.name},
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
		},
	}
}

// reconciled returns the sizes of slices that the real reconciler makes of a Service's slices for these pods.
func reconciled(t *testing.T, w *World, l *workload, pods map[string]*corev1.Pod) []int {
	t.Helper()
	client := fake.NewSimpleClientset()
	client.PrependReactor("create", "endpointslices", nameGenerated())
	nodes := informers.NewSharedInformerFactory(client, 0).Core().V1().Nodes()
	for _, n := range w.nodes {
		if err := nodes.Informer().GetStore().Add(n); err != nil {
			t.Fatal(err)
		}
	}
	var existing []*discoveryv1.EndpointSlice
	for _, s := range l.groups[0].slices {
		if err := client.Tracker().Add(s); err != nil {
			t.Fatal(err)
		}
		existing = append(existing, s.DeepCopy())
	}
	reconciler := endpointslice.NewReconciler(client, nodes.Lister(), maxEndpointsPerSlice,
		endpointsliceutil.NewEndpointSliceTracker(), nil, record.NewFakeRecorder(100), controllerName)
	if err := reconciler.Reconcile(klog.Background(), l.service, slices.Collect(maps.Values(pods)), existing, time.Time{}); err != nil {
		t.Fatalf("reconcile: %v", err)
	}
	list, err := client.DiscoveryV1().EndpointSlices(l.service.Namespace).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var n []int
	for _, s := range list.Items {
		n = append(n, len(s.Endpoints))
	}
	return sorted(n)
}

// nameGenerated names created objects that have only a generateName. The fake does not do that.
func nameGenerated() clienttesting.ReactionFunc {
	n := 0
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		s := action.(clienttesting.CreateAction).GetObject().(*discoveryv1.EndpointSlice)
		if s.Name == "" {
			n++
			s.Name = fmt.Sprintf("%s%d", s.GenerateName, n)
		}
		return false, nil, nil
	}
}
