package visible

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/proxier/tracker"
	"synclab/sim"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeKernel maps "family/service:port" to the endpoints of the port.
type fakeKernel struct {
	generation Generation
	misses     bool
	ports      map[string]State
	detached   map[string]bool // no rule jumps to their chains
	looks      int             // number of ports read
	onPort     func()          // called during a read
	unreadable map[string]string
}

func (k *fakeKernel) Generation() (Generation, error) { return k.generation, nil }
func (k *fakeKernel) Misses() bool                    { return k.misses }
func (k *fakeKernel) Blind() time.Duration            { return blindPeriod }
func (k *fakeKernel) Look() (Snapshot, error)         { return fakeLook{k}, nil }
func (k *fakeKernel) Close()                          {}
func (k *fakeKernel) Endpoint(_ tracker.ServicePortName, text string) string {
	return "chain of " + text
}
func (k *fakeKernel) Installed(corev1.IPFamily) (Installed, error) { return Installed{}, nil }

type fakeLook struct{ *fakeKernel }

func fakeName(family corev1.IPFamily, port tracker.ServicePortName) string {
	return string(family) + " " + port.String()
}

func (l fakeLook) Port(family corev1.IPFamily, port tracker.ServicePortName) (State, error) {
	l.looks++
	if l.onPort != nil {
		l.onPort()
	}
	return l.ports[fakeName(family, port)], nil
}

func (l fakeLook) Dispatched(family corev1.IPFamily, port tracker.ServicePortName) (cluster, local bool, err error) {
	name := fakeName(family, port)
	s := l.ports[name]
	return !l.detached[name] && len(s.Cluster) > 0, !l.detached[name] && len(s.Local) > 0, nil
}

func (l fakeLook) Unrecognised(family corev1.IPFamily, port tracker.ServicePortName) (string, error) {
	return l.unreadable[fakeName(family, port)], nil
}

// bed is a Watcher on a fake kernel that reads on request.
type bed struct {
	*Watcher
	t      *testing.T
	clock  *clocktesting.FakeClock
	kernel *fakeKernel
	sights []string
}

func newBed(t *testing.T, families ...corev1.IPFamily) *bed {
	t.Helper()
	b := &bed{t: t, clock: clocktesting.NewFakeClock(epoch), kernel: &fakeKernel{ports: map[string]State{}, detached: map[string]bool{}}}
	var err error
	b.Watcher, err = newWatcher(Options{Clock: b.clock, Families: families, Reader: b.kernel, Seen: func(s VisibleChange) {
		text := fmt.Sprintf("%s %s %s due %d visible %d", s.Op, s.Service.Name, s.Family, b.ms(s.Due), b.ms(s.Visible))
		if !s.Since.IsZero() {
			text += fmt.Sprintf(" since %d", b.ms(s.Since))
		}
		if s.Undone {
			text += " undone"
		}
		b.sights = append(b.sights, text)
	}})
	if err != nil {
		t.Fatal(err)
	}
	b.step() // the first generation is not a commit
	return b
}

func (b *bed) ms(at time.Time) int { return int(at.Sub(epoch) / time.Millisecond) }

// at sets the clock.
func (b *bed) at(ms int) *bed {
	b.clock.SetTime(epoch.Add(time.Duration(ms) * time.Millisecond))
	return b
}

// change makes a change, scheduled for now.
func (b *bed) change(op sim.Op, object any) bool {
	switch o := object.(type) {
	case *corev1.Service:
		return b.Changed(mirror.Change{Op: op, Object: o, Due: b.clock.Now()})
	case *discoveryv1.EndpointSlice:
		return b.Changed(mirror.Change{Op: op, Object: o, Due: b.clock.Now()})
	}
	b.t.Fatalf("%T", object)
	return false
}

// commit sets the endpoints of ports, as "IPv4 ns/svc:http=a,b" with a comma-separated list of last address bytes.
func (b *bed) commit(ports ...string) *bed {
	b.kernel.generation.Dispatch++
	b.write(ports...)
	return b
}

func (b *bed) write(ports ...string) {
	for _, text := range ports {
		name, list, _ := strings.Cut(text, "=")
		var s State
		for _, last := range strings.Split(list, ",") {
			if last == "" {
				continue
			}
			prefix := "10.0.0."
			if strings.HasPrefix(name, "IPv6") {
				s.Cluster = append(s.Cluster, "chain of [fd00::"+last+"]:8080")
				continue
			}
			s.Cluster = append(s.Cluster, "chain of "+prefix+last+":8080")
		}
		slices.Sort(s.Cluster)
		b.kernel.ports[name] = s
	}
}

// saw runs a step and compares its sights.
func (b *bed) saw(want ...string) {
	b.t.Helper()
	b.step()
	if !slices.Equal(b.sights, want) {
		b.t.Errorf("at %d ms sights\n\t%s\nwant\n\t%s", b.ms(b.clock.Now()), strings.Join(b.sights, "\n\t"), strings.Join(want, "\n\t"))
	}
	b.sights = nil
}

// showing starts with Service a and its endpoint 1, scheduled at 0 ms and visible at 1 ms.
func (b *bed) showing() *bed {
	b.t.Helper()
	b.change(sim.Add, service("a"))
	b.change(sim.Add, slice("a", "1"))
	b.at(1).commit("IPv4 ns/a:http=1").saw("Add a IPv4 due 0 visible 1")
	return b
}

func service(name string, families ...corev1.IPFamily) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
	s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
	for _, family := range families {
		ip := "10.96.0.1"
		if family == corev1.IPv6Protocol {
			ip = "fd00:96::1"
		}
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, ip)
	}
	if len(families) == 0 {
		s.Spec.ClusterIPs = []string{"10.96.0.1"}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return s
}

func slice(service string, last ...string) *discoveryv1.EndpointSlice {
	return sliceOf(discoveryv1.AddressTypeIPv4, "10.0.0.", service, last...)
}

func sliceOf(family discoveryv1.AddressType, prefix, service string, last ...string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: service + "-" + string(family), Labels: map[string]string{discoveryv1.LabelServiceName: service}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("http"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)}},
	}
	for _, l := range last {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{prefix + l}})
	}
	return s
}

func TestVisibleWithTheCommitThatBringsIt(t *testing.T) {
	b := newBed(t)
	if b.change(sim.Add, service("a")) {
		t.Error("a Service without endpoints was awaited")
	}
	if !b.at(1).change(sim.Add, slice("a", "1", "2")) {
		t.Error("its endpoints were not")
	}
	b.at(2).saw()
	b.at(3).commit("IPv4 ns/a:http=1").saw() // incomplete
	b.at(4).commit("IPv4 ns/a:http=1,2").saw("Add a IPv4 due 1 visible 4")
	b.at(5).commit().saw()
	if b.Pending() != 0 {
		t.Errorf("%d pending", b.Pending())
	}
}

func TestSuperseded(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	b.change(sim.Add, slice("a", "1"))
	b.at(1).change(sim.Update, slice("a", "1", "2"))
	b.at(2).change(sim.Update, slice("a", "2"))
	b.at(3).commit("IPv4 ns/a:http=1,2").saw("Add a IPv4 due 0 visible 3", "Update a IPv4 due 1 visible 3")
	b.at(4).commit("IPv4 ns/a:http=2").saw("Update a IPv4 due 2 visible 4")
}

// A change back to the shown state before any sync needs no commit.
func TestBackToWhatWasShown(t *testing.T) {
	b := newBed(t).showing()
	b.at(2).change(sim.Update, slice("a"))
	b.at(3).saw()
	b.change(sim.Update, slice("a", "1"))
	b.at(4).saw("Update a IPv4 due 2 visible 4 undone", "Update a IPv4 due 3 visible 4 undone")
	b.at(5).change(sim.Update, slice("a", "2")) // the next change counts as usual
	b.at(6).commit("IPv4 ns/a:http=2").saw("Update a IPv4 due 5 visible 6")
}

// A change of two ports that is undone in one of them was written in the other.
func TestUndoneInOneOfTwoPorts(t *testing.T) {
	b := newBed(t)
	svc := service("a")
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "web", Protocol: corev1.ProtocolTCP, Port: 81})
	of := func(http, web string) *discoveryv1.EndpointSlice {
		s := slice("a", http)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("web"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)})
		if web == "" {
			s.Ports = s.Ports[:1]
		}
		return s
	}
	b.change(sim.Add, svc)
	b.change(sim.Add, of("1", "yes"))
	b.at(1).commit("IPv4 ns/a:http=1", "IPv4 ns/a:web=1").saw("Add a IPv4 due 0 visible 1")
	b.at(2).change(sim.Update, of("2", ""))
	b.at(3).change(sim.Update, of("1", ""))
	b.at(4).saw("Update a IPv4 due 3 visible 4 undone") // it affected only port http
	b.at(5).commit("IPv4 ns/a:web=").saw("Update a IPv4 due 2 visible 5")
}

// If a sync wrote the state in between, the kernel has neither the old state nor the new one.
func TestBackToWhatWasShownAfterACommit(t *testing.T) {
	b := newBed(t).showing()
	b.at(2).change(sim.Update, slice("a", "2"))
	b.at(3).commit("IPv4 ns/a:http=2")
	b.change(sim.Update, slice("a", "1"))
	b.at(4).saw("Update a IPv4 due 2 visible 4")
	b.at(5).commit("IPv4 ns/a:http=1").saw("Update a IPv4 due 3 visible 5")
}

func TestDeletedAndMadeAgain(t *testing.T) {
	b := newBed(t).showing()
	b.at(2).change(sim.Delete, service("a"))
	if b.change(sim.Delete, slice("a", "1")) {
		t.Error("the slice of a Service that is gone was awaited")
	}
	// Its rules stay for a while, but no rule jumps to them.
	b.kernel.detached["IPv4 ns/a:http"] = true
	b.at(3).commit().saw("Delete a IPv4 due 2 visible 3")
	if len(b.ports) != 0 {
		t.Errorf("%d ports are kept", len(b.ports))
	}
	b.at(4).change(sim.Add, slice("a", "1"))
	b.at(5).change(sim.Add, service("a"))
	b.at(6).commit().saw() // still the old chain
	delete(b.kernel.detached, "IPv4 ns/a:http")
	b.at(7).commit().saw("Add a IPv4 due 5 visible 7")
}

func TestNoOpsAndUnreported(t *testing.T) {
	b := newBed(t)
	if b.Changed(mirror.Change{Op: sim.Add, Object: slice("a", "1"), Due: time.Time{}}) {
		t.Error("a slice without a Service was awaited")
	}
	if !b.Changed(mirror.Change{Op: sim.Add, Object: service("a"), Due: time.Time{}}) {
		t.Error("a first state was not awaited")
	}
	b.at(1).commit("IPv4 ns/a:http=1").saw()
	labelled := slice("a", "1")
	labelled.Labels["x"] = "y"
	if b.change(sim.Update, labelled) || b.change(sim.Add, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "headless"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone},
	}) {
		t.Error("changes without an effect were awaited")
	}
	moved := slice("a", "1")
	moved.Labels[discoveryv1.LabelServiceName] = "b"
	b.at(2).change(sim.Update, moved)
	b.at(3).commit("IPv4 ns/a:http=").saw("Update b IPv4 due 2 visible 3")
}

func TestDualStack(t *testing.T) {
	both := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	b := newBed(t, both...)
	b.change(sim.Add, slice("a", "1"))
	b.change(sim.Add, sliceOf(discoveryv1.AddressTypeIPv6, "fd00::", "a", "1"))
	svc := service("a", both...)
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53})
	b.at(1).change(sim.Add, svc)
	b.at(2).commit("IPv6 ns/a:http=1").saw("Add a IPv6 due 1 visible 2")
	b.at(3).commit("IPv4 ns/a:http=1").saw("Add a IPv4 due 1 visible 3")
	b.at(4).change(sim.Delete, svc)
	b.at(5).commit("IPv4 ns/a:http=").saw("Delete a IPv4 due 4 visible 5")
	b.at(6).commit("IPv6 ns/a:http=").saw("Delete a IPv6 due 4 visible 6")
}

// A change of several ports is visible when the last of them shows it.
func TestSeveralPorts(t *testing.T) {
	b := newBed(t)
	svc := service("a")
	svc.Spec.Ports = append(svc.Spec.Ports, corev1.ServicePort{Name: "web", Protocol: corev1.ProtocolTCP, Port: 81})
	b.change(sim.Add, svc)
	s := slice("a", "1")
	s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: ptr.To("web"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)})
	b.change(sim.Add, s)
	b.at(1).commit("IPv4 ns/a:http=1").saw()
	b.at(2).commit("IPv4 ns/a:web=1").saw("Add a IPv4 due 0 visible 2")
}

func TestNodeMovesToAnotherZone(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	s := slice("a", "1", "2")
	for i, zone := range []string{"east", "west"} {
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	b.change(sim.Add, s)
	b.at(1).commit("IPv4 ns/a:http=1,2").saw("Add a IPv4 due 0 visible 1")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-0", Labels: map[string]string{corev1.LabelTopologyZone: "west"}}}
	if !b.at(2).Changed(mirror.Change{Op: sim.Update, Object: node, Due: b.clock.Now()}) || b.Changed(mirror.Change{Op: sim.Update, Object: node, Due: b.clock.Now()}) {
		t.Error("the node's zone is awaited when it changes")
	}
	b.at(3).commit("IPv4 ns/a:http=2").saw("Update  IPv4 due 2 visible 3")
}

// States that are read after the generation moved again count from then.
func TestMovedDuringALook(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	b.change(sim.Add, slice("a", "1"))
	b.at(1).commit()
	b.kernel.onPort = func() {
		b.kernel.onPort = nil
		b.at(5).commit("IPv4 ns/a:http=1")
	}
	b.saw("Add a IPv4 due 0 visible 5")
}

func TestToolEnded(t *testing.T) {
	b := newBed(t)
	b.kernel.misses = true
	b.showing()
	b.ToolEnded(b.at(2).clock.Now()) // of the commit that was seen
	b.saw()
	b.at(3).change(sim.Update, slice("a", "2"))
	b.write("IPv4 ns/a:http=2")
	b.at(4).saw()
	b.ToolEnded(b.clock.Now())
	b.at(6).saw("Update a IPv4 due 3 visible 4")
	b.at(7).change(sim.Update, slice("a", "3"))
	b.write("IPv4 ns/a:http=3")
	b.at(7 + int(blindPeriod/time.Millisecond)).saw("Update a IPv4 due 7 visible 257 since 7") // no report of a tool
}

// If only a read reveals a commit, the commit came before the end of that read and after the start of the previous one.
func TestVisibleOnlyByReading(t *testing.T) {
	b := newBed(t)
	b.kernel.misses = true
	b.showing()
	b.at(2).change(sim.Update, slice("a", "2"))
	b.at(300).saw()
	b.at(600)
	b.kernel.onPort = func() {
		b.at(640)
		b.write("IPv4 ns/a:http=2")
	}
	b.saw("Update a IPv4 due 2 visible 640 since 300")
}

// A tool that ended before a change was made did not write it, even if its end is reported later.
func TestToolEndedBeforeTheChange(t *testing.T) {
	b := newBed(t)
	b.kernel.misses = true
	b.showing()
	ended := b.at(2).clock.Now()
	b.ToolEnded(ended) // of the commit that was seen
	b.saw()
	b.at(4).change(sim.Update, slice("a", "2"))
	b.write("IPv4 ns/a:http=2")
	b.ToolEnded(ended)
	b.at(9).saw("Update a IPv4 due 4 visible 9 since 4")

	// It also did not write a state that a later read still missed.
	b.at(10).change(sim.Update, slice("a", "3"))
	ended = b.at(11).clock.Now()
	b.kernel.generation.Dispatch++ // an unrelated commit
	b.at(12).saw()
	b.ToolEnded(b.at(13).clock.Now())
	b.saw()
	b.write("IPv4 ns/a:http=3")
	b.ToolEnded(ended)
	b.at(14).saw("Update a IPv4 due 10 visible 14 since 12")
}

// PendingSince for changes up to a moment ignores later changes, also of the same port.
func TestPendingSince(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	b.change(sim.Add, service("b"))
	b.at(1).change(sim.Add, slice("a", "1"))
	b.at(2).change(sim.Update, slice("a", "2"))
	b.at(3).change(sim.Add, slice("b", "1"))
	pending := func(want ...int) {
		t.Helper()
		for ms, n := range want {
			if got := b.PendingSince(epoch.Add(time.Duration(ms) * time.Millisecond)); got != n {
				t.Errorf("%d pending of the changes up to %d ms, want %d", got, ms, n)
			}
		}
	}
	pending(0, 1, 1, 2)
	b.at(4).commit("IPv4 ns/a:http=1").step()
	pending(0, 0, 1, 2)
	b.at(5).commit("IPv4 ns/b:http=1").step()
	pending(0, 0, 1, 1)
	b.at(6).commit("IPv4 ns/a:http=2").step()
	pending(0, 0, 0, 0)
	b.Recheck()
	if early, now := b.PendingSince(epoch.Add(5*time.Millisecond)), b.PendingSince(b.clock.Now()); early != 0 || now != 2 {
		t.Errorf("after Recheck: %d pending since before, %d since then, want 0 and 2", early, now)
	}
}

func TestRecheck(t *testing.T) {
	b := newBed(t).showing()
	b.commit("IPv4 ns/a:http=").saw()
	b.Recheck()
	b.saw()
	if visible, total := b.Progress(); visible != 0 || total != 1 {
		t.Errorf("progress %d of %d", visible, total)
	}
	b.commit("IPv4 ns/a:http=1").saw()
	if visible, total := b.Progress(); visible != 1 || total != 1 || b.Pending() != 0 {
		t.Errorf("progress %d of %d, %d pending", visible, total, b.Pending())
	}
}

// Commits without effect cost a few reads. A commit with all changes is seen in full.
func TestManyPending(t *testing.T) {
	b := newBed(t)
	const services = 1000
	var all []string
	for i := range services {
		name := fmt.Sprintf("s%d", i)
		b.change(sim.Add, service(name))
		b.change(sim.Add, slice(name, "1"))
		all = append(all, "IPv4 ns/"+name+":http=1")
	}
	b.at(1).commit().saw()
	if b.kernel.looks > fewOldest+fewSpread+1 {
		t.Errorf("%d ports read", b.kernel.looks)
	}
	b.at(2).commit(all...).step()
	if len(b.sights) != services || b.Pending() != 0 {
		t.Errorf("%d sights, %d pending", len(b.sights), b.Pending())
	}
}

// A subject that writes piece by piece, in an order of its own, is seen within wholePeriod, and the changes say since when
// they may have been visible.
func TestPieceByPiece(t *testing.T) {
	b := newBed(t)
	lacked := map[string]int{}
	b.opts.Seen = func(s VisibleChange) { lacked[s.Service.Name] = b.ms(s.Lacked) }
	for i := range 200 {
		b.change(sim.Add, service(fmt.Sprintf("s%d", i)))
		b.change(sim.Add, slice(fmt.Sprintf("s%d", i), "1"))
	}
	b.at(1).commit().step()
	b.at(50).commit("IPv4 ns/s20:http=1").step() // none of the few that are read first
	if len(lacked) != 0 {
		t.Errorf("read before its time: %v", lacked)
	}
	b.at(150).commit("IPv4 ns/s21:http=1").step()
	if want := map[string]int{"s20": 0, "s21": 0}; !maps.Equal(lacked, want) {
		t.Errorf("%v, want %v", lacked, want)
	}
	b.at(300).commit("IPv4 ns/s22:http=1").step()
	if lacked["s22"] != 150 {
		t.Errorf("%v: s22 was missing at 150", lacked)
	}
}

// A commit during a look at all ports breaks it off, as it may bring everything: the next look sees it at once.
func TestCommitBreaksOffALook(t *testing.T) {
	b := newBed(t)
	var all []string
	for i := range 200 {
		name := fmt.Sprintf("s%d", i)
		b.change(sim.Add, service(name))
		b.change(sim.Add, slice(name, "1"))
		all = append(all, "IPv4 ns/"+name+":http=1")
	}
	b.at(1).commit().step()
	before := b.kernel.looks
	b.kernel.onPort = func() {
		if b.kernel.looks == before+30 {
			b.at(151).commit(all...)
		}
	}
	b.at(150).commit().step()
	if read := b.kernel.looks - before; read > 30+chunk {
		t.Errorf("%d ports were read", read)
	}
	if b.at(152).step(); len(b.sights) != 200 || b.Pending() != 0 {
		t.Errorf("%d sights, %d pending", len(b.sights), b.Pending())
	}
}

// A queue does not grow without bound if the subject does nothing, and no change is lost.
func TestQueueIsBounded(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	const changes = 3 * maxQueue
	for i := range changes {
		b.change(sim.Update, slice("a", fmt.Sprint(i+1)))
	}
	if n := len(b.listed[0].queue); n > maxQueue {
		t.Errorf("%d states in the queue", n)
	}
	b.at(1).commit(fmt.Sprintf("IPv4 ns/a:http=%d", changes)).step()
	if len(b.sights) != changes {
		t.Errorf("%d sights of %d changes", len(b.sights), changes)
	}
}

func TestErrorsSayWhatIsMissing(t *testing.T) {
	b := newBed(t)
	go b.run()
	defer b.Close()
	ctx, cancel := context.WithCancel(t.Context())
	if err := b.Wait(ctx); err != nil {
		t.Error(err)
	}
	b.change(sim.Add, service("a"))
	b.change(sim.Add, slice("a", "1", "2", "3"))
	cancel()
	err := b.Wait(ctx)
	if err == nil || !strings.Contains(err.Error(), "service ns/a:http (TCP, IPv4): kernel has 0 of 3 endpoints, missing 10.0.0.1:8080, 10.0.0.2:8080, 10.0.0.3:8080") {
		t.Error(err)
	}
}

// The kernel increments the generation shortly before the new rules take effect. A later read finds what a read in
// between missed, and counts it from that read.
func TestGenerationBeforeItsRules(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("a"))
	b.change(sim.Add, slice("a", "1"))
	b.at(3).commit()
	b.kernel.generation.Rest++
	b.step()
	b.kernel.onPort = func() { b.at(7) }
	b.at(5).force = true
	b.saw() // the read that still missed it
	b.write("IPv4 ns/a:http=1")
	b.at(8).saw()
	b.at(8 + int(blindPeriod/time.Millisecond)).saw("Add a IPv4 due 0 visible 5") // not 3
}

// Uncertainty returns how much earlier the change may have been visible: since the poll before, the change's due time,
// or the start of a read that missed it.
func TestUncertainty(t *testing.T) {
	at := func(ms int) time.Time { return epoch.Add(time.Duration(ms) * time.Millisecond) }
	due10 := mirror.Change{Due: at(10)}
	for _, c := range []struct {
		seen VisibleChange
		want int
	}{
		{VisibleChange{Change: due10, Visible: at(50), Polled: at(49)}, 1},
		{VisibleChange{Change: due10, Visible: at(50), Polled: at(3)}, 40},
		{VisibleChange{Change: due10, Visible: at(50), Polled: at(60)}, 0},
		{VisibleChange{Change: due10, Visible: at(50), Polled: at(49), Since: at(30)}, 20},
	} {
		if got := c.seen.Uncertainty(); got != time.Duration(c.want)*time.Millisecond {
			t.Errorf("%+v: %v, want %d ms", c.seen, got, c.want)
		}
	}
}

// A new change is polled for more often than one that has waited for long.
func TestPeriodGrowsWithTheWait(t *testing.T) {
	b := newBed(t)
	b.change(sim.Add, service("svc"))
	b.change(sim.Add, slice("svc", "1"))
	for _, c := range []struct {
		ms   int
		want time.Duration
	}{{0, finePeriod}, {10, 200 * time.Microsecond}, {40, 800 * time.Microsecond}, {5000, time.Millisecond}} {
		if got := b.at(c.ms).period(); got != c.want {
			t.Errorf("after %d ms: %v, want %v", c.ms, got, c.want)
		}
	}
}
