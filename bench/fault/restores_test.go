package fault

import (
	"bufio"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"

	"synclab/bench/internal/rigtest"
	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/subject/host"
	"synclab/proxier/kernel"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/world"
)

// newFaults makes the faults of a repetition without its other parts.
func newFaults(e *pass.Env) *Faults {
	h := &host.Host{Env: e}
	f := &Faults{Env: e, Host: h}
	e.Events.Changing = append(e.Events.Changing, f.Changing, h.Changing)
	e.Events.Awaited = append(e.Events.Awaited, f.Awaited)
	return f
}

// written writes a subject's rules in a separate namespace, and returns faults that can break them.
func written(t *testing.T, name string) *Faults {
	t.Helper()
	about, err := subject.Parse(name)
	if err != nil || about.Available() != nil {
		t.Skipf("%v %v", err, about.Available())
	}
	netns.Fresh(t)
	rigtest.New(t, rigtest.World(t, scenarios.Shape{Services: 20, WithoutEndpoint: 0.1}), about, nil).Sync(t)
	e := &pass.Env{About: about, Families: []corev1.IPFamily{corev1.IPv4Protocol}, Clock: clock.RealClock{}}
	return newFaults(e)
}

var brokenSubjects = []string{"synclab/iptables-legacy", "synclab/iptables-nft-tree", "synclab/nftables"}

// A deleted object is gone and is reported missing. With the same seed it is the same object.
func TestTakenObjects(t *testing.T) {
	for _, name := range brokenSubjects {
		for _, object := range []string{"jump", "chain", "rule"} {
			t.Run(name+"/"+object, func(t *testing.T) {
				var first string
				for range 2 {
					what, stillMissing := takeOnce(t, name, object)
					if stillMissing == "" {
						t.Errorf("%s: nothing is missing", what)
					}
					if first == "" {
						first = what
					}
					if what != first {
						t.Errorf("%s; with the same seed it was: %s", what, first)
					}
				}
			})
		}
	}
}

// takeOnce deletes an object from fresh rules, and returns its description and what is then missing.
func takeOnce(t *testing.T, name, object string) (what, stillMissing string) {
	t.Helper()
	r := written(t, name)
	lot := rand.New(rand.NewPCG(1, 2))
	if r.About.Nftables() {
		l, err := r.liveNftables(corev1.IPv4Protocol)
		if err != nil || l == nil {
			t.Fatalf("no table: %v", err)
		}
		var back func(*liveTable) (string, error)
		switch object {
		case "jump":
			what, back, err = takeBase(l, lot)
		case "chain":
			what, back, err = takeRules(corev1.IPv4Protocol, l, lot)
		default:
			_, what, back, err = takeElement(corev1.IPv4Protocol, l, lot)
		}
		if err != nil {
			t.Fatal(err)
		}
		if l, err = r.liveNftables(corev1.IPv4Protocol); err != nil {
			t.Fatal(err)
		}
		if stillMissing, err = back(l); err != nil {
			t.Fatal(err)
		}
		return what, stillMissing
	}
	place := tableOf{corev1.IPv4Protocol, "nat"}
	before := r.tally(t, place)
	l, err := r.take(t.Context(), object, place, before, lot)
	if err != nil {
		t.Fatal(err)
	}
	read := func(chain string) ([]string, error) { return r.rulesOf(t.Context(), place, chain) }
	if whole, err := l.stillMissing(place, before, read); whole != "" || err != nil {
		t.Errorf("%s: with the earlier rules it lacks %s, %v", l.what, whole, err)
	}
	stillMissing, err = l.stillMissing(place, r.tally(t, place), read)
	if err != nil {
		t.Fatal(err)
	}
	return l.what, stillMissing
}

// A deleted rule is repaired when it is there, or when its chain was written since. The number of rules does not show
// that: a change may have removed another rule.
func TestLostRuleIsBack(t *testing.T) {
	place := tableOf{corev1.IPv4Protocol, "nat"}
	l := lost{chain: "KUBE-SERVICES", before: 3, after: 2, rule: "b", left: []string{"a", "c"}}
	for _, c := range []struct {
		now  []string
		back bool
	}{
		{[]string{"a", "c"}, false},
		{nil, false},
		{[]string{"a", "b", "c"}, true},
		{[]string{"b", "c"}, true},
		{[]string{"a", "d"}, true}, // the chain was written, and b is not desired
		{[]string{"b"}, true},
	} {
		stillMissing, err := l.stillMissing(place, map[string]int{l.chain: len(c.now)}, func(string) ([]string, error) { return c.now, nil })
		if err != nil || (stillMissing == "") != c.back {
			t.Errorf("%q: still missing %q, %v", c.now, stillMissing, err)
		}
	}
	base := l
	base.chain = "OUTPUT" // other programs write here too
	if stillMissing, _ := base.stillMissing(place, map[string]int{"OUTPUT": 2}, func(string) ([]string, error) { return []string{"a", "x"}, nil }); stillMissing == "" {
		t.Error("a jump counts as repaired because another program changed the chain")
	}
}

// If its Service has changed since, a rule may not be desired any more.
func TestRuleOfChangedService(t *testing.T) {
	r, began := newFaults(&pass.Env{}), time.Now()
	l := lost{rule: `-A KUBE-SERVICES -d 10.0.0.1/32 -p tcp -m comment --comment "default/a:http cluster IP" -j KUBE-SVC-X`}
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ab"}}
	r.touch(other, began.Add(time.Second))
	if !r.wanted(l, began) || !r.wanted(lost{rule: "-A KUBE-SERVICES -j KUBE-NODEPORTS"}, began) {
		t.Error("not desired, although its Service has not changed")
	}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a-x", Labels: map[string]string{discoveryv1.LabelServiceName: "a"}}}
	r.touch(slice, began.Add(-time.Second))
	if !r.wanted(l, began) {
		t.Error("not desired, although its Service changed only before")
	}
	r.touch(slice, began.Add(time.Second))
	if r.wanted(l, began) {
		t.Error("certainly desired, although its Service changed")
	}
}

func (r *Faults) tally(t *testing.T, place tableOf) map[string]int {
	t.Helper()
	tally, err := kernel.Tally(string(r.KernelVariant()), place.family, place.table)
	if err != nil {
		t.Fatal(err)
	}
	return tally
}

// Referenced chains keep their reference until the fault ends. Then the reference disappears completely.
func TestReferences(t *testing.T) {
	for _, name := range brokenSubjects {
		t.Run(name, func(t *testing.T) {
			r := written(t, name)
			there := func() bool {
				if r.About.Nftables() {
					l, err := r.liveNftables(corev1.IPv4Protocol)
					if err != nil {
						t.Fatal(err)
					}
					for _, chain := range l.other {
						if chain.Name == referringChain {
							return true
						}
					}
					return false
				}
				return hasChain(r.tally(t, tableOf{corev1.IPv4Protocol, "nat"}), referringChain)
			}
			chains, end, err := r.referIn(t.Context(), corev1.IPv4Protocol, rand.New(rand.NewPCG(1, 2)))
			if err != nil || len(chains) < 2 || !there() {
				t.Fatalf("%d references, %v", len(chains), err)
			}
			if r.About.Nftables() { // by a rule, and by an element of a map
				l, err := r.liveNftables(corev1.IPv4Protocol)
				if err != nil {
					t.Fatal(err)
				}
				for _, chain := range chains[:2] {
					l.conn.FlushChain(&nftables.Chain{Name: chain, Table: l.table})
					if err := l.conn.Flush(); err != nil {
						t.Fatal(err)
					}
					l.conn.DelChain(&nftables.Chain{Name: chain, Table: l.table})
					if err := l.conn.Flush(); !errors.Is(err, unix.EBUSY) {
						t.Errorf("delete chain %s: %v, want EBUSY", chain, err)
					}
				}
				stale, err := r.staleChains(corev1.IPv4Protocol, chains)
				if err != nil || !slices.Contains(stale, chains[0]) || !slices.Contains(stale, chains[1]) {
					t.Errorf("stale are %q, %v; want %q among them", stale, err, chains[:2])
				}
			}
			for range 2 { // also if another program was faster
				if err := end(); err != nil {
					t.Fatal(err)
				}
			}
			if there() {
				t.Error("the references are still there")
			}
		})
	}
}

// The conntrack table is full, and afterwards has no entries of the lab.
func TestConntrackIsFilled(t *testing.T) {
	r := written(t, "synclab/nftables") // a namespace tracks flows only if a rule needs it
	_ = r
	connections := func() int {
		f, err := os.Open("/proc/thread-self/net/nf_conntrack")
		if err != nil {
			t.Skip(err)
		}
		defer f.Close()
		n := 0
		for lines := bufio.NewScanner(f); lines.Scan(); {
			if strings.Contains(lines.Text(), "dst=198.19.0.1") {
				n++
			}
		}
		return n
	}
	filler, err := newFiller()
	if err != nil {
		t.Fatal(err)
	}
	full, err := filler.fill(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if n := connections(); n != filler.made || n == 0 || !full && n < mostFill-fillBatch {
		t.Errorf("full: %v, %d entries, of %d made", full, n, filler.made)
	}
	if err := filler.clear(); err != nil {
		t.Fatal(err)
	}
	if n := connections(); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// inVirtualTime makes faults whose time begins at 1000 s. said returns the messages about them.
func inVirtualTime(t *testing.T) (r *Faults, said func() string) {
	t.Helper()
	now := testclock.NewFakeClock(time.Unix(1000, 0))
	out, err := os.Create(filepath.Join(t.TempDir(), "said"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close() })
	return newFaults(&pass.Env{Clock: now, Started: now.Now(), Messages: pass.NewMessageWriter(out)}), func() string {
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
}

// A sync after a change does not detect a fault that a change cannot show, unless it fails.
func TestDetectionUnderChurn(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	for _, test := range []struct {
		name    string
		kind    string
		change  int // when, in seconds after the fault; 0: never
		pending bool
		answer  answer // the first one
		want    int
	}{
		{name: "no change", kind: scenarios.FaultFlush, want: 1},
		{name: "change", kind: scenarios.FaultFlush, change: 1},
		{name: "change during the sync", kind: scenarios.FaultFlush, change: 3, want: 1},
		{name: "earlier change", kind: scenarios.FaultFlush, pending: true},
		{name: "failed sync", kind: scenarios.FaultFlush, change: 1, answer: answer{failed: true}, want: 1},
		{name: "chain there already", kind: scenarios.FaultFlush, change: 1, answer: answer{failed: true, single: true}},
		{name: "other fault", kind: scenarios.FaultFlush, change: 1, answer: answer{failed: true, planted: "other"}},
		{name: "new process", kind: scenarios.FaultKilled, change: 1, want: 1},
		{name: "watch", kind: scenarios.FaultWatchDropped, want: 1},
		{name: "watch and change", kind: scenarios.FaultWatchDropped, change: 1},
	} {
		r, said := inVirtualTime(t)
		d := newFault(&scenarios.Fault{Kind: test.kind}, "1:fault")
		r.start(d)
		d.pending = test.pending
		if test.change > 0 {
			r.touch(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "ns"}}, at(test.change))
		}
		first := test.answer
		first.began, first.ended, first.sync, first.writes = at(2), at(4), !first.single, true
		r.answered(first)
		r.answered(answer{began: at(5), ended: at(6), sync: true, writes: true})
		if n := strings.Count(said(), string(raw.FaultDetected)); n != test.want {
			t.Errorf("%s: detected %d times, want %d:\n%s", test.name, n, test.want, said())
		}
	}
}

// A fault is detected by the first answer that began after it. Its repair counts from the arrival of all changes.
func TestFaultIsReportedOnce(t *testing.T) {
	r, said := inVirtualTime(t)
	d := newFault(&scenarios.Fault{Kind: scenarios.FaultRestoreFails, Times: 2}, "3:fault")
	r.start(d)
	at := func(s int) time.Time { return time.Unix(1000+int64(s), 0) }
	r.answered(answer{began: at(-1), ended: at(1), planted: "fail", failed: true}) // before the fault
	r.answered(answer{began: at(1), ended: at(2), writes: true})                   // not affected
	r.answered(answer{began: at(2), ended: at(3), planted: "fail", failed: true})
	r.answered(answer{began: at(4), ended: at(5), planted: "fail", failed: true})
	r.answered(answer{began: at(6), ended: at(7), writes: true})
	d.enter(arrived, at(7)) // the changes before it are visible
	r.Settled()
	r.Settled()
	if !d.at[ended].Equal(at(5)) {
		t.Errorf("it ended at %v, want 5 s after it began", d.at[ended].Sub(r.Started))
	}
	text := said()
	for metric, value := range map[raw.Metric]string{raw.FaultDuration: "0", raw.FaultDetected: "3", raw.FaultRepaired: "2"} {
		if n := strings.Count(text, `"metric":"`+string(metric)+`","value":`+value+`,`); n != 1 {
			t.Errorf("%s of %s s is recorded %d times:\n%s", metric, value, n, text)
		}
	}
}

// An element belongs to the Services of its addresses. Once one of them changes, the element may stay away.
func TestOwnersOfAnElement(t *testing.T) {
	name := func(text string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: "ns", Name: text, Labels: map[string]string{discoveryv1.LabelServiceName: text}}
	}
	o := &sim.Objects{
		Services: []*corev1.Service{{ObjectMeta: name("a"), Spec: corev1.ServiceSpec{ClusterIPs: []string{"10.96.0.1"}}}, {ObjectMeta: name("b"), Spec: corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}}},
		Slices:   []*discoveryv1.EndpointSlice{{ObjectMeta: name("c"), Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.160.0.2"}}}}},
	}
	for _, test := range []struct {
		element kernel.NftElement
		want    string
	}{
		{kernel.NftElement{Key: []byte{10, 160, 0, 2, 10, 160, 0, 2}}, "[ns/c]"},
		{kernel.NftElement{Key: []byte{10, 96, 0, 1, 6, 0, 0, 0, 0, 80, 0, 0}, Data: []byte{10, 160, 0, 2, 0, 80, 0, 0}}, "[ns/a ns/c]"},
		{kernel.NftElement{Key: []byte{192, 0, 2, 1}}, "[ns/b]"},
		{kernel.NftElement{Key: []byte{10, 160, 0, 3}}, "[]"},
	} {
		if got := fmt.Sprint(owners(o, test.element)); got != test.want {
			t.Errorf("%x, %x: %s; want %s", test.element.Key, test.element.Data, got, test.want)
		}
	}
	r, _ := inVirtualTime(t)
	r.World = world.WorldOf(o, 1)
	svc := o.Services[0]
	addr := netip.MustParseAddr(svc.Spec.ClusterIPs[0])
	missing := r.unlessChanged(kernel.NftElement{Key: addr.AsSlice()}, func(*liveTable) (string, error) { return "it", nil })
	if text, err := missing(nil); text != "it" || err != nil {
		t.Errorf("unchanged: %q, %v", text, err)
	}
	r.touch(svc, r.Clock.Now())
	if text, err := missing(nil); text != "" || err != nil {
		t.Errorf("changed: %q, %v", text, err)
	}
	for text, want := range map[string]string{"10.96.0.2": "", "203.0.113.7": "it"} { // of a Service that is gone; of no Service
		missing := r.unlessChanged(kernel.NftElement{Key: netip.MustParseAddr(text).AsSlice()}, func(*liveTable) (string, error) { return "it", nil })
		if got, err := missing(nil); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
}
