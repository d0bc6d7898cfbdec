package world

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/scenarios"
	"synclab/sim"
)

// allSteps runs every kind of step and returns their traces.
func allSteps(t *testing.T, w *World) []sim.Trace {
	t.Helper()
	var traces []sim.Trace
	step := func(tr sim.Trace, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		traces = append(traces, tr)
	}
	step(w.Create(scenarios.Create{Services: 5, Rate: 10}))
	step(w.Churn(scenarios.Churn{Rate: 50, Events: 100}))
	step(w.Churn(scenarios.Churn{Rate: 50, Events: 60, Kind: "readiness", Arrivals: "poisson"}))
	step(w.Churn(scenarios.Churn{Rate: 50, Events: 21, Kind: "services"}))
	step(w.Churn(scenarios.Churn{Rate: 50, Events: 100, Kind: "mixed"}))
	step(w.Rollout(scenarios.Rollout{Services: 3}))
	step(w.Scale(scenarios.Scale{To: 320}))
	step(w.Scale(scenarios.Scale{To: 7}))
	step(w.NodeLoss(scenarios.NodeLoss{Nodes: 2}))
	step(w.Scale(scenarios.Scale{To: 0}))
	step(w.Create(scenarios.Create{Services: 2}))
	return traces
}

func created(t *testing.T, shape scenarios.Shape, seed uint64) *World {
	t.Helper()
	w, err := NewWorld(shape, seed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	return w
}

func TestCreateMakesWhatGenerateMakes(t *testing.T) {
	want := generate(t, mixed(50, "IPv4"), 4)
	if diff := cmp.Diff(want, created(t, mixed(50, "IPv4"), 4).Objects()); diff != "" {
		t.Errorf("-Generate +Create:\n%s", diff)
	}
}

func TestTracesAreDeterministic(t *testing.T) {
	run := func(seed uint64) []byte { return asJSON(t, allSteps(t, created(t, mixed(40, "IPv4", "IPv6"), seed))) }
	one := run(9)
	if !bytes.Equal(one, run(9)) {
		t.Error("the same seed gives different traces")
	}
	if bytes.Equal(one, run(10)) {
		t.Error("another seed gives the same traces")
	}
}

// Each repetition has other changes of the same cluster. Those of the first one are the default.
func TestRepetitionsDiffer(t *testing.T) {
	cluster := func(rep int) *World {
		w, err := NewWorld(mixed(40, "IPv4"), 9)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Repetition(rep).Create(scenarios.Create{}); err != nil {
			t.Fatal(err)
		}
		return w
	}
	first, second := cluster(1), cluster(2)
	if diff := cmp.Diff(first.Objects(), second.Objects()); diff != "" {
		t.Errorf("another cluster; -first +second:\n%s", diff)
	}
	one, two := allSteps(t, first), allSteps(t, second)
	same := func(a, b []sim.Trace) bool { return bytes.Equal(asJSON(t, a), asJSON(t, b)) }
	if !same(one, allSteps(t, created(t, mixed(40, "IPv4"), 9))) || !same(two, allSteps(t, cluster(2))) {
		t.Error("the same repetition has other changes")
	}
	for i := range one {
		if (len(one[i]) > 0) != (len(two[i]) > 0) {
			t.Errorf("step %d: %d and %d changes", i, len(one[i]), len(two[i]))
		}
	}
	if same(one, two) {
		t.Error("another repetition has the same changes")
	}
}

// TestTracesLeadWhereTheWorldIs replays traces on the objects before them. Nothing may be missing from a trace, every
// intermediate state must be valid, and objects that were handed out must not change.
func TestTracesLeadWhereTheWorldIs(t *testing.T) {
	generated := func(families ...string) *World { return created(t, mixed(40, families...), 9) }
	worlds := map[string]*World{
		"IPv4":      generated("IPv4"),
		"IPv6":      generated("IPv6"),
		"dual":      generated("IPv4", "IPv6"),
		"WorldOf":   WorldOf(generated("IPv4", "IPv6").Objects(), 9),
		"no nodes":  WorldOf(&sim.Objects{Services: generated("IPv4").Objects().Services, Slices: generated("IPv4").Objects().Slices, Nodes: generated("IPv4").Objects().Nodes[:3]}, 1),
		"no UIDs":   WorldOf(withoutUIDs(created(t, scenarios.Shape{Services: 4, Endpoints: scenarios.Endpoints{Count: 250}, Nodes: 5}, 3).Objects()), 3),
		"shared":    created(t, shared(40, 12, mixed(0, "IPv4", "IPv6")), 5),
		"nameless":  created(t, nameless(mixed(40, "IPv4", "IPv6")), 5),
		"few ports": created(t, scenarios.Shape{Services: 12, Endpoints: scenarios.Endpoints{Count: 30}, Nodes: 5}, 2),
	}
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			before := w.Objects()
			frozen := asJSON(t, before)
			state := stateOf(before)
			for i, trace := range allSteps(t, w) {
				last := time.Duration(0)
				for _, c := range trace {
					if c.Due < last {
						t.Fatalf("step %d: due %s after %s", i, c.Due, last)
					}
					last = c.Due
					state.apply(t, c)
				}
				checkInvariants(t, state.objects())
			}
			if diff := cmp.Diff(w.Objects(), state.objects()); diff != "" {
				t.Errorf("-the world's objects +the traces':\n%s", diff)
			}
			if !bytes.Equal(frozen, asJSON(t, before)) {
				t.Error("a step wrote to objects that were handed out")
			}
		})
	}
}

// nameless returns a shape of which half of the Services have endpoints without TargetRef.
func nameless(s scenarios.Shape) scenarios.Shape {
	s.WithoutTargetRef = 0.5
	return s
}

// withoutUIDs makes objects like hand-written ones.
func withoutUIDs(o *sim.Objects) *sim.Objects {
	var bare sim.Objects
	for _, s := range o.Services {
		s = s.DeepCopy()
		s.UID = ""
		bare.Services = append(bare.Services, s)
	}
	for _, s := range o.Slices {
		s = s.DeepCopy()
		s.UID = ""
		for i := range s.Endpoints {
			s.Endpoints[i].TargetRef = &corev1.ObjectReference{Kind: "Pod"}
		}
		bare.Slices = append(bare.Slices, s)
	}
	bare.Nodes = o.Nodes
	return &bare
}

// state is the set of objects after a trace.
type state map[string]runtime.Object

func stateOf(o *sim.Objects) state {
	s := state{}
	for _, x := range o.Services {
		s[sim.KindAndName(x)] = x
	}
	for _, x := range o.Slices {
		s[sim.KindAndName(x)] = x
	}
	for _, x := range o.Nodes {
		s[sim.KindAndName(x)] = x
	}
	return s
}

func (s state) apply(t *testing.T, c sim.Change) {
	t.Helper()
	key := sim.KindAndName(c.Object)
	old, exists := s[key]
	if exists == (c.Op == sim.Add) {
		t.Fatalf("%s of %s, which exists: %v", c.Op, key, exists)
	}
	if exists && sim.VersionOf(c.Object.(metav1.Object)) <= sim.VersionOf(old.(metav1.Object)) {
		t.Fatalf("%s of %s goes back in version", c.Op, key)
	}
	if c.Op == sim.Delete {
		delete(s, key)
		return
	}
	s[key] = c.Object
}

func (s state) objects() *sim.Objects {
	o := &sim.Objects{Services: []*corev1.Service{}, Slices: []*discoveryv1.EndpointSlice{}}
	for _, x := range s {
		switch x := x.(type) {
		case *corev1.Service:
			o.Services = append(o.Services, x)
		case *discoveryv1.EndpointSlice:
			o.Slices = append(o.Slices, x)
		case *corev1.Node:
			o.Nodes = append(o.Nodes, x)
		}
	}
	o.Sort()
	return o
}

func TestChurnIsOneChangeAnEvent(t *testing.T) {
	for _, tt := range []struct {
		kind, arrivals string
		families       []string
		changes        int
	}{
		{"", "", []string{"IPv4"}, 200},
		{"endpoints", "poisson", []string{"IPv4", "IPv6"}, 400},
		{"readiness", "uniform", []string{"IPv4"}, 200},
		{"services", "", []string{"IPv4"}, 400}, // a Service and its slice, 200 times
	} {
		w := created(t, scenarios.Shape{Services: 20, Families: tt.families}, 1)
		trace, err := w.Churn(scenarios.Churn{Rate: 100, Events: 200, Kind: tt.kind, Arrivals: tt.arrivals})
		if err != nil {
			t.Fatal(err)
		}
		if len(trace) != tt.changes {
			t.Errorf("%+v: %d changes", tt, len(trace))
		}
		last := trace[len(trace)-1].Due
		if tt.arrivals == "poisson" {
			// 200 exponential gaps of 10 ms: 2 s, standard deviation 0.14 s.
			if last < 1500*time.Millisecond || last > 2500*time.Millisecond {
				t.Errorf("%+v: the last event is due at %s", tt, last)
			}
		} else if last != 1990*time.Millisecond {
			t.Errorf("%+v: the last event is due at %s, want 1.99s", tt, last)
		}
	}
}

// TestRolloutNeverDrops: at every moment of a rolling update at least as many
// endpoints serve as before it.
func TestRolloutNeverDrops(t *testing.T) {
	w := created(t, scenarios.Shape{Services: 1, Endpoints: scenarios.Endpoints{Count: 250}}, 1)
	old := w.names(w.live[0])
	trace, err := w.Rollout(scenarios.Rollout{Surge: 0.1, Interval: 3 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := state{}
	for _, x := range created(t, scenarios.Shape{Services: 1, Endpoints: scenarios.Endpoints{Count: 250}}, 1).Objects().Slices {
		s[sim.KindAndName(x)] = x
	}
	for i, c := range trace {
		s.apply(t, c)
		if i+1 < len(trace) && trace[i+1].Due == c.Due {
			continue
		}
		serving := 0
		for _, x := range s.objects().Slices {
			for _, e := range x.Endpoints {
				serving += one(*e.Conditions.Serving)
			}
		}
		if serving < 250 {
			t.Fatalf("at %s %d endpoints serve", c.Due, serving)
		}
	}
	if last := trace[len(trace)-1].Due; last < 29*time.Second || last > 30*time.Second {
		t.Errorf("ten waves of 3 s end at %s", last)
	}
	for _, name := range w.names(w.live[0]) {
		if slices.Contains(old, name) {
			t.Errorf("%s is still there", name)
		}
	}
	if w.live[0].size() != 250 {
		t.Errorf("%d endpoints, want 250", w.live[0].size())
	}
}

func TestNodeLoss(t *testing.T) {
	w := created(t, scenarios.Shape{Services: 30, Nodes: 3, Zones: 1}, 1)
	trace, err := w.NodeLoss(scenarios.NodeLoss{Nodes: 2})
	if err != nil {
		t.Fatal(err)
	}
	// Each Service has endpoints on each Node, in one slice: two updates each,
	// and an update and a deletion of each Node.
	if len(trace) != 2*30+2*2 {
		t.Errorf("%d changes", len(trace))
	}
	o := w.Objects()
	if len(o.Nodes) != 1 || o.Nodes[0].Name != "node-0" {
		t.Errorf("nodes left: %v", o.Nodes)
	}
	for _, s := range o.Slices {
		for _, e := range s.Endpoints {
			if *e.NodeName != "node-0" {
				t.Errorf("%s is still on %s", e.TargetRef.Name, *e.NodeName)
			}
		}
	}
	if _, err := w.NodeLoss(scenarios.NodeLoss{}); err == nil {
		t.Error("the proxier's own node was lost")
	}
}

// Proxies run on the first of the given Nodes, whatever the names are. It stays the first, and is never lost.
func TestChosenNode(t *testing.T) {
	given := generate(t, mixed(30, "IPv4"), 1)
	i := slices.IndexFunc(given.Nodes, func(n *corev1.Node) bool { return n.Name == "node-2" })
	chosen := given.Nodes[i]
	given.Nodes = slices.Insert(slices.Delete(given.Nodes, i, i+1), 0, chosen)
	for seed := range uint64(5) {
		w := WorldOf(given, seed)
		if _, err := w.NodeLoss(scenarios.NodeLoss{Nodes: len(given.Nodes) - 1}); err != nil {
			t.Fatal(err)
		}
		if left := w.Objects().Nodes; len(left) != 1 || left[0].Name != "node-2" {
			t.Errorf("seed %d: %d nodes left, the first is %s", seed, len(left), left[0].Name)
		}
	}
	if first := WorldOf(given, 1).Objects().Nodes[0].Name; first != "node-2" {
		t.Errorf("proxies run on %s", first)
	}
	if larger, _ := sim.Resize(given, 60); larger.Nodes[0].Name != "node-2" {
		t.Errorf("in a larger cluster, proxies run on %s", larger.Nodes[0].Name)
	}
}

func TestStepsRefuse(t *testing.T) {
	w := created(t, scenarios.Shape{Services: 3, Types: map[string]float64{"ExternalName": 1}}, 1)
	for want, step := range map[string]func() (sim.Trace, error){
		"rate > 0":            func() (sim.Trace, error) { return w.Churn(scenarios.Churn{Events: 1}) },
		"no Service":          func() (sim.Trace, error) { return w.Churn(scenarios.Churn{Events: 1, Rate: 1}) },
		"unknown kind":        func() (sim.Trace, error) { return w.Churn(scenarios.Churn{Events: 1, Rate: 1, Kind: "chaos"}) },
		"unknown arrivals":    func() (sim.Trace, error) { return w.Churn(scenarios.Churn{Events: 1, Rate: 1, Arrivals: "late"}) },
		"with endpoints, not": func() (sim.Trace, error) { return w.Rollout(scenarios.Rollout{}) },
		"scale: no Service":   func() (sim.Trace, error) { return w.Scale(scenarios.Scale{To: 1}) },
		"to -1":               func() (sim.Trace, error) { return w.Scale(scenarios.Scale{To: -1}) },
		"own, not 500":        func() (sim.Trace, error) { return w.NodeLoss(scenarios.NodeLoss{Nodes: 500}) },
		"create: -1 services": func() (sim.Trace, error) { return w.Create(scenarios.Create{Services: -1}) },
	} {
		if _, err := step(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestAddressesComeBack: a long churn in a small range reuses free addresses, and never used ones.
func TestAddressesComeBack(t *testing.T) {
	w := created(t, scenarios.Shape{Services: 20, PodCIDRs: []string{"10.0.0.0/24"}, ServiceCIDRs: []string{"10.1.0.0/26"}}, 1)
	for range 5 {
		if _, err := w.Churn(scenarios.Churn{Rate: 1, Events: 400, Kind: "mixed"}); err != nil {
			t.Fatal(err)
		}
		checkInvariants(t, w.Objects())
	}
}
