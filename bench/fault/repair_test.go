package fault

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

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/subject/visible"
	"synclab/proxier/tracker"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
)

// slowKernel shows the endpoints of a Service, by name, after show is called.
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
func (k *slowKernel) Blind() time.Duration                                   { return time.Second }
func (k *slowKernel) Look() (visible.Snapshot, error)                        { return k, nil }
func (k *slowKernel) Endpoint(_ tracker.ServicePortName, text string) string { return text }
func (k *slowKernel) Installed(corev1.IPFamily) (visible.Installed, error) {
	return visible.Installed{}, nil
}
func (k *slowKernel) Unrecognised(corev1.IPFamily, tracker.ServicePortName) (string, error) {
	return "", nil
}
func (k *slowKernel) Close() {}

// slow has faults over a slowKernel.
type slow struct {
	*Faults
	t      *testing.T
	kernel *slowKernel
	sights chan visible.VisibleChange
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
		t: t, kernel: &slowKernel{endpoints: map[string]string{}}, sights: make(chan visible.VisibleChange, 100), said: out.Name(),
		Faults: newFaults(&pass.Env{Clock: clock.RealClock{}, Messages: pass.NewMessageWriter(out)}),
	}
	s.Host.Harness = &host.Harness{}
	s.Started = s.Clock.Now()
	s.Cluster = api.NewCluster(s.Clock)
	t.Cleanup(s.Cluster.Stop)
	s.Host.Harness.Watcher, err = visible.New(visible.Options{Reader: s.kernel, Seen: func(v visible.VisibleChange) {
		s.Visible(v)
		s.sights <- v
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Host.Harness.Watcher.Close)
	return s
}

// change gives a new Service its endpoint.
func (s *slow) change(name string) {
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	svc.Spec.ClusterIP, svc.Spec.ClusterIPs = "10.96.0.1", []string{"10.96.0.1"}
	svc.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.0.0.1"}}},
		Ports: []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	s.Events.Change(sim.Add, svc, s.Clock.Now())
	s.Events.Change(sim.Add, slice, s.Clock.Now())
}

// shows waits until the change of a Service was seen.
func (s *slow) shows(name string) visible.VisibleChange {
	s.t.Helper()
	s.kernel.show(name, "10.0.0.1:8080")
	seen := <-s.sights
	if seen.Service.Name != name {
		s.t.Fatalf("%s was seen, not %s", seen.Service.Name, name)
	}
	return seen
}

func (s *slow) startFault(kind string) *activeFault {
	s.t.Helper()
	d := newFault(&scenarios.Fault{Kind: kind}, "3:fault")
	s.start(d)
	return d
}

// arrived reports whether the fault cannot delay any change any more.
func (s *slow) arrived(d *activeFault) bool {
	s.look(d)
	return d.is(arrived)
}

// repairs returns the number of recorded repairs.
func (s *slow) repairs() int {
	s.t.Helper()
	text, err := os.ReadFile(s.said)
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.Count(string(text), `"metric":"`+string(raw.FaultRepaired)+`"`)
}

// Under continuous churn, a fault is repaired when all changes that it could delay have arrived.
func TestRepairedAmidChanges(t *testing.T) {
	s := newSlow(t)
	held := s.startFault(scenarios.FaultWatchStalled)
	dropped := s.startFault(scenarios.FaultWatchDropped)
	dropped.move(ended, dropped.began)
	if s.arrived(dropped) {
		t.Error("no change has come yet that shows whether the watches are back")
	}
	s.change("a")
	if s.arrived(held) || s.arrived(dropped) {
		t.Error("the first change has not arrived")
	}
	held.move(ended, s.Clock.Now())
	s.change("b")
	if s.arrived(held) || s.arrived(dropped) {
		t.Error("the first change has not arrived")
	}
	s.shows("a")
	s.change("c")
	if !s.arrived(held) || !s.arrived(dropped) {
		t.Error("changes before the end have arrived; only later ones are pending")
	}
	s.shows("b")
	s.shows("c")
	s.Settled()
	for _, d := range []*activeFault{held, dropped} {
		if !d.at[closed].Equal(d.at[arrived]) {
			t.Errorf("%s: repaired %v after it began, although changes had arrived after %v", d.Kind, d.at[closed].Sub(d.began), d.at[arrived].Sub(d.began))
		}
	}
	if n := s.repairs(); n != 2 {
		t.Errorf("%d repairs", n)
	}
}

// A fault that delays changes one by one costs the longest delay, until it has affected its number of changes.
func TestFaultsThatMeetEachChange(t *testing.T) {
	s := newSlow(t)
	s.Cluster.Repeat(1)
	d := s.startFault(scenarios.FaultEventsDuplicated)
	s.change("a")
	s.change("b")
	first := s.shows("a")
	s.look(d)
	if !d.at[ended].IsZero() {
		t.Error("it must still affect a change")
	}
	second := s.shows("b")
	s.Cluster.Repeat(0) // as if it had affected one
	s.look(d)
	if d.at[ended].IsZero() {
		t.Error("it must affect no more changes")
	}
	s.change("c")
	s.shows("c")
	s.Settled()
	if longest := max(first.Visible.Sub(first.Due), second.Visible.Sub(second.Due)); d.longest != longest {
		t.Errorf("the longest delay is %v, want %v", d.longest, longest)
	}
	if n := s.repairs(); n != 1 {
		t.Errorf("%d repairs", n)
	}
}

// Dropped watches that no change follows have a note instead of a repair: their repair time is unknown.
func TestNothingFollowedAFault(t *testing.T) {
	s := newSlow(t)
	d := s.startFault(scenarios.FaultWatchDropped)
	d.move(ended, d.began)
	s.Settled()
	if n := s.repairs(); n != 0 || len(s.open()) != 0 {
		t.Errorf("%d repairs, %d open", n, len(s.open()))
	}
}

// A visible change may not last only while rules are missing, or may be.
func TestEmptied(t *testing.T) {
	began := time.Unix(100, 0)
	r := newFaults(&pass.Env{})
	refused := &activeFault{kind: Of(scenarios.FaultRuleRefused), began: began}
	r.all = []*activeFault{{kind: Of(scenarios.FaultReference), began: began.Add(-time.Minute)}, refused}
	for _, c := range []struct {
		after   time.Duration
		closed  time.Duration // after the fault began; 0: never
		emptied bool
	}{
		{-time.Second, 0, false},
		{0, 0, true},
		{time.Hour, 0, true},
		{time.Second, 2 * time.Second, true},
		{3 * time.Second, 2 * time.Second, false},
	} {
		if c.closed > 0 {
			refused.at[closed] = began.Add(c.closed)
		}
		if got := r.RulesMissing(began.Add(c.after)); got != c.emptied {
			t.Errorf("%v after the fault began, closed after %v: emptied %v", c.after, c.closed, got)
		}
	}
}
