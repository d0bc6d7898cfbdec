package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
)

// faulty is an engine on the kernel's tables whose restores a test can break.
type faulty struct {
	*engine
	t       *testing.T
	variant iptables.Variant
	tables  *tapped
	cluster *randomCluster
	flows   *conntrack.Memory
	prepare func(*exec.Cmd)
	started func(*os.Process)
	last    Sync
}

// tapped records the payloads.
type tapped struct {
	iptables.Tables
	payloads []string
	begun    func() // if set, called before each restore
	restored func() // if set, called after each restore
}

func (t *tapped) Restore(ctx context.Context, p *iptables.Payload) (iptables.Run, error) {
	t.payloads = append(t.payloads, string(p.Text()))
	if t.begun != nil {
		t.begun()
	}
	if t.restored != nil {
		defer t.restored()
	}
	return t.Tables.Restore(ctx, p)
}

// eachVariant runs a test for both variants, through the tools, each in a separate namespace.
func eachVariant(t *testing.T, test func(t *testing.T, f *faulty)) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Fresh(t)
			needsLargeRestores(t, variant)
			test(t, newFaulty(t, variant, newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol)))
		})
	}
}

func newFaulty(t *testing.T, variant iptables.Variant, c *randomCluster) *faulty {
	t.Helper()
	f := &faulty{t: t, variant: variant, cluster: c, flows: &conntrack.Memory{}}
	tables, err := iptables.NewHost(iptables.RestorerOptions{
		Variant: variant, Family: c.family, Wait: time.Second,
		Prepare: func(cmd *exec.Cmd) {
			if f.prepare != nil {
				f.prepare(cmd)
			}
		},
		Started: func(p *os.Process) {
			if f.started != nil {
				f.started(p)
			}
		},
	})
	if err != nil {
		t.Skip(err)
	}
	f.tables = &tapped{Tables: tables}
	f.engine = testEngine(t, c.family, f.tables, func(o *Options) {
		o.Conntrack = func(corev1.IPFamily) (conntrack.Table, error) { return f.flows, nil }
		o.OnSync = func(s Sync) { f.last = s }
		o.Variant = variant
	})
	return f
}

// successor is a proxier that starts over the rules of another one.
func (f *faulty) successor() *faulty {
	next := newFaulty(f.t, f.variant, f.cluster)
	f.cluster.tell(next.engine)
	return next
}

func (f *faulty) events(n int) {
	for range n {
		f.cluster.step(f.engine)
	}
}

func (f *faulty) mustSync() {
	f.t.Helper()
	if err := f.sync(f.t.Context()); err != nil {
		f.t.Fatal(err)
	}
}

func (f *faulty) mustFail() error {
	f.t.Helper()
	err := f.sync(f.t.Context())
	if err == nil || !errors.Is(f.last.Err, err) {
		f.t.Fatalf("sync = %v, reported as %v; want a failure", err, f.last.Err)
	}
	if len(f.last.Refused) > 0 {
		f.t.Fatalf("a restore that did not run refused %v", f.last.Refused)
	}
	return err
}

// converged checks that the kernel has the rules that a fresh start would write, and that the proxier finds no drift.
func (f *faulty) converged() {
	f.t.Helper()
	compareWithKernel(f.t, f.variant, f.cluster)
	f.quiet()
}

// quiet checks that a thorough check finds no drift.
func (f *faulty) quiet() {
	f.t.Helper()
	if f.drifts() != "" {
		found, err := f.backend.Drift()(f.t.Context())
		f.t.Fatalf("drift without an external write: %q, %v", found, err)
	}
}

// drifts makes a thorough check and returns the reason of the full sync that it requests; empty: none.
func (f *faulty) drifts() string {
	f.t.Helper()
	if f.backend.Dirty() {
		f.t.Fatal("a drift check would be skipped: the last sync left work undone")
	}
	f.suspect = true
	f.checkDrift(f.t.Context())
	return f.full
}

// tool runs the variant's iptables as another process would.
func (f *faulty) tool(args ...string) {
	f.t.Helper()
	path, err := iptables.FindBinary(iptables.Binary(f.variant, f.cluster.family, ""))
	if err != nil {
		f.t.Skip(err)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		f.t.Fatalf("iptables %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// filtered runs the tool behind a shell that changes its input; $0 is the tool.
func filtered(script string) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.Args = append([]string{"sh", "-c", script, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
	}
}

// udpService adds a Service with one port and one endpoint at addr:port. due is the trigger time.
func (f *faulty) udpService(i int, addr string, port int32, due time.Time) (clusterIP string) {
	name := fmt.Sprintf("made-%d", i)
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: fmt.Sprintf("10.96.1.%d", i),
			Ports: []corev1.ServicePort{{Name: "dns", Protocol: corev1.ProtocolUDP, Port: 53}},
		},
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: due.Format(time.RFC3339Nano)},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: ptr.To("dns"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To(port)}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{addr}}},
	}
	f.cluster.services[100+i] = svc
	f.cluster.slices[[2]int{100 + i, 0}] = slice
	f.tracker.SetService(svc, f.clock.Now())
	f.tracker.SetSlice(slice, f.clock.Now())
	return svc.Spec.ClusterIP
}

func (f *faulty) remove(i int) {
	f.tracker.DeleteService(f.cluster.services[100+i], f.clock.Now())
	f.tracker.DeleteSlice(f.cluster.slices[[2]int{100 + i, 0}], f.clock.Now())
	delete(f.cluster.services, 100+i)
	delete(f.cluster.slices, [2]int{100 + i, 0})
}

// brokenRestores are failures of a restore that are no refusals.
var brokenRestores = map[string]func(*faulty){
	"killed at once": func(f *faulty) { f.started = func(p *os.Process) { _ = p.Kill() } },
	"killed between two tables": func(f *faulty) {
		f.prepare = filtered(`sed /^COMMIT/q | "$0" "$@"; kill -9 $$`)
	},
	"killed after its work": func(f *faulty) { f.prepare = filtered(`"$0" "$@"; kill -9 $$`) },
	"failing":               func(f *faulty) { f.prepare = func(cmd *exec.Cmd) { cmd.Path = "/bin/false" } },
}

// An interrupted restore costs only time, at a full or a partial sync, once or more often. The sync that succeeds
// installs the changes, reports their trigger times and cleans their flows.
func TestBrokenRestore(t *testing.T) {
	for name, broken := range brokenRestores {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			eachVariant(t, func(t *testing.T, f *faulty) {
				var due []time.Time
				changes := 0
				change := func() (clusterIP netip.Addr) {
					f.events(30)
					changes++
					due = append(due, f.clock.Now().Add(time.Duration(changes)*time.Millisecond))
					return netip.MustParseAddr(f.udpService(1, fmt.Sprintf("10.128.1.%d", changes), 5353, due[len(due)-1]))
				}
				for _, kind := range []Kind{Full, Partial} {
					f.flows.Add(conntrack.Flow{ // to an endpoint that is gone
						Src: netip.MustParseAddrPort("10.128.9.9:4000"), Dst: netip.AddrPortFrom(change(), 53),
						ReplySrc: netip.MustParseAddrPort("10.128.1.99:5353"), ReplyDst: netip.MustParseAddrPort("10.128.9.9:4000"),
					})
					broken(f)
					for range 2 {
						f.mustFail()
						change() // further changes arrive
					}
					if len(f.flows.Flows()) != 1 {
						t.Errorf("%s: flows were cleaned before the rules were in the kernel", kind)
					}
					f.prepare, f.started = nil, nil
					f.mustSync()
					if f.last.Kind != kind {
						t.Errorf("the sync that succeeded was %s (%s), want %s", f.last.Kind, f.last.Reason, kind)
					}
					if !slices.EqualFunc(f.last.TriggerTimes, due, time.Time.Equal) {
						t.Errorf("%s: trigger times %v, want %v", kind, f.last.TriggerTimes, due)
					}
					due = nil
					if len(f.flows.Flows()) != 0 {
						t.Errorf("%s: a stale flow stays", kind)
					}
					f.converged()
				}
			})
		})
	}
}

// holdLock takes the xtables lock, like a slow iptables of another process.
func holdLock(t *testing.T) (release func()) {
	t.Helper()
	lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { lock.Close() })
	return func() { lock.Close() }
}

// While another process holds the lock, syncs fail with that cause, and a drift check does not take the lock for drift.
// The nft variant takes no lock.
func TestLockHeld(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.events(40)
		f.mustSync()
		release := holdLock(t)
		if reason := f.drifts(); reason != "" {
			t.Errorf("the held lock was taken for %s", reason)
		}
		f.udpService(1, "10.128.1.1", 5353, time.Time{})
		if f.variant == iptables.Nft {
			f.mustSync()
			f.converged()
			return
		}
		err := f.mustFail()
		var failed *iptables.RestoreError
		if !errors.As(err, &failed) || failed.ExitCode != 4 || failed.Refused() || !strings.Contains(err.Error(), "xtables lock") {
			t.Errorf("sync = %v; want the lock's failure", err)
		}
		f.suspect = true
		if f.checkDrift(f.t.Context()); f.full != "" {
			t.Errorf("the held lock was taken for %s", f.full)
		}
		release()
		f.mustSync()
		f.converged()
	})
}

// A running tool finishes when the proxier ends. Killed after it exchanged a table and before it restored the counters,
// it would leave the counters of foreign rules at zero.
func TestEndLetsToolFinish(t *testing.T) {
	eachVariant(t, func(t *testing.T, f *faulty) {
		f.events(20)
		f.mustSync()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		calls := 0
		f.prepare = filtered(`sleep 0.05; "$0" "$@"`) // its work begins after ctx has ended
		f.started = func(*os.Process) { calls++; cancel() }
		f.udpService(1, "10.128.1.1", 5353, time.Time{})
		_ = f.sync(ctx) // it may fail, with more work left
		if calls != 1 {
			t.Errorf("%d tools were started, want one", calls)
		}
		if now := kernelSaved(t, f.variant, f.cluster.family); !strings.Contains(now, "10.128.1.1:5353") {
			t.Error("the tool was killed")
		}
	})
}
