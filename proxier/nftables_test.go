package proxier

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/proxier/nftables"
)

// Backend nftables in the engine: the kernel has the desired rules, and only the first sync writes everything.
func TestNftablesBackend(t *testing.T) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		t.Run(string(family), func(t *testing.T) {
			netns.Fresh(t)
			c := newRandomCluster(seedstest.Of(t), family)
			full := 0
			e := testEngine(t, family, nil, func(o *Options) {
				o.Backend = Nftables
				o.OnSync = func(s Sync) {
					if s.Kind == Full {
						full++
					}
				}
			})
			for n := range 300 {
				c.step(e)
				if n%5 != 4 {
					continue
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatalf("event %d: %v", n, err)
				}
				if found, err := e.backend.Drift()(t.Context()); err != nil || found != "" {
					t.Fatalf("event %d: %s, %v", n, found, err)
				}
				if e.suspect {
					t.Fatalf("event %d: the proxier's commits were taken for external writes", n)
				}
			}
			if full != 1 {
				t.Errorf("%d full syncs", full)
			}
		})
	}
}

// The configuration has a separate section for the backend.
func TestNftablesSection(t *testing.T) {
	cfg := config.New()
	cfg.IPTables.MasqueradeBit, cfg.NFTables.MasqueradeBit = ptr.To[int32](1), ptr.To[int32](2)
	cfg.NFTables.MasqueradeAll, cfg.NFTables.SyncPeriod.Duration = true, 7*time.Second
	cfg.NFTables.MinSyncPeriod.Duration = 3 * time.Second
	p, err := New(Options{Config: cfg, Backend: Nftables})
	if err != nil {
		t.Fatal(err)
	}
	s := p.engines[0].backend.Settings()
	if s.MasqueradeBit != 2 || !s.MasqueradeAll || p.opts.RetryInterval != 7*time.Second {
		t.Errorf("%+v, retry after %s", s, p.opts.RetryInterval)
	}
	if *cfg.IPTables.MasqueradeBit != 1 {
		t.Error("the caller's configuration was changed")
	}
}

// The next check finds an external write to a chain that packets reach by a jump. No earlier sync finds it, whatever
// else was committed meanwhile.
func TestNftablesChainIsFlushed(t *testing.T) {
	path, err := exec.LookPath("nft")
	if err != nil {
		t.Skip("no nft command for external writes")
	}
	netns.Fresh(t)
	c := newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol)
	e := testEngine(t, corev1.IPv4Protocol, nil, func(o *Options) { o.Backend = Nftables })
	sync := func() {
		t.Helper()
		for range 20 {
			c.step(e)
		}
		if err := e.sync(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	sync()
	run := func(args ...string) {
		t.Helper()
		if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
			t.Fatalf("nft %s: %v: %s", strings.Join(args, " "), err, out)
		}
	}
	reader, err := nftables.OpenReader()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for _, again := range []bool{false, true} {
		run("add", "table", "ip", "other-program")
		e.checkDrift(t.Context())
		if e.full != "" || e.suspect {
			t.Fatalf("a foreign table caused the request of a full sync for %q, suspect: %v", e.full, e.suspect)
		}
		table, err := reader.Table(corev1.IPv4Protocol) // each full sync makes a new table
		if err != nil {
			t.Fatal(err)
		}
		run("flush", "chain", "ip", table, "nat-prerouting")
		if again {
			sync()
		}
		if e.checkDrift(t.Context()); e.full != "drift" {
			t.Fatalf("requested a full sync for %q, want drift (after a sync: %v)", e.full, again)
		}
		sync()
		run("delete", "table", "ip", "other-program")
		if e.checkDrift(t.Context()); e.full != "" {
			t.Fatalf("requested a full sync for %q after the repair", e.full)
		}
	}
}
