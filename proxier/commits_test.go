package proxier

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
)

// A commit of one family's proxier leaves the other family's fingerprint unchanged. A commit of another process changes
// both.
func TestFingerprintOfOwnCommits(t *testing.T) {
	netns.Fresh(t)
	needsLargeRestores(t, iptables.Nft)
	for _, batch := range []int{0, 20} {
		p, err := New(Options{Variant: iptables.Nft, Layout: iptables.Tree, Families: families, Batch: batch, Machine: Machine{BPF: true}})
		if err != nil {
			t.Skip(err)
		}
		var clusters []*randomCluster
		for _, family := range families {
			clusters = append(clusters, newTreeCluster(seedstest.Of(t), family))
		}
		var want []iptables.Fingerprint
		sync := func(n int) {
			t.Helper()
			for range 40 {
				clusters[n].step(p.engines[n])
			}
			p.engines[n].opts.OnSync = func(s Sync) {
				for _, r := range s.Runs {
					if r.ExitCode != 0 {
						t.Errorf("a %s sync of %s was refused", s.Kind, s.Family)
					}
				}
			}
			if err := p.engines[n].sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		differs := func(when string, differ bool) {
			t.Helper()
			for n, e := range p.engines {
				fingerprint, err := e.backend.Fingerprint()
				if err != nil {
					t.Fatal(err)
				}
				if len(want) < len(p.engines) {
					want = append(want, fingerprint)
				}
				if (fingerprint != want[n]) != differ {
					t.Errorf("%s: the fingerprint of %s was %v and is %v", when, e.family, want[n], fingerprint)
				}
			}
		}
		for n := range p.engines {
			sync(n)
		}
		differs("at the beginning", false)
		for range 5 {
			for n, e := range p.engines {
				sync(n)
				differs("after a sync of "+string(e.family), false)
			}
		}
		for n, e := range p.engines {
			e.demandFull("test")
			sync(n)
		}
		differs("after full syncs", false)
		f := &faulty{t: t, variant: iptables.Nft, cluster: newRandomCluster(1, corev1.IPv4Protocol)}
		f.tool("-t", "nat", "-N", "OTHERS")
		differs("after another process's commit", true)
		f.tool("-t", "nat", "-X", "OTHERS")
	}
}
