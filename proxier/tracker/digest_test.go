package tracker

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// Informers find the name and the version of a digest. The digest of a digest is itself.
func TestDigestInStores(t *testing.T) {
	svc, slice := testService(nil), testSlice("a", at(1), "10.0.0.1")
	svc.ResourceVersion, slice.ResourceVersion = "7", "8"
	d := Digester{NodeName: "here"}
	for want, obj := range map[string]any{"ns/svc 7": svc, "ns/a 8": slice} {
		digest, err := d.Transform(obj)
		if err != nil {
			t.Fatal(err)
		}
		key, err := cache.MetaNamespaceKeyFunc(digest)
		if got := key + " " + digest.(interface{ GetResourceVersion() string }).GetResourceVersion(); err != nil || got != want {
			t.Errorf("%s, %v; want %s", got, err, want)
		}
		if again, err := d.Transform(digest); err != nil || again != digest {
			t.Errorf("%s: another digest of a digest: %v", want, err)
		}
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "here"}}
	if same, err := d.Transform(node); err != nil || same != any(node) {
		t.Errorf("a Node became %v, %v", same, err)
	}
}

// A digest has the same effect on a tracker as its object, in the families of the Digester.
func TestDigestIsItsObject(t *testing.T) {
	dual := testService(func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"10.96.0.1", "fd00::1"} })
	slice6 := testSlice("b", at(1), "fd00::9")
	slice6.AddressType = discoveryv1.AddressTypeIPv6
	for _, c := range []struct {
		digester Digester
		family   corev1.IPFamily
		want     string
	}{
		{Digester{NodeName: "here"}, corev1.IPv4Protocol, "[10.0.0.1:8080]"},
		{Digester{NodeName: "here"}, corev1.IPv6Protocol, "[[fd00::9]:8080]"},
		{Digester{NodeName: "here", Families: []corev1.IPFamily{corev1.IPv6Protocol}}, corev1.IPv6Protocol, "[[fd00::9]:8080]"},
		{Digester{NodeName: "here", Families: []corev1.IPFamily{corev1.IPv6Protocol}}, corev1.IPv4Protocol, ""},
	} {
		tr := New(Options{Family: c.family, NodeName: "here", Since: epoch})
		tr.PutService(c.digester.Service(dual), at(1))
		tr.PutSlice(c.digester.Slice(testSlice("a", at(1), "10.0.0.1")), at(1))
		tr.PutSlice(c.digester.Slice(slice6), at(1))
		changes, got := tr.Take(), ""
		if len(changes.Services) > 0 {
			got = fmt.Sprint(texts(changes.Services[0].New))
		}
		if got != c.want {
			t.Errorf("%v for %s: %s, want %s", c.digester.Families, c.family, got, c.want)
		}
		tr.Commit(changes)
		tr.DropSlice(c.digester.Slice(testSlice("a", at(1))), at(2))
		tr.DropSlice(c.digester.Slice(slice6), at(2))
		tr.DropService(c.digester.Service(dual), at(2))
		for _, change := range tr.Take().Services {
			if change.New != nil {
				t.Errorf("%v for %s: left after it was dropped: %+v", c.digester.Families, c.family, change.New)
			}
		}
	}
}

func TestMoved(t *testing.T) {
	d := Digester{}
	old := d.Slice(testSlice("a", at(1), "10.0.0.1"))
	for name, c := range map[string]struct {
		change func(*discoveryv1.EndpointSlice)
		want   bool
	}{
		"other endpoints": {func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil }, false},
		"other Service":   {func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "other" }, true},
		"no Service":      {func(s *discoveryv1.EndpointSlice) { s.Labels = nil }, true},
		"headless":        {func(s *discoveryv1.EndpointSlice) { s.Labels[LabelHeadless] = "" }, true},
		"other family":    {func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }, true},
		"host names":      {func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }, true},
	} {
		now := testSlice("a", at(1), "10.0.0.1")
		c.change(now)
		if got := d.Slice(now).Moved(old); got != c.want {
			t.Errorf("%s: moved %v, want %v", name, got, c.want)
		}
	}
}

// A deleted Service leaves no state.
func TestForgets(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(1))
	tr.SetSlice(testSlice("a", at(1), "10.0.0.1"), at(1))
	tr.Commit(tr.Take())
	tr.DeleteService(testService(nil), at(2))
	tr.Commit(tr.Take())
	tr.DeleteSlice(testSlice("a", at(1), "10.0.0.1"), at(3))
	tr.DeleteSlice(testSlice("never there", at(1)), at(3))
	tr.DeleteService(testService(func(s *corev1.Service) { s.Name = "never there" }), at(3))
	tr.Commit(tr.Take())
	if len(tr.services) != 0 || len(tr.pending.dirty) != 0 {
		t.Errorf("%d Services and %d dirty ones are left", len(tr.services), len(tr.pending.dirty))
	}
}

// Of two ports with one name, which every API server refuses, the last one counts.
func TestPortsWithOneName(t *testing.T) {
	svc := testService(func(s *corev1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "http", Protocol: corev1.ProtocolTCP, Port: 81})
	})
	ports := translateService(svc, svcName, corev1.IPv4Protocol).ports
	if len(ports) != 1 || ports[0].Port != 81 {
		t.Errorf("%d ports, the first is %d", len(ports), ports[0].Port)
	}
}

// bigCluster makes Services with ten endpoints each, as if from a decoder: objects share no strings.
func bigCluster(services int) ([]*corev1.Service, []*discoveryv1.EndpointSlice) {
	var all []*corev1.Service
	var parts []*discoveryv1.EndpointSlice
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		all = append(all, testService(func(s *corev1.Service) {
			s.Name, s.Spec.ClusterIP = name, fmt.Sprintf("10.96.%d.%d", i/250, i%250)
			s.Labels = map[string]string{"app": name}
		}))
		slice := testSlice(name+"-abcde", at(1))
		slice.Labels[discoveryv1.LabelServiceName] = fmt.Sprintf("service-%d", i)
		for j := range 10 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{fmt.Sprintf("10.%d.%d.%d", 128+j, i/250, i%250)}, NodeName: ptr.To(fmt.Sprintf("node-%d", i*j%100)),
				Zone: ptr.To(fmt.Sprintf("zone-%d", j%3)), TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", name, j)},
				Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true), Terminating: ptr.To(false)},
				Hints:      &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: fmt.Sprintf("zone-%d", j%3)}}},
			})
		}
		parts = append(parts, slice)
	}
	return all, parts
}

// The memory for a Service with a slice of ten endpoints, in a tracker and in the stores of its informers. The bound is
// 1.5 times the measured value.
func TestMemory(t *testing.T) {
	const services, most = 2000, 3300
	all, parts := bigCluster(services)
	before := heap()
	tr := newTracker()
	objects := make(map[types.NamespacedName]any, 2*services)
	load(tr, all, parts, func(name types.NamespacedName, digest any) { objects[name] = digest })
	tr.Commit(tr.Take())
	used := heap() - before
	if t.Logf("%d B a Service", used/services); used/services > most {
		t.Errorf("more than %d B", most)
	}
	runtime.KeepAlive(objects)
	runtime.KeepAlive(tr)
	runtime.KeepAlive(all)
	runtime.KeepAlive(parts)
}

// heap returns the reachable memory, in bytes.
func heap() int {
	runtime.GC()
	runtime.GC() // for memory behind weak maps and finalizers
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

func load(tr *Tracker, all []*corev1.Service, parts []*discoveryv1.EndpointSlice, keep func(types.NamespacedName, any)) {
	d := Digester{NodeName: "here", Families: []corev1.IPFamily{corev1.IPv4Protocol}}
	for _, svc := range all {
		digest := d.Service(svc)
		tr.PutService(digest, time.Time{})
		keep(digest.NamespacedName, digest)
	}
	for _, part := range parts {
		digest := d.Slice(part)
		tr.PutSlice(digest, time.Time{})
		keep(digest.NamespacedName, digest)
	}
}

// A changed slice of ten endpoints costs the same in a cluster of any size.
func TestAllocationsOfAChange(t *testing.T) {
	most := 0.0
	for _, services := range []int{10, 2000} {
		all, parts := bigCluster(services)
		tr := newTracker()
		load(tr, all, parts, func(types.NamespacedName, any) {})
		tr.Commit(tr.Take())
		slice := parts[services/2]
		allocations := testing.AllocsPerRun(100, func() {
			slice.Endpoints[0], slice.Endpoints[1] = slice.Endpoints[1], slice.Endpoints[0]
			ready := slice.Endpoints[0].Conditions.Ready
			*ready = !*ready
			tr.SetSlice(slice, at(1))
			c := tr.Take()
			if len(c.Services) != 1 {
				t.Fatalf("%d changes", len(c.Services))
			}
			tr.Commit(c)
		})
		t.Logf("%d Services: %v allocations", services, allocations)
		most = max(most, allocations)
	}
	if most > 30 {
		t.Errorf("%v allocations for one changed slice", most)
	}
}

// BenchmarkLoad measures from API objects to a tracker that contains them all.
func BenchmarkLoad(b *testing.B) {
	for _, services := range []int{1000, 10_000, 50_000} {
		b.Run(fmt.Sprintf("services=%d/endpoints=10", services), func(b *testing.B) {
			all, parts := bigCluster(services)
			b.ReportAllocs()
			for b.Loop() {
				tr := newTracker()
				load(tr, all, parts, func(types.NamespacedName, any) {})
				tr.Commit(tr.Take())
			}
		})
	}
}
