package nftables

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/lab/netns"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
)

// onKernel returns a backend in a separate namespace.
func onKernel(t testing.TB, settings backend.Settings) *Backend {
	t.Helper()
	netns.Fresh(t)
	return another(t, settings)
}

// another returns a backend in the same namespace.
func another(t testing.TB, settings backend.Settings) *Backend {
	t.Helper()
	b, err := New(Options{Family: settings.Family, Options: backend.Options{
		Settings: func() (backend.Settings, error) { return settings, nil }, Clock: clock.RealClock{},
		Log: func(message string, kv ...any) { t.Log(append([]any{message}, kv...)...) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func mustSync(t testing.TB, b *Backend, full bool, ports []*plan.ServicePort) backend.Result {
	t.Helper()
	result, err := b.Sync(context.Background(), backend.Request{Full: full, Ports: ports})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

func noDrift(t testing.TB, b *Backend) {
	t.Helper()
	if found, err := b.Drift()(context.Background()); err != nil || found != "" {
		t.Fatalf("drift: %s, %v", found, err)
	}
}

// sameAsModel compares all elements in the kernel with those of a model.
func sameAsModel(t *testing.T, b *Backend, m *Model) {
	t.Helper()
	for s := range sets {
		have, err := b.kernel.Elements(b.opts.Family, b.encoder.table, s.String())
		if err != nil {
			t.Fatal(err)
		}
		want := m.Sets[s.String()].Elements
		if len(have) != len(want) {
			t.Fatalf("set %s has %d elements, not %d", s, len(have), len(want))
		}
		for _, e := range have {
			w, there := want[string(e.Key)]
			if !there || !bytes.Equal(e.Data, w.Value) || e.Jump != w.Verdict.Chain {
				t.Fatalf("set %s, element %x: %x %s, not %x %s", s, e.Key, e.Data, e.Jump, w.Value, w.Verdict.Chain)
			}
		}
	}
	for name, c := range m.Chains {
		rules, err := b.kernel.Rules(b.opts.Family, b.encoder.table, name)
		if err != nil || len(rules) != len(c.Rules) {
			t.Fatalf("chain %s has %d rules, not %d, %v", name, len(rules), len(c.Rules), err)
		}
	}
}

// The kernel's table equals the model's after random events.
func TestKernelIsModel(t *testing.T) {
	seeds(t, 4, func(t *testing.T, c *cluster) {
		settings := c.settings()
		b := onKernel(t, settings)
		mustSync(t, b, true, nil)
		r, m := loaded(t, settings, nil)
		b.rules.idle.bound(1)
		r.idle.bound(1)
		retired := 0
		for round := range 40 {
			for range 1 + c.rng.IntN(5) {
				c.step()
			}
			delta := c.take()
			b.Update(delta)
			r.Update(delta)
			before := len(b.rules.idle.late)
			result := mustSync(t, b, false, c.plan.Ports())
			if result.Full {
				t.Fatalf("a full sync: %s", result.Reason)
			}
			if len(b.rules.idle.late) < before {
				retired++
			}
			if len(delta.Changed)+len(delta.Removed) > 0 {
				if err := r.Partial(m); err != nil {
					t.Fatal(err)
				}
			}
			if round%5 == 0 {
				sameAsModel(t, b, m)
			}
			noDrift(t, b)
		}
		if retired == 0 {
			t.Error("no sync deleted more chains than it created")
		}
		before, err := b.Fingerprint()
		if err != nil {
			t.Fatal(err)
		}
		mustSync(t, b, true, c.plan.Ports())
		noDrift(t, b)
		if after, err := b.Fingerprint(); err != nil || after == before {
			t.Errorf("the fingerprint of another table is the same: %v, %v", after, err)
		}
	})
}

func nft(t *testing.T, args ...string) {
	t.Helper()
	path, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("no nft command for external writes")
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Every external write to the table shows as drift. A partial sync that fails because of it becomes a full sync.
func TestMeddling(t *testing.T) {
	port := clusterPort(1, 3)
	changed := clusterPort(1, 3)
	changed.Cluster = append(changed.Cluster[:2:2], endpoint(77))
	for _, externalWrite := range []struct {
		what     string
		args     []string
		stumbles bool
	}{
		{"flush", []string{"flush", "ruleset"}, true},
		{"delete table", []string{"delete", "table", "ip", "synclab"}, true},
		{"flush chain", []string{"flush", "chain", "ip", "synclab", "nat-prerouting"}, false},
		{"delete chain", []string{"delete", "chain", "ip", "synclab", "filter-input"}, false},
		{"flush map", []string{"flush", "map", "ip", "synclab", "endpoints"}, true},
		{"add element", []string{"add", "element", "ip", "synclab", "health-checks", "{ 7 }"}, false},
	} {
		t.Run(externalWrite.what, func(t *testing.T) {
			b := onKernel(t, plainSettings)
			mustSync(t, b, true, []*plan.ServicePort{port})
			noDrift(t, b)
			before, err := b.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			nft(t, externalWrite.args...)
			if after, err := b.Fingerprint(); err == nil && after == before {
				t.Error("the fingerprint is the same")
			}
			first, err := b.Fingerprint()
			if err != nil {
				t.Fatal(err)
			}
			if second, err := b.Fingerprint(); err != nil || second == first {
				t.Errorf("a fingerprint taken after the external write stays: %v", err)
			}
			if found, err := b.Drift()(context.Background()); err != nil || found == "" {
				t.Errorf("no drift found, %v", err)
			}
			b.Update(plan.Delta{Changed: []*plan.ServicePort{changed}})
			result := mustSync(t, b, false, []*plan.ServicePort{changed})
			if result.Full != externalWrite.stumbles {
				t.Errorf("full: %v, %s", result.Full, result.Reason)
			}
			mustSync(t, b, true, []*plan.ServicePort{changed})
			noDrift(t, b)
			if first, err = b.Fingerprint(); err != nil {
				t.Fatal(err)
			}
			if second, err := b.Fingerprint(); err != nil || second != first {
				t.Errorf("the fingerprint of a repaired table changes: %v", err)
			}
		})
	}
}

// A process that ends at any point of a full sync leaves the old table or the new one at work. The next process
// continues.
func TestEndsInFullSync(t *testing.T) {
	ports := []*plan.ServicePort{clusterPort(1, 3), clusterPort(2, 4)}
	for stop := 0; ; stop++ {
		b := onKernel(t, plainSettings)
		mustSync(t, b, true, ports[:1])
		ended := false
		b.fault = func([]byte) error {
			if stop--; stop < 0 {
				ended = true
				return errors.New("gone")
			}
			return nil
		}
		at := stop
		_, err := b.Sync(context.Background(), backend.Request{Full: true, Ports: ports})
		if (err != nil) != ended {
			t.Fatalf("after %d transactions: %v", at, err)
		}
		failed := (*TransactionError)(nil)
		_, both, _ := b.kernel.Table(corev1.IPv4Protocol, tableNames[0])
		if active, _ := (&Reader{b.kernel}).Table(corev1.IPv4Protocol); ended && (!errors.As(err, &failed) || failed.Cleanup != (both && active == tableNames[1])) {
			t.Errorf("after %d transactions: %v (%+v)", at, err, failed)
		}
		r := &Reader{b.kernel}
		ways, err := r.Frontend(corev1.IPv4Protocol, corev1.ProtocolTCP, addrPort(ports[0]))
		if err != nil || len(ways) != 1 || len(ways[0].All) != 3 {
			t.Fatalf("after %d transactions: %v, %v", at, ways, err)
		}
		next := another(t, plainSettings)
		mustSync(t, next, true, ports)
		noDrift(t, next)
		if stop = at; !ended {
			break
		}
	}
}

// A sync that the machine makes fail returns an error, and the next one writes everything.
func TestFailures(t *testing.T) {
	port, changed := clusterPort(1, 3), clusterPort(1, 2)
	for _, errno := range []unix.Errno{unix.ENOBUFS, unix.ENOMEM, unix.EMSGSIZE, unix.EPERM} {
		b := onKernel(t, plainSettings)
		mustSync(t, b, true, []*plan.ServicePort{port})
		b.fault = func([]byte) error { return errno }
		b.Update(plan.Delta{Changed: []*plan.ServicePort{changed}})
		if _, err := b.Sync(context.Background(), backend.Request{Ports: []*plan.ServicePort{changed}}); !errors.Is(err, errno) {
			t.Fatalf("%v, not %v", err, errno)
		}
		if !b.Dirty() || b.NeedsFull(0) == "" {
			t.Error("the backend has nothing to write")
		}
		b.fault = nil
		if result := mustSync(t, b, false, []*plan.ServicePort{changed}); !result.Full {
			t.Error("not full")
		}
		noDrift(t, b)
	}
}

// Lost answers to a batch (a full receive buffer) are no success.
func TestUnanswered(t *testing.T) {
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, nil)
	if err := b.socket.answer(nil, 1, 2); !errors.Is(err, errUnanswered) {
		t.Errorf("%v, not %v", err, errUnanswered)
	}
}

// A Service port that the kernel refuses is left out, and all others are installed.
func TestRefused(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range 20 {
		ports = append(ports, clusterPort(i, 2))
	}
	b := onKernel(t, plainSettings)
	bad := append64(nil, uint64(idOf(ports[13].Name)))
	b.fault = func(batch []byte) error {
		if bytes.Contains(batch, bad) {
			return &RefusedError{Message: "new elements of set", Errno: unix.EINVAL}
		}
		return nil
	}
	result := mustSync(t, b, true, ports)
	if len(result.Refused) != 1 || result.Refused[ports[13].Name] == nil {
		t.Fatalf("refused: %v", result.Refused)
	}
	noDrift(t, b)
	r := &Reader{b.kernel}
	for i, p := range ports {
		ways, err := r.Frontend(corev1.IPv4Protocol, corev1.ProtocolTCP, addrPort(p))
		if err != nil || len(ways) != 1 && i != 13 {
			t.Errorf("%s: %v, %v", p.Name, ways, err)
		}
	}
}

// Ordinary users have little buffer space. A transaction that is too long for it becomes a full sync in small ones.
func TestLittleRoom(t *testing.T) {
	b := onKernel(t, plainSettings)
	var ports []*plan.ServicePort
	for i := range 300 {
		ports = append(ports, clusterPort(i, 20))
	}
	mustSync(t, b, true, nil)
	b.socket.limit = 200 << 10
	longest := 0
	b.fault = func(batch []byte) error { longest = max(longest, len(batch)); return nil }
	b.Update(plan.Delta{Changed: ports})
	result := mustSync(t, b, false, ports)
	if !result.Full || len(result.Runs) < 4 {
		t.Errorf("full: %v, %d transactions", result.Full, len(result.Runs))
	}
	b.fault = nil
	noDrift(t, b)
}

// The kernel's answer may be any bytes.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte{36, 0, 0, 0, 2, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 254, 255, 255, 255}, []byte{20, 0, 0, 0, 12, 10, 1, 0, 1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, answer, batch []byte) {
		if len(answer) < headerSize {
			return
		}
		seq := uint32(0)
		if len(batch) >= headerSize {
			seq = binary.NativeEndian.Uint32(batch[8:])
		}
		if describe(batch, seq, unix.EINVAL, answer) == nil {
			t.Error("no error")
		}
	})
}
