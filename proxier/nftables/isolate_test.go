package nftables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// Shortages of the machine are no Service port's fault.
func TestSuspicious(t *testing.T) {
	for errno, want := range map[unix.Errno]bool{
		unix.EINVAL: true, unix.EEXIST: true, unix.ERANGE: true, unix.EOPNOTSUPP: true,
		unix.EMLINK: false, unix.ENOSPC: false, unix.ENFILE: false, unix.EMFILE: false, unix.ENOMEM: false, unix.ENOBUFS: false, unix.EPERM: false,
	} {
		if got := suspicious(fmt.Errorf("sync: %w", &RefusedError{Errno: errno})); got != want {
			t.Errorf("%v is suspicious: %t", errno, got)
		}
	}
	b := onKernel(t, plainSettings)
	loads := 0
	b.fault = func(batch []byte) error {
		loads++
		return &RefusedError{Message: "new elements of set", Errno: unix.ENOSPC}
	}
	_, err := b.Sync(context.Background(), backend.Request{Ports: []*plan.ServicePort{clusterPort(1, 2)}})
	if !errors.Is(err, unix.ENOSPC) || loads > 2 || len(b.refusals) > 0 {
		t.Errorf("%v after %d transactions, refused: %v", err, loads, b.refusals)
	}
}

// counted counts the created tables and the largest batch of their transactions. It refuses batches that contain bad.
type counted struct {
	t               *testing.T
	bad             []byte
	tables, longest int
}

func (c *counted) fault(batch []byte) error {
	messages(c.t, batch, func(kind, _ uint16, _ [][]byte) {
		if kind == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE {
			c.tables++
		}
	})
	if c.longest = max(c.longest, len(batch)); bytes.Contains(batch, c.bad) {
		return &RefusedError{Message: "new elements of set", Errno: unix.EINVAL}
	}
	return nil
}

// After a refused partial sync, the search begins with the changed Service ports, and the whole plan is written once.
// When a refused Service port changes again, it is tried in a separate table.
func TestRefusedPartial(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range 300 {
		ports = append(ports, clusterPort(i, 10))
	}
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, ports)
	at := endpoint(100_000_000)
	c := &counted{t: t, bad: appendTarget(nil, at.Addr)}
	b.fault = c.fault
	change := func(i, round int) *plan.ServicePort {
		changed := oneChanged(ports[i], round)
		ports[i] = changed
		b.Update(plan.Delta{Changed: []*plan.ServicePort{changed}})
		return changed
	}
	change(12, 5)
	bad := change(13, 0) // with that endpoint
	result := mustSync(t, b, false, ports)
	if !result.Full || len(result.Refused) != 1 || result.Refused[bad.Name] == nil {
		t.Fatalf("full: %t, refused: %v", result.Full, result.Refused)
	}
	// Without any, both, the first one, the other one, and then all the others.
	if c.tables > 5 {
		t.Errorf("%d tables made", c.tables)
	}
	noDrift(t, b)

	c.tables, c.longest = 0, 0
	other := oneChanged(bad, 1)
	other.Cluster[0] = at // still
	ports[13] = other
	b.Update(plan.Delta{Changed: []*plan.ServicePort{other}})
	change(14, 7)
	result = mustSync(t, b, false, ports)
	if result.Full || len(result.Refused) != 1 || result.Refused[bad.Name] == nil {
		t.Fatalf("full: %t, refused: %v", result.Full, result.Refused)
	}
	if c.tables > 3 || c.longest > 200<<10 {
		t.Errorf("%d tables made, of up to %d bytes", c.tables, c.longest)
	}
	noDrift(t, b)

	c.tables = 0
	if result = mustSync(t, b, true, ports); len(result.Refused) != 1 || c.tables > 4 {
		t.Errorf("%d tables made by a full sync, refused: %v", c.tables, result.Refused)
	}
	noDrift(t, b)

	good := clusterPort(13, 10)
	ports[13] = good
	b.Update(plan.Delta{Changed: []*plan.ServicePort{good}})
	if result = mustSync(t, b, false, ports); result.Full || len(result.Refused) > 0 {
		t.Errorf("full: %t, refused: %v", result.Full, result.Refused)
	}
	r := &Reader{b.kernel}
	for _, i := range []int{12, 13, 14} {
		ways, err := r.Frontend(corev1.IPv4Protocol, corev1.ProtocolTCP, addrPort(ports[i]))
		if err != nil || len(ways) != 1 || len(ways[0].All) != 10 {
			t.Errorf("%s: %v, %v", ports[i].Name, ways, err)
		}
	}
	noDrift(t, b)
}

// Of two Service ports with one ID, the second is refused and changes nothing of the first one.
func TestSameID(t *testing.T) {
	p, q := clusterPort(1, 3), clusterPort(2, 4)
	r, m := loaded(t, plainSettings, []*plan.ServicePort{p})
	before := m.Clone()
	r.ids[idOf(q.Name)] = r.entries[p.Name] // as if
	r.Update(plan.Delta{Changed: []*plan.ServicePort{q}})
	if err := r.Partial(m); err != nil || r.refused[q.Name] == nil {
		t.Errorf("%v, refused: %v", err, r.refused)
	}
	if !reflect.DeepEqual(before.Sets, m.Sets) {
		t.Error("something was written")
	}
}

// A sync that has to end while it loads a table leaves no part of the table.
func TestEndedWhileLoading(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range 300 {
		ports = append(ports, clusterPort(i, 10))
	}
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, ports[:1])
	b.socket.limit = 64 << 10
	ctx, cancel := context.WithCancel(context.Background())
	batches := 0
	b.fault = func([]byte) error {
		if batches++; batches == 3 {
			cancel()
		}
		return nil
	}
	if _, err := b.Sync(ctx, backend.Request{Full: true, Ports: ports}); !errors.Is(err, context.Canceled) || batches < 3 {
		t.Fatalf("%v after %d transactions", err, batches)
	}
	noDrift(t, b) // which a second table would be
}

// A refusal is reported although the answers after it were lost.
func TestLostAnswers(t *testing.T) {
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, nil)
	if err := unix.SetsockoptInt(b.socket.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil { // the smallest size there is
		t.Fatal(err)
	}
	e := newEncoder(corev1.IPv4Protocol, b.encoder.table, b.socket.send)
	for i := range 500 {
		e.deleteChain(fmt.Sprintf("none-%d", i))
	}
	var refused *RefusedError
	if err := e.commit(); !errors.As(err, &refused) || refused.Errno != unix.ENOENT {
		t.Errorf("%v, not a refusal", err)
	}
	e.reset(b.socket.send)
	e.createChain("some", nil)
	if err := e.commit(); err != nil {
		t.Errorf("after that: %v", err)
	}
}

// A table is loaded however little buffer space there is.
func TestLeastRoom(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range 100 {
		p := clusterPort(i, 20)
		p.AffinitySeconds = 100
		ports = append(ports, p)
	}
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, nil)
	b.socket.limit = 8 << 10
	if result := mustSync(t, b, true, ports); len(result.Runs) < 20 {
		t.Errorf("%d transactions", len(result.Runs))
	}
	noDrift(t, b)
}

// A backend reads the namespace that it writes, whichever namespace its caller's thread is in.
func TestOwnNamespace(t *testing.T) {
	b := onKernel(t, plainSettings)
	mustSync(t, b, true, []*plan.ServicePort{clusterPort(1, 3)})
	netns.Fresh(t)
	noDrift(t, b)
	if _, err := b.Fingerprint(); err != nil {
		t.Error(err)
	}
	mustSync(t, b, true, []*plan.ServicePort{clusterPort(1, 4)})
	noDrift(t, b)
}

// Any number of refused Service ports is found, with a number of trial tables that depends on theirs. If there are no
// rules yet, the others get theirs meanwhile. The next sync finds the same ones, and a partial sync continues.
func TestManyRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, x := range []struct{ refused, of int }{{17, 3000}, {40, 3000}, {500, 2500}} {
		t.Run(fmt.Sprintf("%d of %d", x.refused, x.of), func(t *testing.T) {
			var ports []*plan.ServicePort
			bad := map[tracker.ServicePortName]bool{}
			marked := endpoint(100_000_000)
			rng := rand.New(rand.NewPCG(1, uint64(x.refused)))
			chosen := rng.Perm(x.of)[:x.refused]
			for i := range x.of {
				p := clusterPort(i, 2)
				if slices.Contains(chosen, i) {
					p.Cluster = []*tracker.Endpoint{marked}
					bad[p.Name] = true
				}
				ports = append(ports, p)
			}
			b := onKernel(t, plainSettings)
			b.opts.Log = func(string, ...any) {}
			c := &counted{t: t, bad: appendTarget(nil, marked.Addr)}
			meanwhile, installed := 0, 0 // tables that packets met before the last one, and Services in the first of them
			b.fault = func(batch []byte) error {
				if b.rules != nil && meanwhile == 0 {
					meanwhile, installed = 1, len(b.rules.entries)
				}
				return c.fault(batch)
			}
			result := mustSync(t, b, true, ports)
			check := func(what string, result backend.Result, most int) {
				t.Helper()
				if len(result.Refused) != x.refused || c.tables > most {
					t.Errorf("%s: %d refused, %d tables made, of at most %d", what, len(result.Refused), c.tables, most)
				}
				for name := range result.Refused {
					if !bad[name] {
						t.Errorf("%s: %s is refused", what, name)
					}
				}
				if len(b.rules.entries) != x.of-x.refused {
					t.Errorf("%s: %d Service ports are installed", what, len(b.rules.entries))
				}
				noDrift(t, b)
			}
			k := float64(x.refused)
			bound := int(2*k*(math.Log2(float64(x.of)/k)+2)) + 20
			check("first sync", result, bound)
			t.Logf("%d tables, bound %d, %d Service ports meanwhile", c.tables, bound, installed)
			if meanwhile == 0 || installed < 50 {
				t.Errorf("%d Service ports get rules meanwhile", installed)
			}
			c.tables = 0
			check("again", mustSync(t, b, true, ports), 2*x.refused+20)

			c.tables = 0
			ports[chosen[0]] = clusterPort(chosen[0], 2)
			delete(bad, ports[chosen[0]].Name)
			x.refused--
			b.Update(plan.Delta{Changed: []*plan.ServicePort{ports[chosen[0]]}})
			check("partial", mustSync(t, b, false, ports), 1)
		})
	}
}

// Service ports that are refused only together with others are found, too.
func TestRefusedTogether(t *testing.T) {
	var ports []*plan.ServicePort
	for i := range 200 {
		ports = append(ports, clusterPort(i, 1))
	}
	b := onKernel(t, plainSettings)
	pairs := [][2]int{{3, 150}, {20, 21}, {60, 199}}
	b.fault = func(batch []byte) error {
		has := func(i int) bool { return bytes.Contains(batch, appendTarget(nil, ports[i].Cluster[0].Addr)) }
		for _, p := range pairs {
			if has(p[0]) && has(p[1]) {
				return &RefusedError{Message: "new elements of set", Errno: unix.EINVAL}
			}
		}
		return nil
	}
	if result := mustSync(t, b, true, ports); len(result.Refused) != len(pairs) {
		t.Errorf("refused: %v", result.Refused)
	}
	noDrift(t, b)
}
