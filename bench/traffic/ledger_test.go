package traffic

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/plan"
	"synclab/proxier/tracker"
	"synclab/sim"
)

// story is a Service and its changes, at seconds from the start.
type story struct {
	t      *testing.T
	ledger *FlowChecker
	found  []string
	last   *discoveryv1.EndpointSlice
	turns  bool // report Reachable and Unreachable too
}

var (
	epoch = time.Unix(1_000_000, 0)
	web   = tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: "ns", Name: "web"}, PortKey: tracker.PortKey{Protocol: corev1.ProtocolUDP},
	}
)

func second(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

func newStory(t *testing.T, endpoints ...string) *story {
	s := &story{t: t}
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.1", ClusterIPs: []string{"10.96.0.1"}, IPFamilies: []corev1.IPFamily{v4},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 80}},
		},
	}
	s.ledger = NewLedger(LedgerOptions{
		Families: []corev1.IPFamily{v4}, Node: plan.Node{Name: "node-0"}, Services: []*corev1.Service{svc},
		Slices: []*discoveryv1.EndpointSlice{s.slice(endpoints)}, Now: epoch, Grace: time.Second,
		Targets: []Target{{Service: web, Family: v4, Protocol: corev1.ProtocolUDP, Addr: netip.MustParseAddrPort("10.96.0.1:80")}},
		At:      func(ns int64) time.Time { return epoch.Add(time.Duration(ns)) },
		Tell:    s.tell,
	})
	return s
}

func (s *story) tell(o Observed) {
	kind := map[Finding]string{NewFlow: "flow", LongLivedPacket: "packet", RemovedEndpointServing: "removed", NewEndpointDelay: "added", ControlFailure: "control failed", Reachable: "reachable", Unreachable: "unreachable"}[o.Finding]
	text := kind
	if o.LongLived && (o.Finding == RemovedEndpointServing || o.Finding == ControlFailure) {
		text += " held"
	}
	if o.Outcome != Answered {
		text += " " + o.Outcome
	}
	if o.By.IsValid() {
		text += " " + o.By.Addr().String()
	}
	if o.Finding == Reachable || o.Finding == Unreachable {
		if !s.turns {
			return // most tests are not about them
		}
		if text += fmt.Sprintf(" %v", o.Took.Round(time.Millisecond)); o.AfterVisible != nil {
			text += fmt.Sprintf(", %v", o.AfterVisible.Round(time.Millisecond))
		}
	}
	if o.Finding == RemovedEndpointServing || o.Finding == NewEndpointDelay {
		text += fmt.Sprintf(" %v after %v", o.Took.Round(time.Millisecond), o.At.Sub(epoch))
	}
	s.found = append(s.found, text)
}

// slice returns endpoints with the given last bytes. A "-" means not ready, a "~" means terminating and serving.
func (s *story) slice(endpoints []string) *discoveryv1.EndpointSlice {
	name, port, protocol := "", int32(8080), corev1.ProtocolUDP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for _, text := range endpoints {
		address := strings.TrimLeft(text, "-~")
		ready, terminating := address == text, text[0] == '~'
		conditions := discoveryv1.EndpointConditions{Ready: &ready}
		if terminating {
			conditions.Serving, conditions.Terminating = &terminating, &terminating
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{"10.128.0." + address}, Conditions: conditions})
	}
	s.last = slice
	return slice
}

// becomes changes the endpoints at a time.
func (s *story) becomes(at float64, endpoints ...string) *discoveryv1.EndpointSlice {
	slice := s.slice(endpoints)
	s.ledger.Changed(sim.Update, slice, second(at), second(at))
	return slice
}

func (s *story) visible(at float64, slice *discoveryv1.EndpointSlice) {
	s.ledger.Visible(slice, v4, second(at), second(at), false)
}

func result(sent, end float64, by string) Result {
	r := Result{Due: int64(sent * 1e9), Sent: int64(sent * 1e9), End: int64(end * 1e9)}
	if addr, err := netip.ParseAddr("10.128.0." + by); err == nil {
		r.By = netip.AddrPortFrom(addr, 8080)
	} else {
		r.Outcome = by
	}
	return r
}

// flow adds a new flow, answered by an endpoint or ended with an outcome.
func (s *story) flow(sent, end float64, by string) { s.ledger.Take(result(sent, end, by)) }

// packet adds a packet of a long-lived flow.
func (s *story) packet(sent, end float64, by string) {
	r := result(sent, end, by)
	r.LongLived, r.Life, r.Opened = 1, 1, true
	s.ledger.Take(r)
}

// finds finishes, and compares the findings.
func (s *story) finds(want ...string) {
	s.t.Helper()
	s.ledger.Finish()
	if diff := cmp.Diff(want, s.found); diff != "" {
		s.t.Errorf("(-want +got):\n%s", diff)
	}
}

// What packets see of changes: the first flow to a new endpoint and the last one to an old endpoint, from the change's due
// time, and from the moment when the tables showed it.
func TestPacketsSeeAChange(t *testing.T) {
	for _, test := range []struct {
		name string
		run  func(s *story)
		want []string
	}{
		{"old, then new", func(s *story) {
			s.flow(0.9, 1.1, "2") // before the change
			change := s.becomes(1, "1", "3")
			s.flow(1.1, 1.2, "2")
			s.flow(1.2, 1.3, "1") // says nothing
			s.flow(1.4, 1.5, "2")
			s.visible(1.55, change)
			s.flow(1.5, 1.6, "3")
			s.flow(1.7, 1.8, "3")
		}, []string{"reachable 600ms, 50ms", "unreachable 400ms, -150ms"}},
		{"never visible", func(s *story) {
			s.becomes(1, "1", "3")
			s.flow(1.5, 1.6, "3")
		}, []string{"reachable 600ms"}},
		{"the next change before a flow", func(s *story) {
			change := s.becomes(1, "1", "3")
			s.becomes(2, "1", "4")
			s.visible(2.5, change)
			s.flow(2.6, 2.7, "3") // old again
			s.flow(2.8, 2.9, "4")
		}, []string{"reachable 900ms", "unreachable 600ms"}},
		{"added only", func(s *story) {
			s.visible(1.5, s.becomes(1, "1", "2", "3"))
			s.flow(1.6, 1.7, "1")
			s.flow(1.7, 1.8, "3")
		}, []string{"reachable 800ms, 300ms"}},
		{"back in time for the old state", func(s *story) {
			s.becomes(1, "1")
			s.becomes(2, "1", "2")
			s.flow(1.5, 1.6, "2")
			s.flow(2.5, 2.6, "2")
		}, []string{"unreachable 500ms", "reachable 600ms"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStory(t, "1", "2")
			s.turns = true
			test.run(s)
			s.ledger.Finish()
			var got []string
			for _, text := range s.found {
				if strings.Contains(text, "reachable") {
					got = append(got, text)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// A subject that ends after it wrote the rules has not cleaned conntrack: until its successor has, a removed endpoint may
// answer a long-lived flow. Without such a fault it is misrouted.
func TestNotCleanedBeforeItsEnd(t *testing.T) {
	for _, ended := range []bool{true, false} {
		s := newStory(t, "1", "2")
		s.ledger.opts.Ended = func(from, _ time.Time) time.Time {
			if ended && from.Before(second(8)) { // the fault's repair
				return second(1.1)
			}
			return time.Time{}
		}
		s.packet(0.5, 0.6, "1")
		s.visible(1.2, s.becomes(1, "2"))
		s.packet(4, 4.1, "1")
		want := "packet 10.128.0.1"
		if !ended {
			want = "packet misrouted 10.128.0.1"
		}
		s.packet(9.5, 9.6, "1") // after the repair
		s.finds("packet 10.128.0.1", want, "packet misrouted 10.128.0.1")
	}
}

// Between the time when a change is made and the time when it is visible, a flow may meet the old or the new state. A
// longer flow may meet the next state.
func TestOldAndNew(t *testing.T) {
	s := newStory(t, "1", "2")
	s.flow(0.1, 0.2, "1")
	s.flow(0.1, 0.2, "3") // not added yet
	change := s.becomes(1, "2", "3")
	s.flow(0.9, 1.1, "3") // sent before the change, over after it
	s.flow(1.2, 1.3, "1")
	s.flow(1.2, 1.3, "3")
	s.flow(1.9, 2.2, "1") // the change became visible meanwhile
	s.visible(2, change)
	s.flow(2.1, 2.3, "1") // too late
	s.flow(2.1, 2.3, "2")
	s.finds("flow 10.128.0.1", "flow misrouted 10.128.0.3", "added 10.128.0.3 100ms after 1s", "flow 10.128.0.3", "flow 10.128.0.1",
		"flow 10.128.0.3", "flow 10.128.0.1", "flow misrouted 10.128.0.1", "flow 10.128.0.2", "removed 10.128.0.1 1.3s after 1s")
}

// A late change counts from its visible time, even if that is reported after the flow.
func TestSightsComeLate(t *testing.T) {
	s := newStory(t, "1")
	change := s.becomes(1, "2")
	s.flow(3, 3.1, "1")
	s.visible(2, change)
	s.finds("flow misrouted 10.128.0.1", "removed 10.128.0.1 2.1s after 1s", "added not yet 10.128.0.2 2.1s after 1s")
}

// A visible change ends all earlier states, and no others.
func TestEarlierChangesAreVisibleWithLater(t *testing.T) {
	s := newStory(t, "1")
	s.becomes(1, "2")
	second := s.becomes(1, "3")
	s.becomes(2, "4")
	s.visible(3, second)
	s.flow(4, 4.1, "2")
	s.flow(4, 4.1, "3")
	s.flow(4, 4.1, "4")
	s.finds("flow misrouted 10.128.0.2", "flow 10.128.0.3", "added 10.128.0.4 2.1s after 2s", "flow 10.128.0.4",
		"removed 10.128.0.2 3.1s after 1s", "removed 10.128.0.3 2.1s after 2s", "added not yet 10.128.0.3 1s after 1s")
}

// Flows with an unknown outcome are only counted.
func TestUnwatched(t *testing.T) {
	s := newStory(t, "1")
	s.flow(1, 4, Unwatched)
	s.packet(1, 4, Unwatched)
	s.flow(1, 4, TimedOut)
	if unwatched := s.ledger.Finish().Unobserved; unwatched != 2 {
		t.Errorf("%d flows with an unknown outcome, want 2", unwatched)
	}
	s.finds("flow timeout")
}

// A flow that times out together with a control flow is the machine's. It fails if its control flow was answered, or
// failed at another time.
func TestControlFlows(t *testing.T) {
	s := newStory(t, "1")
	control := func(sent, end float64, by string) {
		r := result(sent, end, by)
		r.Control = true
		s.ledger.Take(r)
	}
	control(1, 1.5, TimedOut)
	s.flow(1, 1.5, TimedOut) // with its control flow
	control(3, 3.1, "1")
	s.flow(3, 3.5, TimedOut)
	control(5, 5.5, TimedOut)
	s.flow(6, 6.5, TimedOut) // later
	control(8, 8.5, TimedOut)
	s.packet(8, 10, TimedOut)
	control(12, 12.1, Refused)
	s.flow(12, 12.5, TimedOut)
	counts := s.ledger.Finish()
	s.finds("control failed timeout", "flow timeout", "flow timeout", "control failed held timeout", "flow timeout")
	if counts.Controls != 5 || counts.FailedControls != 3 {
		t.Errorf("%+v", counts)
	}
}

// Control flows are limited, for each family and protocol: a busy machine delays packets for longer.
func TestControlRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stream{controlled: map[controlKind]int64{}, clock: monotonic{base: time.Now()}}
		tcp, udp := &Target{Family: corev1.IPv4Protocol, Protocol: corev1.ProtocolTCP}, &Target{Family: corev1.IPv4Protocol, Protocol: corev1.ProtocolUDP}
		for range 3 {
			if !s.controls(tcp) || s.controls(tcp) || !s.controls(udp) || s.controls(udp) {
				t.Error("not one of each protocol")
			}
			time.Sleep(time.Second / controlRate)
		}
	})
}

// Flows that should have timed out long ago have an unknown outcome: the responder may have had no CPU time either.
func TestLateWatch(t *testing.T) {
	var ended []string
	s := &stream{open: map[int]*flow{}, tell: func(r Result) { ended = append(ended, r.Outcome) }}
	give := func(limits ...time.Duration) {
		for _, limit := range limits {
			s.waiting[0] = append(s.waiting[0], &flow{fd: -1, limit: int64(limit)})
		}
	}
	give(1*time.Second, 1900*time.Millisecond, 3*time.Second)
	s.expire(int64(2 * time.Second))
	if want := []string{Unwatched, TimedOut}; !slices.Equal(ended, want) || len(s.waiting[0]) != 1 {
		t.Errorf("%q, and %d waiting, want %q and 1", ended, len(s.waiting[0]), want)
	}
}

// A terminating endpoint keeps its long-lived UDP flows while it serves, and gets no new flows.
func TestTerminatingKeepsFlows(t *testing.T) {
	s := newStory(t, "~1")
	s.packet(0.1, 0.2, "1")
	change := s.becomes(1, "~1", "2")
	s.visible(1.1, change)
	s.packet(4, 4.1, "1")
	s.flow(4, 4.1, "1")
	s.becomes(5, "2") // no rule changes
	s.packet(5.5, 5.6, "1")
	next := s.becomes(6, "2", "3")
	s.visible(6.1, next)
	s.packet(8, 8.1, "1")
	s.packet(9, 9.1, "2")
	s.finds("packet 10.128.0.1", "packet 10.128.0.1", "flow misrouted 10.128.0.1", "packet 10.128.0.1", "packet misrouted 10.128.0.1",
		"removed held 10.128.0.1 4.1s after 5s", "packet 10.128.0.2", "removed 10.128.0.1 3.1s after 1s", "added not yet 10.128.0.2 8.1s after 1s",
		"added not yet 10.128.0.3 3.1s after 6s")
}

// A returning state counts as visible only some time after everything has converged: until then the kernel may have the
// earlier, equal state, however long that takes.
func TestStateReturns(t *testing.T) {
	s := newStory(t, "1")
	s.becomes(1, "1", "2")
	back := s.becomes(1.1, "1")
	s.visible(1.1, back)
	s.flow(1.5, 1.6, "2")
	s.flow(21.2, 21.3, "2") // a slow sync
	s.ledger.Settled(second(30))
	s.flow(39.8, 39.9, "2")
	s.flow(40.2, 40.3, "2")
	s.finds("flow 10.128.0.2", "flow 10.128.0.2", "flow 10.128.0.2", "flow misrouted 10.128.0.2",
		"removed 10.128.0.2 39.2s after 1.1s", "added not yet 10.128.0.2 100ms after 1s")
}

// A change that is undone before anything was synced is no sight of its state, nor of what came before it.
func TestUndoneIsNoSight(t *testing.T) {
	s := newStory(t, "1")
	for i, other := range []string{"2", "3"} {
		at := 1 + float64(i)/5
		there, back := s.becomes(at, "1", other), s.becomes(at+0.1, "1")
		for _, slice := range []*discoveryv1.EndpointSlice{there, back} {
			s.ledger.Visible(slice, v4, second(at+0.1), second(at+0.1), true)
		}
	}
	s.flow(20, 20.1, "2") // a sync that began at 1.05
	s.ledger.Settled(second(21))
	s.flow(32, 32.1, "2")
	s.ledger.Finish()
	s.found = slices.DeleteFunc(s.found, func(text string) bool { return !strings.HasPrefix(text, "flow ") })
	s.finds("flow 10.128.0.2", "flow misrouted 10.128.0.2")
}

// A later change of another Service ends the doubt about a returning state, an earlier one does not.
func TestLaterChangesEndDoubts(t *testing.T) {
	s := newStory(t, "1")
	other := func(at float64) *discoveryv1.EndpointSlice {
		slice := s.last.DeepCopy()
		slice.Name, slice.Labels[discoveryv1.LabelServiceName] = "other-1", "other"
		for i := range slice.Endpoints {
			slice.Endpoints[i].Addresses = []string{fmt.Sprintf("10.128.1.%d", int(at*10))}
		}
		s.ledger.Changed(sim.Update, slice, second(at), second(at))
		return slice
	}
	s.ledger.Changed(sim.Add, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "other"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.2", ClusterIPs: []string{"10.96.0.2"}, IPFamilies: []corev1.IPFamily{v4},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolUDP, Port: 80}},
		},
	}, second(0.5), second(0.5))
	before := other(0.9)
	s.becomes(1, "1", "2")
	back := s.becomes(1.1, "1")
	after := other(1.2)
	s.visible(1.3, back)
	s.visible(1.4, before)
	s.flow(12, 12.1, "2")
	s.visible(20, after)
	s.flow(29, 29.1, "2")
	s.flow(31, 31.1, "2")
	s.ledger.Finish()
	s.found = slices.DeleteFunc(s.found, func(text string) bool { return !strings.HasPrefix(text, "flow ") }) // the rest is of two ports, in any order
	s.finds("flow 10.128.0.2", "flow 10.128.0.2", "flow misrouted 10.128.0.2")
}

// A Service that grows and shrinks passes the same states twice. In the kernel, the way up looks like the way down. A
// state that was never there before is certain, and ends the uncertainty.
func TestStatesReturnOneByOne(t *testing.T) {
	s := newStory(t, "1", "2")
	s.becomes(1, "1", "2", "3")
	s.becomes(1.1, "1", "2", "3", "4")
	for i := range 10 {
		s.becomes(1.2, "1", "2", "3", "4", fmt.Sprint(10+i))
	}
	s.becomes(1.3, "1", "2", "3", "4")
	down := s.becomes(1.4, "1", "2", "3")
	s.visible(1.5, down) // or the earlier, equal state
	s.flow(2, 2.1, "4")
	last := s.becomes(3, "1")
	s.visible(4, last)
	s.flow(4.1, 4.2, "4")
	s.ledger.Finish()
	outcomes := 0
	for _, text := range s.found {
		if text == "flow misrouted 10.128.0.4" {
			outcomes++
		}
	}
	if outcomes != 1 {
		t.Errorf("%d flows misrouted, want the last one: %v", outcomes, s.found)
	}
}

// An unanswered flow fails if every state had an endpoint. It also fails if no state had one and it was not refused.
func TestUnanswered(t *testing.T) {
	s := newStory(t, "1")
	s.flow(0.1, 0.6, TimedOut)
	s.flow(0.1, 0.2, Refused)
	change := s.becomes(1, "-1")
	s.flow(1.1, 1.2, Refused) // excused: the endpoint may be gone already
	s.flow(1.1, 1.6, TimedOut)
	s.visible(2, change)
	s.flow(2.1, 2.2, Refused) // correct
	s.flow(2.1, 2.6, TimedOut)
	s.flow(2.1, 2.6, "1")
	back := s.becomes(4, "1")
	s.visible(4.5, back)
	s.flow(7, 7.1, Refused)
	s.finds("flow timeout", "flow refused", "flow timeout", "flow misrouted 10.128.0.1",
		"flow refused", "removed 10.128.0.1 1.6s after 1s", "added not yet 10.128.0.1 3.1s after 4s")
}

// A long-lived UDP flow leaves a removed endpoint. A flow that does not leave it is reported.
func TestHeldFlowLeaves(t *testing.T) {
	s := newStory(t, "1", "2")
	s.packet(0.5, 0.5, "1")
	change := s.becomes(1, "2")
	s.packet(1.25, 1.25, "1")
	s.visible(1.3, change)
	s.packet(1.5, 1.5, "1") // conntrack is cleaned after the rules are written
	s.packet(2.1, 2.1, "2")
	s.packet(2.5, 2.5, "1") // misrouted
	s.finds("packet 10.128.0.1", "packet 10.128.0.1", "packet 10.128.0.1", "removed held 10.128.0.1 1.1s after 1s", "packet 10.128.0.2",
		"packet misrouted 10.128.0.1")
}

// One packet of a long-lived UDP flow may be lost when the flow leaves an endpoint, whether the loss or the next answer
// is reported first. A second packet may not, and none may if the flow leaves no endpoint.
func TestHeldFlowIsCutOnce(t *testing.T) {
	s := newStory(t, "1", "2", "3")
	s.packet(0.5, 0.5, "1")
	s.packet(0.75, 1.25, TimedOut)
	s.visible(2.1, s.becomes(2, "2", "3"))
	s.packet(2.5, 2.5, "2")
	s.packet(2.25, 2.75, TimedOut)
	s.packet(2.4, 2.9, TimedOut)
	s.visible(3.1, s.becomes(3, "3"))
	s.packet(3.25, 3.75, TimedOut)
	s.packet(4, 4, "3")
	s.packet(4.25, 4.75, TimedOut)
	s.finds("packet 10.128.0.1", "packet timeout", "removed held 10.128.0.1 500ms after 2s", "packet 10.128.0.2", "packet timeout",
		"removed held 10.128.0.2 1s after 3s", "packet 10.128.0.3", "packet timeout")
}

// Conntrack may forget a new UDP flow before it is answered, when its endpoint leaves. Each removal excuses one flow.
// None is excused while endpoints are only added, or after the removal is visible.
func TestNewFlowIsCutOnce(t *testing.T) {
	s := newStory(t, "1", "2")
	s.visible(1.5, s.becomes(1, "1", "2", "3"))
	s.flow(1.25, 1.75, TimedOut)
	change := s.becomes(3, "1", "3")
	s.flow(2.9, 3.4, TimedOut) // excused
	s.flow(3.1, 3.6, TimedOut)
	s.visible(3.7, change)
	s.flow(3.8, 4.3, TimedOut)
	terminating := s.becomes(5, "~1", "3") // it keeps its flows
	s.flow(5.1, 5.6, TimedOut)
	s.visible(5.7, terminating)
	gone := s.becomes(6, "3")
	s.flow(5.6, 6.1, TimedOut) // excused: terminating, then gone
	s.flow(6.1, 6.6, TimedOut) // no new flow went there any more
	s.visible(6.7, gone)
	s.finds("flow timeout", "flow timeout", "flow timeout", "flow timeout", "flow timeout", "added not yet 10.128.0.3 5.6s after 1s")
}

// If no endpoint is left, a refusal means that the flow has left the removed endpoint.
func TestHeldFlowLeavesForNobody(t *testing.T) {
	s := newStory(t, "1")
	s.packet(0.5, 0.5, "1")
	s.visible(1.3, s.becomes(1))
	s.packet(1.5, 1.5, Refused)
	s.packet(3, 3, "1")
	s.finds("packet 10.128.0.1", "removed held 10.128.0.1 500ms after 1s", "packet misrouted 10.128.0.1")
}

// A changed Service becomes a target, and its flows are checked like others.
func TestChangedServicesAreFollowed(t *testing.T) {
	s := newStory(t, "1")
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "new"},
		Spec: corev1.ServiceSpec{
			ClusterIP: "10.96.0.2", ClusterIPs: []string{"10.96.0.2"}, IPFamilies: []corev1.IPFamily{v4},
			Ports: []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 443}},
		},
	}
	added, focus := s.ledger.Changed(sim.Add, svc, second(1), second(1))
	if len(added) != 1 || added[0].Addr.String() != "10.96.0.2:443" || added[0].Protocol != corev1.ProtocolTCP || len(focus) != 1 || focus[0] != 1 {
		t.Fatalf("added %+v, focus %v", added, focus)
	}
	if added, focus = s.ledger.Changed(sim.Update, s.slice([]string{"1", "2"}), second(1), second(1)); len(added) != 0 || len(focus) != 1 || focus[0] != 0 {
		t.Fatalf("added %+v, focus %v", added, focus)
	}
	if added, focus = s.ledger.Changed(sim.Update, s.last, second(1), second(1)); len(added)+len(focus) > 0 {
		t.Errorf("nothing happened: added %+v, focus %v", added, focus)
	}
	r := result(2, 2.1, "9")
	r.Target = 1
	s.ledger.Take(r)
	s.finds("flow misrouted 10.128.0.9", "added not yet 10.128.0.2 1.1s after 1s")
}

// Shares can be checked only for flows that met a single state of the Service.
func TestAmong(t *testing.T) {
	s := newStory(t, "1", "2")
	var among []int
	s.ledger.opts.Tell = func(o Observed) {
		if o.Finding == NewFlow {
			among = append(among, len(o.Among))
		}
	}
	s.flow(1, 1.1, "1")
	slice := s.becomes(2, "1", "2", "3")
	s.flow(2.1, 2.2, "1")
	s.visible(3, slice)
	s.flow(4, 4.1, "3")
	s.visible(5.5, s.becomes(5, "1", "2", "~3"))
	s.becomes(6, "1", "2") // only the serving endpoints changed, and no rule: the kernel shows nothing
	s.flow(7, 7.1, "2")
	s.ledger.Finish()
	if diff := cmp.Diff([]int{2, 0, 3, 2}, among); diff != "" {
		t.Errorf("endpoints that may have answered (-want +got):\n%s", diff)
	}
}

// New endpoints that never answer are reported with a time: until they were removed, or until the flows ended. An
// answer still counts if it is checked after its endpoint was removed.
func TestAddedNotYet(t *testing.T) {
	s := newStory(t, "1")
	s.visible(1.5, s.becomes(1, "1", "2", "3"))
	s.flow(2, 2.1, "2")
	s.visible(3.5, s.becomes(3, "1", "4")) // before the flow is checked
	s.visible(4.5, s.becomes(4, "1", "3", "4"))
	s.flow(5, 5.5, "3")
	s.flow(8, 9, "1")
	s.finds("added 10.128.0.2 1.1s after 1s", "flow 10.128.0.2", "added 10.128.0.3 1.5s after 4s", "flow 10.128.0.3", "flow 10.128.0.1",
		"added not yet 10.128.0.3 2s after 1s", "added not yet 10.128.0.4 6s after 3s")
}

// An EndpointSlice that moves to another Service takes its endpoints with it.
func TestSliceChangesHands(t *testing.T) {
	s := newStory(t, "1")
	slice := s.slice([]string{"1"})
	slice.Labels[discoveryv1.LabelServiceName] = "other"
	s.ledger.Changed(sim.Update, slice, second(1), second(1))
	s.visible(1.5, s.becomes(1.2, "1")) // and back
	s.ledger.Changed(sim.Update, slice, second(20), second(20))
	after := s.slice([]string{"2"})
	after.Name = "web-2"
	s.ledger.Changed(sim.Add, after, second(20), second(20))
	s.visible(21, after)
	s.flow(22, 22.1, "1")
	s.finds("flow misrouted 10.128.0.1", "removed 10.128.0.1 2.1s after 20s", "added not yet 10.128.0.1 18.8s after 1.2s", "added not yet 10.128.0.2 2.1s after 20s")
}
