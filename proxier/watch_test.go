package proxier

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
)

func plainService(name, clusterIP string, created int64) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, CreationTimestamp: metav1.Unix(created, 0)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: clusterIP, Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
}

func plainSlice(service string, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: service + "-a", Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return slice
}

// eachStored runs a test with informers that store whole objects, and with informers that store digests.
func eachStored(t *testing.T, test func(t *testing.T, stored func(any) any)) {
	t.Run("objects", func(t *testing.T) { test(t, func(obj any) any { return obj }) })
	t.Run("digests", func(t *testing.T) {
		test(t, func(obj any) any {
			digest, err := tracker.Digester{NodeName: "node-0"}.Transform(obj)
			if err != nil {
				t.Fatal(err)
			}
			return digest
		})
	})
}

// A broken watch may have missed deletions. The informer then delivers tombstones with the last known state.
func TestTombstones(t *testing.T) {
	eachStored(t, func(t *testing.T, stored func(any) any) {
		p, rules := watching(t)
		svc, slice := stored(plainService("svc", "10.96.0.1", 0)), stored(plainSlice("svc", "10.128.0.1"))
		services, slices := p.serviceHandler(), p.sliceHandler()
		services.OnAdd(svc, true)
		slices.OnAdd(slice, true)
		if !strings.Contains(rules(), "--to-destination 10.128.0.1:8080") {
			t.Fatal("no rule for the endpoint")
		}
		slices.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/svc-a", Obj: slice})
		if after := rules(); strings.Contains(after, "10.128.0.1") || !strings.Contains(after, "has no endpoints") {
			t.Error("the slice's tombstone left its endpoint in place")
		}
		services.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/svc", Obj: svc})
		if after := rules(); strings.Contains(after, "ns/svc") {
			t.Error("the Service's tombstone left rules in place")
		}
		// These carry no object. The handlers must ignore them.
		services.OnDelete(cache.DeletedFinalStateUnknown{Key: "ns/svc"})
		slices.OnDelete("nonsense")
		rules()
	})
}

// An EndpointSlice whose label changes moves to another Service: the old Service loses its endpoints.
func TestMovedSlice(t *testing.T) {
	eachStored(t, func(t *testing.T, stored func(any) any) {
		p, rules := watching(t)
		for i, name := range []string{"old", "new"} {
			p.serviceHandler().OnAdd(stored(plainService(name, fmt.Sprintf("10.96.0.%d", i), 0)), true)
		}
		before, after := plainSlice("old", "10.128.0.1"), plainSlice("new", "10.128.0.1")
		after.Name, after.ResourceVersion = before.Name, "9"
		p.sliceHandler().OnAdd(stored(before), true)
		if text := rules(); !strings.Contains(text, "ns/new has no endpoints") || strings.Contains(text, "ns/old has no endpoints") {
			t.Errorf("at first:\n%s", text)
		}
		p.sliceHandler().OnUpdate(stored(before), stored(after))
		if text := rules(); strings.Contains(text, "ns/new has no endpoints") || !strings.Contains(text, "ns/old has no endpoints") {
			t.Errorf("after the move:\n%s", text)
		}
		if err := p.WaitSeen(t.Context(), 0, 9); err != nil {
			t.Error(err)
		}
	})
}

// watching returns a proxier on a model, and a function that syncs and returns the model's rules.
func watching(t *testing.T) (*Proxier, func() string) {
	t.Helper()
	model := iptables.NewModel(corev1.IPv4Protocol)
	p, err := New(Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	return p, func() string {
		t.Helper()
		if err := p.SyncNow(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		return saved(t, model)
	}
}

// The gate AllowServiceExternalIPs works with every feed: an informer of whole objects, and Render.
func TestExternalIPsGate(t *testing.T) {
	svc, slice := plainService("svc", "10.96.0.1", 0), plainSlice("svc", "10.128.0.1")
	svc.Spec.ExternalIPs = []string{"198.51.100.7"}
	for _, allowed := range []bool{true, false} {
		model := iptables.NewModel(corev1.IPv4Protocol)
		opts := Options{Config: config.New(), Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil }}
		opts.Config.FeatureGates["AllowServiceExternalIPs"] = allowed
		p, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Watch(t.Context(), informers.NewSharedInformerFactory(fake.NewClientset(svc, slice), 0)); err != nil {
			t.Fatal(err)
		}
		if err := p.SyncNow(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		rendered, err := Render(t.Context(), Options{Config: opts.Config}, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{slice}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for feed, rules := range map[string]string{"informers": saved(t, model), "render": saved(t, rendered[0])} {
			if there := strings.Contains(rules, "198.51.100.7"); there != allowed || !strings.Contains(rules, "10.96.0.1/32") {
				t.Errorf("%s, external IPs allowed %v: rules\n%s", feed, allowed, rules)
			}
		}
	}
}

// A relist delivers objects that did not change: no sync follows.
func TestResyncIsNoChange(t *testing.T) {
	syncs := 0
	p, err := New(Options{
		Tables: func(family corev1.IPFamily) (iptables.Tables, error) { return iptables.NewModel(family), nil },
		OnSync: func(s Sync) { syncs = s.Seq + len(s.Runs) + s.Changes },
	})
	if err != nil {
		t.Fatal(err)
	}
	svc, slice := plainService("svc", "10.96.0.1", 0), plainSlice("svc", "10.128.0.1")
	p.serviceHandler().OnAdd(svc, true)
	p.sliceHandler().OnAdd(slice, true)
	if err := p.SyncNow(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p.serviceHandler().OnUpdate(svc, svc.DeepCopy())
	p.sliceHandler().OnUpdate(slice, slice.DeepCopy())
	if n := p.engines[0].tracker.Pending(); n != 0 {
		t.Errorf("%d Services pending", n)
	}
	if err := p.SyncNow(t.Context(), ""); err != nil || syncs != 2 { // Seq 2, no run of the tool, no change
		t.Errorf("%v, %d", err, syncs)
	}
}

// Two Services claim one external address and port. The older one's rule comes first, whatever the names, the order of
// the events, or the Service that changed last.
func TestOldestServiceWins(t *testing.T) {
	young, old := plainService("a", "10.96.0.1", 200), plainService("z", "10.96.0.2", 100)
	for _, svc := range []*corev1.Service{young, old} {
		svc.Spec.ExternalIPs = []string{"192.0.2.1"}
	}
	for _, order := range [][]*corev1.Service{{young, old}, {old, young}} {
		model := iptables.NewModel(corev1.IPv4Protocol)
		e := testEngine(t, corev1.IPv4Protocol, model, nil)
		for _, svc := range order {
			e.tracker.SetService(svc, time.Time{})
			e.tracker.SetSlice(plainSlice(svc.Name, "10.128.0.1"), time.Time{})
			if err := e.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		touched := old.DeepCopy()
		touched.Spec.Ports[0].NodePort = 30000
		e.tracker.SetService(touched, time.Time{})
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		var external []string
		for _, rule := range model.Chain(iptables.NAT, "KUBE-SERVICES") {
			if after, found := strings.CutPrefix(rule.Comment(), "ns/"); found && strings.Contains(after, "external IP") {
				external = append(external, after[:1])
			}
		}
		if got := strings.Join(external, " "); got != "z a" {
			t.Errorf("in the order %s, want z a", got)
		}
	}
}

// Addresses with leading zeros, as in old objects, appear in the rules in canonical form.
func TestLeadingZeros(t *testing.T) {
	svc := plainService("svc", "010.096.000.001", 0)
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	svc.Spec.ExternalIPs = []string{"192.000.002.001"}
	svc.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.018.000.001"}}
	svc.Spec.LoadBalancerSourceRanges = []string{" 203.000.113.000/024"}
	models, err := Render(t.Context(), Options{}, []*corev1.Service{svc}, []*discoveryv1.EndpointSlice{plainSlice("svc", "010.128.000.001")}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text := saved(t, models[0])
	for _, want := range []string{
		"-d 10.96.0.1/32 ", "-d 192.0.2.1/32 ", "-d 198.18.0.1/32 ", "-s 203.0.113.0/24 ", "-s 10.128.0.1/32 ", "--to-destination 10.128.0.1:8080",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no rule has %s", want)
		}
	}
	if strings.Contains(text, ".000") || strings.Contains(text, "010.") {
		t.Errorf("leading zeros in the rules:\n%s", text)
	}
}

// A slice whose label changes to another Service moves its endpoints there.
func TestSliceMovesToAnotherService(t *testing.T) {
	model := iptables.NewModel(corev1.IPv4Protocol)
	p, err := New(Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	p.serviceHandler().OnAdd(plainService("one", "10.96.0.1", 0), true)
	p.serviceHandler().OnAdd(plainService("two", "10.96.0.2", 1), true)
	before := plainSlice("one", "10.128.0.1")
	after := before.DeepCopy()
	after.Labels[discoveryv1.LabelServiceName] = "two"
	p.sliceHandler().OnAdd(before, true)
	if err := p.SyncNow(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	p.sliceHandler().OnUpdate(before, after)
	if err := p.SyncNow(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	rules := saved(t, model)
	if !strings.Contains(rules, `"ns/one has no endpoints"`) || !strings.Contains(rules, `"ns/two -> 10.128.0.1:8080"`) {
		t.Errorf("the endpoint did not move:\n%s", rules)
	}
}

// A slice that becomes headless removes its endpoints, and brings them back when it is no longer headless.
func TestSliceTurnsHeadless(t *testing.T) {
	model := iptables.NewModel(corev1.IPv4Protocol)
	p, err := New(Options{Tables: func(corev1.IPFamily) (iptables.Tables, error) { return model, nil }})
	if err != nil {
		t.Fatal(err)
	}
	slice := plainSlice("svc", "10.128.0.1")
	headless := slice.DeepCopy()
	headless.Labels[corev1.IsHeadlessService] = ""
	p.serviceHandler().OnAdd(plainService("svc", "10.96.0.1", 0), true)
	p.sliceHandler().OnAdd(slice, true)
	for _, step := range []struct {
		old, obj *discoveryv1.EndpointSlice
		want     bool
	}{{slice, slice, true}, {slice, headless, false}, {headless, slice, true}} {
		p.sliceHandler().OnUpdate(step.old, step.obj)
		if err := p.SyncNow(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(saved(t, model), "10.128.0.1:8080"); got != step.want {
			t.Errorf("labels %v: endpoint in the rules: %v, want %v", step.obj.Labels, got, step.want)
		}
	}
}
