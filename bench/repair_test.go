package bench

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"synclab/bench/visible"
	"synclab/proxier/tracker"
	"synclab/scenarios"
	"synclab/sim"
)

// slowKernel shows the endpoints of Services, by name, when they are shown.
type slowKernel struct {
	mu         sync.Mutex
	generation uint64
	endpoints  map[string]string
}

func (k *slowKernel) show(service, endpoint string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.generation++
	k.endpoints[service] = endpoint
}

func (k *slowKernel) Generation() (visible.Generation, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return visible.Generation{Dispatch: k.generation}, nil
}

func (k *slowKernel) Port(_ corev1.IPFamily, port tracker.ServicePortName) (visible.State, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if endpoint := k.endpoints[port.NamespacedName.Name]; endpoint != "" {
		return visible.State{Cluster: []string{endpoint}}, nil
	}
	return visible.State{}, nil
}

func (k *slowKernel) Dispatched(corev1.IPFamily, tracker.ServicePortName) (cluster, local bool, err error) {
	return true, false, nil
}
func (k *slowKernel) Misses() bool                                           { return false }
func (k *slowKernel) Look() (visible.Look, error)                            { return k, nil }
func (k *slowKernel) Endpoint(_ tracker.ServicePortName, text string) string { return text }
func (k *slowKernel) Installed(corev1.IPFamily) (visible.Installed, error) {
	return visible.Installed{}, nil
}
func (k *slowKernel) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) {
	return "", nil
}
func (k *slowKernel) Close() {}

// slow is a repetition whose subject writes what it is told to.
type slow struct {
	*repetition
	t      *testing.T
	kernel *slowKernel
	sights chan visible.Sight
	said   string
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	out, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	s := &slow{
		t: t, kernel: &slowKernel{endpoints: map[string]string{}}, sights: make(chan visible.Sight, 100), said: out.Name(),
		repetition: &repetition{clock: clock.RealClock{}, say: newSpeaker(out), tunnel: &tunnel{}},
	}
	s.started = s.clock.Now()
	s.cluster = sim.NewCluster(s.clock)
	t.Cleanup(s.cluster.Stop)
	s.tunnel.visible, err = visible.New(visible.Options{Reader: s.kernel, Seen: func(v visible.Sight) {
		s.waited(v)
		s.sights <- v
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.tunnel.visible.Close)
	return s
}

// change gives a Service, each time another one, its endpoint.
func (s *slow) change(name string) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1"}
	svc.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	s.expect(sim.Add, svc, s.clock.Now())
	s.expect(sim.Add, slice, s.clock.Now())
}

// shows waits until the change of a Service has been seen.
func (s *slow) shows(name string) visible.Sight {
	s.t.Helper()
	s.kernel.show(name, "10.0.0.1:8080")
	seen := <-s.sights
	if seen.Service.Name != name {
		s.t.Fatalf("%s was seen, not %s", seen.Service.Name, name)
	}
	return seen
}

func (s *slow) wound(kind string) *damage {
	s.t.Helper()
	d, err := s.repetition.wound(s.t.Context(), &scenarios.Fault{Kind: kind}, "3:fault", &damage{})
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

// arrived says whether the damage could be in the way of nothing any more.
func (s *slow) arrived(d *damage) bool {
	s.look(d)
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.arrived.IsZero()
}

// repairs counts the records of repairs.
func (s *slow) repairs() int {
	s.t.Helper()
	text, err := os.ReadFile(s.said)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(text), `"metric":"`+string(FaultRepaired)+`"`)
}

// Changes come all the time: a fault is repaired when those have arrived that it could be in the way of.
func TestRepairedAmidChanges(t *testing.T) {
	s := newSlow(t)
	held := s.wound(scenarios.FaultWatchStalled)
	dropped := s.wound(scenarios.FaultWatchDropped)
	if s.arrived(dropped) {
		t.Error("no change has come yet that could tell whether the watches are back")
	}
	s.change("a")
	if s.arrived(held) || s.arrived(dropped) {
		t.Error("the first change has not arrived")
	}
	held.end(s.clock.Now())
	s.change("b")
	if s.arrived(held) || s.arrived(dropped) {
		t.Error("the first change has not arrived")
	}
	s.shows("a")
	s.change("c")
	if !s.arrived(held) || !s.arrived(dropped) {
		t.Error("what came before the end has arrived, and what comes later is on its way")
	}
	dropped.end(dropped.began)
	s.shows("b")
	s.shows("c")
	s.settledFaults()
	for _, d := range []*damage{held, dropped} {
		if !d.done.Equal(d.arrived) {
			t.Errorf("%s: repaired %v after it began, although changes had arrived after %v", d.kind, d.done.Sub(d.began), d.arrived.Sub(d.began))
		}
	}
	if n := s.repairs(); n != 2 {
		t.Errorf("%d repairs", n)
	}
}

// What meets changes one by one costs what one of them waited, until it has met as many as it shall.
func TestFaultsThatMeetEachChange(t *testing.T) {
	s := newSlow(t)
	s.cluster.Repeat(1)
	d := s.wound(scenarios.FaultEventsRepeated)
	s.change("a")
	s.change("b")
	first := s.shows("a")
	s.look(d)
	if !d.ended.IsZero() {
		t.Error("it has still to meet a change")
	}
	second := s.shows("b")
	s.cluster.Repeat(0) // as if one had been met
	s.look(d)
	if d.ended.IsZero() {
		t.Error("it has nothing left to meet")
	}
	s.change("c")
	s.shows("c")
	s.settledFaults()
	if longest := max(first.Visible.Sub(first.Due), second.Visible.Sub(second.Due)); d.longest != longest {
		t.Errorf("a change waited %v at most, want %v", d.longest, longest)
	}
	if n := s.repairs(); n != 1 {
		t.Errorf("%d repairs", n)
	}
}

// Dropped watches that no change follows are told of in a note: nobody knows when they were back.
func TestNothingFollowedAFault(t *testing.T) {
	s := newSlow(t)
	d := s.wound(scenarios.FaultWatchDropped)
	d.end(d.began)
	s.settledFaults()
	if n := s.repairs(); n != 0 || len(s.open()) != 0 {
		t.Errorf("%d repairs, %d open", n, len(s.open()))
	}
}

// Only while rules are gone, or may be, is what is visible not there to stay.
func TestEmptied(t *testing.T) {
	began := time.Unix(100, 0)
	r := &repetition{}
	refused := &damage{kind: scenarios.FaultRuleRefused, began: began}
	r.damages.all = []*damage{{kind: scenarios.FaultReference, began: began.Add(-time.Minute)}, refused}
	for _, c := range []struct {
		after   time.Duration
		closed  bool
		emptied bool
	}{
		{-time.Second, false, false},
		{0, false, true},
		{time.Hour, false, true},
		{time.Second, true, true},
		{3 * time.Second, true, false},
	} {
		refused.closed, refused.done = c.closed, began.Add(2*time.Second)
		if got := r.emptied(began.Add(c.after)); got != c.emptied {
			t.Errorf("%v after the fault began, over: %v: emptied %v", c.after, c.closed, got)
		}
	}
}
