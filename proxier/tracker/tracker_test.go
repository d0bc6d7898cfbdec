package tracker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

var (
	epoch   = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	svcName = types.NamespacedName{Namespace: "ns", Name: "svc"}
	httpTCP = PortKey{Name: "http", Protocol: corev1.ProtocolTCP}
)

func at(seconds int) time.Time { return epoch.Add(time.Duration(seconds) * time.Second) }

func newTracker() *Tracker {
	return New(Options{Family: corev1.IPv4Protocol, NodeName: "here", Since: epoch})
}

func testService(change func(*corev1.Service)) *corev1.Service {
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", CreationTimestamp: metav1.NewTime(epoch)},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.96.0.1",
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}},
		},
	}
	if change != nil {
		change(svc)
	}
	return svc
}

// testSlice has an endpoint for each address, and the trigger time if it is not zero.
func testSlice(name string, trigger time.Time, addresses ...string) *discoveryv1.EndpointSlice {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: "svc"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	if !trigger.IsZero() {
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: trigger.Format(time.RFC3339Nano)}
	}
	for _, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return slice
}

// texts returns the texts of the http port's endpoints.
func texts(svc *Service) []string {
	if svc == nil {
		return nil
	}
	var all []string
	for _, ep := range svc.EndpointsOf(httpTCP) {
		all = append(all, ep.Text)
	}
	return all
}

// Many events on one Service are one change, from the installed to the desired state.
func TestCoalescing(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(1))
	tr.SetSlice(testSlice("a", at(1), "10.0.0.1"), at(2))
	tr.SetSlice(testSlice("a", at(2), "10.0.0.1", "10.0.0.2"), at(3))
	tr.SetSlice(testSlice("b", at(3), "10.0.0.3"), at(4))
	tr.DeleteSlice(testSlice("b", at(3), "10.0.0.3"), at(5))
	if n := tr.Pending(); n != 1 {
		t.Errorf("%d Services pending, want 1", n)
	}
	if services, slices := tr.PendingEvents(); services != 1 || slices != 4 {
		t.Errorf("%d and %d events pending, want 1 and 4", services, slices)
	}
	c := tr.Take()
	if len(c.Services) != 1 || c.Services[0].Old != nil || c.ServiceEvents != 1 || c.SliceEvents != 4 || !c.Queued.Equal(at(1)) {
		t.Fatalf("%+v", c)
	}
	if diff := cmp.Diff([]string{"10.0.0.1:8080", "10.0.0.2:8080"}, texts(c.Services[0].New)); diff != "" {
		t.Error(diff)
	}
	if len(c.TriggerTimes) != 0 { // as in kube-proxy, deleting a slice of the Service drops them
		t.Errorf("trigger times %v, want none", c.TriggerTimes)
	}
	if tr.Commit(c); tr.Pending() != 0 {
		t.Error("pending after Commit")
	}
	if c := tr.Take(); len(c.Services) != 0 || !c.Queued.IsZero() {
		t.Errorf("nothing happened, yet: %+v", c)
	}
}

// An event without effect, or undone before the next Take, is no change.
func TestNoOps(t *testing.T) {
	start := func(t *testing.T) *Tracker {
		t.Helper()
		tr := newTracker()
		tr.SetService(testService(nil), epoch)
		tr.SetSlice(testSlice("a", at(0), "10.0.0.1"), epoch)
		tr.Commit(tr.Take())
		return tr
	}
	for _, c := range []struct {
		name    string
		do      func(*Tracker)
		pending bool // the Service is dirty, but Take returns no change
	}{
		{"resync of a Service", func(tr *Tracker) { tr.SetService(testService(nil), at(1)) }, false},
		{"resync of a slice", func(tr *Tracker) { tr.SetSlice(testSlice("a", at(0), "10.0.0.1"), at(1)) }, false},
		{"another label and annotation", func(tr *Tracker) {
			tr.SetService(testService(func(s *corev1.Service) { s.Labels = map[string]string{"a": "b"} }), at(1))
			tr.SetSlice(testSlice("a", at(9), "10.0.0.1"), at(1))
		}, false},
		{"a slice that was never seen goes", func(tr *Tracker) { tr.DeleteSlice(testSlice("z", at(1)), at(1)) }, false},
		{"a Service that was never seen goes", func(tr *Tracker) {
			tr.DeleteService(testService(func(s *corev1.Service) { s.Name = "other" }), at(1))
		}, false},
		{"there and back", func(tr *Tracker) {
			tr.SetSlice(testSlice("a", at(1), "10.0.0.2"), at(1))
			tr.SetSlice(testSlice("a", at(2), "10.0.0.1"), at(2))
		}, true},
		{"an endpoint moves to another slice", func(tr *Tracker) {
			tr.SetSlice(testSlice("b", at(1), "10.0.0.1"), at(1))
			tr.DeleteSlice(testSlice("a", at(0), "10.0.0.1"), at(2))
		}, true},
		{"deleted and made again", func(tr *Tracker) {
			tr.DeleteService(testService(nil), at(1))
			tr.SetService(testService(nil), at(2))
		}, true},
		{"endpoints without a Service", func(tr *Tracker) {
			slice := testSlice("c", at(1), "10.0.0.9")
			slice.Labels[discoveryv1.LabelServiceName] = "no-service"
			tr.SetSlice(slice, at(1))
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tr := start(t)
			c.do(tr)
			if pending := tr.Pending() > 0; pending != c.pending {
				t.Errorf("pending: %v, want %v", pending, c.pending)
			}
			if changes := tr.Take(); len(changes.Services) != 0 {
				t.Errorf("changes: %+v", changes.Services)
			}
		})
	}
}

// A failed sync loses nothing: not the change, not its trigger time, not newer changes. The next Take returns the
// Service again, even if its state equals the installed one.
func TestGiveBack(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(0))
	tr.SetSlice(testSlice("a", at(0), "10.0.0.1"), at(0))
	tr.Commit(tr.Take())

	tr.SetSlice(testSlice("a", at(1), "10.0.0.2"), at(2))
	failed := tr.Take()
	tr.SetSlice(testSlice("a", at(3), "10.0.0.3"), at(4)) // while the sync runs
	tr.Requeue(failed)
	again := tr.Take()
	if len(again.Services) != 1 || !again.Queued.Equal(at(2)) || again.SliceEvents != 2 {
		t.Fatalf("%+v", again)
	}
	if diff := cmp.Diff([]time.Time{at(1), at(3)}, again.TriggerTimes); diff != "" {
		t.Errorf("trigger times: %s", diff)
	}
	if old, now := texts(again.Services[0].Old), texts(again.Services[0].New); old[0] != "10.0.0.1:8080" || now[0] != "10.0.0.3:8080" {
		t.Errorf("from %v to %v", old, now)
	}

	tr.Requeue(again)
	tr.SetSlice(testSlice("a", at(5), "10.0.0.1"), at(5)) // back to the installed state
	back := tr.Take()
	if len(back.Services) != 1 || len(back.TriggerTimes) != 3 {
		t.Fatalf("the plan of a failed sync would remain: %+v", back)
	}
	tr.Commit(back)
	if c := tr.Take(); len(c.Services) != 0 {
		t.Errorf("after a success: %+v", c.Services)
	}
}

// A change that arrives during a sync is not lost when that sync succeeds.
func TestCommitKeepsWhatCameMeanwhile(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(0))
	taken := tr.Take()
	tr.SetSlice(testSlice("a", at(1), "10.0.0.1"), at(1))
	tr.Commit(taken)
	if c := tr.Take(); len(c.Services) != 1 || c.Services[0].Old == nil || len(texts(c.Services[0].New)) != 1 {
		t.Errorf("%+v", c)
	}
}

func TestDeletions(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(0))
	tr.SetSlice(testSlice("a", at(0), "10.0.0.1"), at(0))
	tr.Commit(tr.Take())

	tr.DeleteSlice(testSlice("a", at(1), "10.0.0.1"), at(2))
	c := tr.Take()
	if len(c.Services) != 1 || len(texts(c.Services[0].New)) != 0 || len(c.TriggerTimes) != 0 {
		t.Errorf("slice gone: %+v; its annotation belongs to an earlier change", c)
	}
	tr.Commit(c)
	tr.DeleteService(testService(nil), at(3))
	c = tr.Take()
	if len(c.Services) != 1 || c.Services[0].New != nil || c.Services[0].Old == nil {
		t.Errorf("Service gone: %+v", c)
	}
}

// An update that changes nothing for packets starts no sync: endpoints or ports in another order, another label.
func TestReorderIsNoChange(t *testing.T) {
	tr := newTracker()
	tr.SetService(testService(nil), at(0))
	slice := testSlice("a", at(0), "10.0.0.1", "10.0.0.2")
	slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To("more"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8081)})
	tr.SetSlice(slice, at(0))
	tr.Commit(tr.Take())

	same := slice.DeepCopy()
	slices.Reverse(same.Endpoints)
	slices.Reverse(same.Ports)
	same.ResourceVersion, same.Labels["team"] = "7", "shop"
	if tr.SetSlice(same, at(1)) {
		t.Error("another order is a pending change")
	}
	if c := tr.Take(); len(c.Services) != 0 || c.SliceEvents != 0 || len(c.TriggerTimes) != 0 {
		t.Errorf("another order: %+v", c)
	}
	same.Endpoints = same.Endpoints[:1]
	if !tr.SetSlice(same, at(2)) {
		t.Error("an endpoint less is no pending change")
	}
}

// Slices may arrive before their Service. Changes are returned sorted.
func TestOrder(t *testing.T) {
	tr := newTracker()
	tr.SetSlice(testSlice("a", at(0), "10.0.0.1"), at(0))
	if c := tr.Take(); len(c.Services) != 0 {
		t.Errorf("a slice without its Service: %+v", c.Services)
	}
	for _, name := range []string{"b", "svc", "a"} {
		tr.SetService(testService(func(s *corev1.Service) { s.Name = name }), at(1))
	}
	tr.SetService(testService(func(s *corev1.Service) { s.Namespace = "a" }), at(1))
	var names []string
	for _, change := range tr.Take().Services {
		names = append(names, change.Name.String())
		if change.Name == svcName && len(texts(change.New)) != 1 {
			t.Error("the slice that came before its Service is lost")
		}
	}
	if want := []string{"a/svc", "ns/a", "ns/b", "ns/svc"}; !slices.Equal(names, want) {
		t.Errorf("%v, want %v", names, want)
	}
}

// Trigger times from before the proxier's start do not show its latency. Invalid times are ignored.
func TestTriggerTimes(t *testing.T) {
	for text, want := range map[string]int{
		at(-1).Format(time.RFC3339Nano): 0, at(0).Format(time.RFC3339Nano): 1, at(1).Format(time.RFC3339Nano): 1, "yesterday": 0, "": 0,
	} {
		tr := newTracker()
		slice := testSlice("a", time.Time{}, "10.0.0.1")
		slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: text}
		tr.SetSlice(slice, at(2))
		if got := tr.Take().TriggerTimes; len(got) != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Several slices contain one address while its pods change. The endpoint that does not terminate wins in every order.
// Of several that do not terminate, the one of the last slice by name wins.
func TestSliceMerge(t *testing.T) {
	type part struct{ terminating, ready bool }
	leaving, living, starting := part{true, false}, part{false, true}, part{false, false}
	for _, c := range []struct {
		name   string
		slices []part // named a, b, c in this order
		want   part
	}{
		{"leaving, living", []part{leaving, living}, living},
		{"living, leaving", []part{living, leaving}, living},
		{"leaving, starting", []part{leaving, starting}, starting},
		{"starting, leaving", []part{starting, leaving}, starting},
		{"starting, living", []part{starting, living}, living},
		{"living, starting", []part{living, starting}, starting},
		{"leaving, leaving", []part{leaving, leaving}, leaving},
		{"leaving, living, leaving", []part{leaving, living, leaving}, living},
		{"living, leaving, leaving", []part{living, leaving, leaving}, living},
		{"leaving, leaving, living", []part{leaving, leaving, living}, living},
	} {
		t.Run(c.name, func(t *testing.T) {
			order := make([]int, len(c.slices))
			for i := range order {
				order[i] = i
			}
			for _, arrival := range permutations(order) {
				tr := newTracker()
				tr.SetService(testService(nil), at(0))
				for _, i := range arrival {
					slice := testSlice(fmt.Sprintf("%c", 'a'+i), at(0), "10.0.0.1")
					slice.Endpoints[0].Conditions = discoveryv1.EndpointConditions{
						Ready: ptr.To(c.slices[i].ready), Serving: ptr.To(true), Terminating: ptr.To(c.slices[i].terminating),
					}
					tr.SetSlice(slice, at(0))
				}
				eps := tr.Take().Services[0].New.EndpointsOf(httpTCP)
				if len(eps) != 1 || eps[0].Terminating != c.want.terminating || eps[0].Ready != c.want.ready {
					t.Errorf("arrived %v: %d endpoints, the first %+v", arrival, len(eps), *eps[0])
				}
			}
		})
	}
}

func permutations(list []int) [][]int {
	if len(list) == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for i, first := range list {
		rest := slices.Concat(list[:i], list[i+1:])
		for _, p := range permutations(rest) {
			all = append(all, append([]int{first}, p...))
		}
	}
	return all
}

// A slice that was added and deleted between two syncs was never programmed. As in kube-proxy, its trigger times are no
// samples, even if a sync failed meanwhile. Changes after the deletion count.
func TestTriggersOfDeletedSlices(t *testing.T) {
	slice := func(name string, seconds int) *discoveryv1.EndpointSlice {
		return testSlice(name, at(seconds), fmt.Sprintf("10.0.0.%d", seconds))
	}
	for _, failed := range []bool{false, true} {
		tr := newTracker()
		tr.SetSlice(slice("a", 10), at(10))
		tr.SetSlice(slice("a", 11), at(11))
		if failed {
			tr.Requeue(tr.Take())
			changes := tr.Take() // once more, with the deletion during the sync
			tr.DeleteSlice(slice("a", 11), at(12))
			tr.Requeue(changes)
		} else {
			tr.DeleteSlice(slice("a", 11), at(12))
		}
		if c := tr.Take(); len(c.TriggerTimes) != 0 || c.SliceEvents != 3 {
			t.Errorf("after a failed sync %v: trigger times %v of %d events, want none of 3", failed, c.TriggerTimes, c.SliceEvents)
		} else {
			tr.Requeue(c)
		}
		tr.SetSlice(slice("b", 20), at(20))
		if c := tr.Take(); len(c.TriggerTimes) != 1 || !c.TriggerTimes[0].Equal(at(20)) {
			t.Errorf("after a failed sync %v, of a slice that stays: %v", failed, c.TriggerTimes)
		}
	}
}

// If external IPs are disabled, as by kube-proxy's feature gate, digests of Services have none.
func TestNoExternalIPs(t *testing.T) {
	svc := testService(func(svc *corev1.Service) { svc.Spec.ExternalIPs = []string{"192.0.2.1"} })
	for _, off := range []bool{false, true} {
		tr := New(Options{Family: corev1.IPv4Protocol})
		tr.PutService(Digester{NoExternalIPs: off}.Service(svc), at(1))
		port := tr.Take().Services[0].New.Ports[0]
		if got := len(port.ExternalIPs) == 0; got != off {
			t.Errorf("off %v: external IPs %v", off, port.ExternalIPs)
		}
	}
}
