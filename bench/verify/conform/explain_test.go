package conform

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/proxier/iptables/rule"
	"synclab/sim"
)

// Each test here shows one entry of docs/differences.md: kube-proxy's behaviour, Synclab's behaviour, and that the
// entry predicts the difference.

func plainNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-0"},
		Status:     corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.10"}}},
	}
}

func plainService(name, ip string) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: ip, ClusterIPs: []string{ip}, IPFamilies: both[:1], Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
		},
	}
	sim.DefaultService(svc)
	return svc
}

func plainSlice(name, service string, addresses ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To(""), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// steady runs steps against kube-proxy and Synclab's proxier with real tables, and returns the finding of each step.
func steady(t *testing.T, steps ...Step) []*Finding {
	t.Helper()
	return lively(t, func(found []*Finding) (Step, bool) {
		if len(found) == len(steps) {
			return Step{}, false
		}
		return steps[len(found)], true
	})
}

// lively calls next for each step, with the findings so far.
func lively(t *testing.T, next func(found []*Finding) (Step, bool)) []*Finding {
	t.Helper()
	var found []*Finding
	c := Comparison{
		First: Subject{KubeProxy: true}, Second: Subject{Real: true}, KubeProxy: kubeProxyCommand(t),
		State: func(_ *Batch, f *Finding) { found = append(found, f) },
	}
	b := &Batch{Name: t.Name(), Setting: Setting{Variant: iptables.Legacy, Config: config.New()}}
	b.Next = func() (Step, bool, error) {
		step, more := next(found)
		return step, more, nil
	}
	if err := c.Run(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return found
}

// only requires exactly one difference, of the given Service and explained by the given entry.
func only(t *testing.T, f *Finding, service, entry string) string {
	t.Helper()
	if f == nil {
		t.Fatalf("nothing differs; want %s", entry)
	}
	if len(f.Differences) != 1 || f.Differences[0].Service != service || f.Differences[0].Entry != entry {
		t.Fatalf("want Service %s alone to differ, by %s:\n%s", service, entry, fmt.Sprint(f.Differences))
	}
	return f.Differences[0].String()
}

func update(objects ...*discoveryv1.EndpointSlice) sim.Trace {
	var t sim.Trace
	for _, o := range objects {
		t = append(t, sim.Change{Op: sim.Update, Object: o})
	}
	return t
}

// A slice moves from Service a to b. kube-proxy then sends clients of both Services to it, and clients of a for ever.
func TestMovedSliceStaysInKubeProxy(t *testing.T) {
	t.Parallel()
	before := &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1"), plainService("b", "10.96.0.2")},
		Slices: []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1")},
	}
	moved := plainSlice("s", "b", "10.128.0.1")
	found := steady(t, Step{What: "before", Objects: before}, Step{What: "moved", Trace: update(moved)},
		Step{What: "gone", Trace: sim.Trace{{Op: sim.Delete, Object: moved}}})
	if found[0] != nil {
		t.Fatalf("the proxiers differ in the first state: %s", found[0])
	}
	for _, f := range found[1:] {
		text := only(t, f, "ns/a", EntryMoved)
		for _, line := range []string{"--to-destination 10.128.0.1:8080", "+ -A KUBE-SERVICES -d 10.96.0.1/32 -p tcp -m comment --comment \"ns/a has no endpoints\""} {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q in\n%s", f.What, line, text)
			}
		}
	}
}

// One address is ready in one slice and not ready in another. kube-proxy chooses at random when the Service's slices
// change.
func TestAddressTwiceIsDrawnByKubeProxy(t *testing.T) {
	t.Parallel()
	ready, not := plainSlice("a-ready", "a", "10.128.0.1"), plainSlice("b-not", "a", "10.128.0.1")
	not.Endpoints[0].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}
	first := Step{What: "at first", Objects: &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1")}, Slices: []*discoveryv1.EndpointSlice{ready, not},
	}}
	const draws = 150 // Go starts small maps at one of eight places: all draws agree with probability 1 in 10^8
	same, differ := 0, 0
	found := lively(t, func(found []*Finding) (Step, bool) {
		n := len(found)
		if n == 0 {
			return first, true
		}
		if found[n-1] == nil {
			same++
		} else {
			differ++
		}
		touched := not.DeepCopy()
		touched.Endpoints = append(touched.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.128.1.%d", n)}})
		return Step{What: fmt.Sprint("draw ", n), Trace: update(touched)}, n < draws && (same == 0 || differ == 0)
	})
	for _, f := range found {
		if f == nil {
			continue
		}
		text := only(t, f, "ns/a", EntryTwice)
		if !strings.Contains(text, "- -A") || strings.Contains(text, "+ -A KUBE-SEP") {
			t.Errorf("Synclab's proxier has the endpoint, though the later slice says that it is not ready:\n%s", text)
		}
	}
	t.Logf("%d draws alike, %d not", same, differ)
	if same == 0 || differ == 0 {
		t.Error("all draws gave the same result; want a random one")
	}
}

// A cluster grows beyond 1,000 endpoints. kube-proxy removes the comments of endpoint rules only where something else
// changes. Synclab's proxier rewrites all endpoint rules, so the tables are as after a start.
func TestLargeClusterIsMixedInKubeProxy(t *testing.T) {
	t.Parallel()
	addresses := func(net, n int) (all []string) {
		for i := range n {
			all = append(all, fmt.Sprintf("10.%d.%d.%d", net, i/250, 1+i%250))
		}
		return all
	}
	few := &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1"), plainService("b", "10.96.0.2")},
		Slices: []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1")},
	}
	many := plainSlice("t", "b", addresses(129, largeCluster)...)
	found := steady(t, Step{What: "few", Objects: few}, Step{What: "many", Trace: sim.Trace{{Op: sim.Add, Object: many}}})
	if found[0] != nil {
		t.Fatalf("the proxiers differ in the first state: %s", found[0])
	}
	text := only(t, found[1], "ns/a", EntryLarge)
	if !strings.Contains(text, `- -A KUBE-SEP`) || !strings.Contains(text, `--comment "ns/a"`) {
		t.Errorf("no comment in\n%s", text)
	}
}

// twoZones returns a Service with one endpoint for clients in node-0's zone and one for clients in another zone.
func twoZones() *sim.Objects {
	o := &sim.Objects{Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1")}}
	o.Nodes[0].Labels = map[string]string{corev1.LabelTopologyZone: "zone-a"}
	s := plainSlice("s", "a", "10.128.0.1", "10.128.0.2")
	for i, zone := range []string{"zone-a", "zone-b"} {
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	o.Slices = append(o.Slices, s)
	return o
}

// A kube-proxy that lost its node's zone ignores the hints of that zone. The entry predicts this as long as the zone
// has not changed, and hides no other difference.
func TestLostZoneIsPredicted(t *testing.T) {
	o := twoZones()
	f := newFeed()
	defer f.cluster.Stop()
	if err := f.apply(t.Context(), f.traceTo(o)); err != nil {
		t.Fatal(err)
	}
	f.watched = "node-0"
	ours := &rendered{setting: Setting{Variant: iptables.Legacy, Config: config.New()}, node: plainNode()}
	mine, err := ours.rules(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := ours.renderObjects(t.Context(), o.Services, o.Slices, WithoutZones(o.Nodes))
	if err != nil {
		t.Fatal(err)
	}
	found := Diff(both[0], theirs[both[0]], mine[both[0]])
	if len(found) != 1 || !strings.Contains(found[0].String(), "- -A KUBE-SEP") {
		t.Fatalf("the zone makes no difference: %v", found)
	}
	if entry, err := explain(t.Context(), &found[0], theirs[both[0]], ours, f); entry != EntryZone || err != nil {
		t.Errorf("explained by %q, %v; want %s", entry, err, EntryZone)
	}
	moved := o.Nodes[0].DeepCopy()
	moved.Labels[corev1.LabelTopologyZone] = "zone-b"
	if err := f.apply(t.Context(), sim.Trace{{Op: sim.Update, Object: moved}}); err != nil {
		t.Fatal(err)
	}
	if entry, err := explain(t.Context(), &found[0], theirs[both[0]], ours, f); entry != "" || err != nil {
		t.Errorf("after the zone changed: explained by %q, %v", entry, err)
	}
}

// Older minors use fewer hints. The entry predicts their rules, and explains nothing in a newer minor.
func TestOlderHintsArePredicted(t *testing.T) {
	zones := twoZones()
	nodes := twoZones()
	for i, name := range []string{"node-0", "node-1"} {
		nodes.Slices[0].Endpoints[i].Hints = &discoveryv1.EndpointHints{ForNodes: []discoveryv1.ForNode{{Name: name}}}
	}
	asked, refused := twoZones(), twoZones()
	asked.Services[0].Annotations = map[string]string{corev1.AnnotationTopologyMode: "Auto"}
	refused.Services[0].Annotations = map[string]string{corev1.DeprecatedAnnotationTopologyAwareHints: "disabled", corev1.AnnotationTopologyMode: "Auto"}
	for name, c := range map[string]struct {
		objects *sim.Objects
		differs int // minors before this one differ
	}{"hints for nodes": {nodes, hintsForNodes}, "hints for zones": {zones, hintsAlways}, "annotation": {asked, 0}, "annotation, disabled": {refused, hintsAlways}} {
		t.Run(name, func(t *testing.T) {
			f := newFeed()
			defer f.cluster.Stop()
			if err := f.apply(t.Context(), f.traceTo(c.objects)); err != nil {
				t.Fatal(err)
			}
			ours := &rendered{setting: Setting{Variant: iptables.Legacy, Config: config.New()}, node: plainNode()}
			mine, err := ours.rules(t.Context(), f, nil)
			if err != nil {
				t.Fatal(err)
			}
			without := c.objects.Slices[0].DeepCopy()
			for i := range without.Endpoints {
				without.Endpoints[i].Hints = nil
			}
			theirs, err := ours.renderObjects(t.Context(), c.objects.Services, []*discoveryv1.EndpointSlice{without}, c.objects.Nodes)
			if err != nil {
				t.Fatal(err)
			}
			found := Diff(both[0], theirs[both[0]], mine[both[0]])
			if len(found) != 1 {
				t.Fatalf("hints make no difference: %v", found)
			}
			f.zoneChanged = true // a lost zone would predict the same
			for _, minor := range []int{0, hintsAlways - 1, hintsAlways, hintsForNodes - 1, hintsForNodes} {
				want := ""
				if minor > 0 && minor < c.differs {
					want = EntryHints
				}
				f.minor = minor
				if entry, err := explain(t.Context(), &found[0], theirs[both[0]], ours, f); entry != want || err != nil {
					t.Errorf("1.%d without hints: explained by %q, %v; want %q", minor, entry, err, want)
				}
			}
		})
	}
}

// Before 1.36, an endpoint of this node counts more than one that does not terminate, of those with one address.
func TestOlderAddressTwiceIsPredicted(t *testing.T) {
	o := &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1")},
		Slices: []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1", "10.128.0.2"), plainSlice("t", "a", "10.128.0.2", "10.128.0.3")},
	}
	old := &o.Slices[0].Endpoints[1]
	old.NodeName = ptr.To("node-0")
	old.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	f := newFeed()
	defer f.cluster.Stop()
	if err := f.apply(t.Context(), f.traceTo(o)); err != nil {
		t.Fatal(err)
	}
	ours := &rendered{setting: Setting{Variant: iptables.Legacy, Config: config.New()}, node: plainNode()}
	mine, err := ours.rules(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	without := []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1"), plainSlice("t", "a", "10.128.0.3")}
	theirs, err := ours.renderObjects(t.Context(), o.Services, without, o.Nodes)
	if err != nil {
		t.Fatal(err)
	}
	found := Diff(both[0], theirs[both[0]], mine[both[0]])
	if len(found) != 1 {
		t.Fatalf("the address makes no difference: %v", found)
	}
	for minor, want := range map[int]string{readyFirst - 1: EntryTwice, readyFirst: "", 0: ""} {
		f.minor = minor
		if entry, err := explain(t.Context(), &found[0], theirs[both[0]], ours, f); entry != want || err != nil {
			t.Errorf("1.%d: explained by %q, %v; want %q", minor, entry, err, want)
		}
	}
}

// An entry explains only what it predicts.
func TestEntriesExplainNothingElse(t *testing.T) {
	o := &sim.Objects{
		Nodes: []*corev1.Node{plainNode()}, Services: []*corev1.Service{plainService("a", "10.96.0.1")},
		Slices: []*discoveryv1.EndpointSlice{plainSlice("s", "a", "10.128.0.1", "10.128.0.2"), plainSlice("t", "a", "10.128.0.2")},
	}
	f := newFeed()
	defer f.cluster.Stop()
	if err := f.apply(t.Context(), f.traceTo(o)); err != nil {
		t.Fatal(err)
	}
	ours := &rendered{setting: Setting{Variant: iptables.Legacy, Config: config.New()}, node: plainNode()}
	all, err := ours.rules(t.Context(), f, nil)
	if err != nil {
		t.Fatal(err)
	}
	theirs := Grouped{}
	for service, rules := range all[both[0]] {
		theirs[service] = map[place][]*rule.Rule{}
		for at, list := range rules {
			if !strings.HasPrefix(at.chain, "KUBE-SEP-") { // omit the endpoints' chains
				theirs[service][at] = list
			}
		}
	}
	found := Diff(both[0], theirs, all[both[0]])
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	f.large = true
	if entry, err := explain(t.Context(), &found[0], theirs, ours, f); err != nil || entry != "" {
		t.Errorf("lost rules are explained by %q, %v", entry, err)
	}
}
