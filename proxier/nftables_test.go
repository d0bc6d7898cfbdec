package proxier

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/netns"
	"synclab/proxier/config"
)

// Backend nftables through the engine: the kernel holds what it should, and no sync but the first writes everything.
func TestNftablesBackend(t *testing.T) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		t.Run(string(family), func(t *testing.T) {
			netns.Fresh(t)
			c := newRandomCluster(seed(t), family)
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
				if found, err := e.backend.Drift(t.Context()); err != nil || found != "" {
					t.Fatalf("event %d: %s, %v", n, found, err)
				}
				if e.suspect {
					t.Fatalf("event %d: the proxier's own commits look like somebody else's", n)
				}
			}
			if full != 1 {
				t.Errorf("%d full syncs", full)
			}
		})
	}
}

// The backend has a section of its own in the configuration.
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
