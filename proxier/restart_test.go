package proxier

import (
	"context"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
)

// A proxier that ends leaves nothing open in its process, whichever backend it has.
func TestRestartsKeepNothingOpen(t *testing.T) {
	const restarts = 20
	for _, kind := range backends {
		t.Run(string(kind), func(t *testing.T) {
			netns.Fresh(t)
			cluster := newRandomCluster(seedstest.Of(t), corev1.IPv4Protocol)
			changed := testEngine(t, corev1.IPv4Protocol, iptables.NewModel(corev1.IPv4Protocol), nil)
			for range 60 {
				cluster.step(changed)
			}
			begun := 0
			for n := range restarts + 1 {
				runOnce(t, kind, cluster)
				if n == 0 {
					begun = descriptors(t) // what the first run opens for good is the Go runtime's
				}
			}
			if open := descriptors(t); open > begun {
				t.Errorf("%d open files after %d restarts, %d before", open, restarts, begun)
			}
		})
	}
}

// runOnce runs a proxier until it has written the cluster's rules.
func runOnce(t *testing.T, kind BackendKind, cluster *randomCluster) {
	t.Helper()
	synced := make(chan Sync, 100)
	p, err := New(Options{Config: config.New(), Backend: kind, Variant: iptables.Legacy, OnSync: func(s Sync) { synced <- s }})
	if err != nil {
		t.Skip(err)
	}
	for _, e := range p.engines {
		cluster.tell(e)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for range p.engines {
		if s := <-synced; s.Err != nil {
			t.Error(s.Err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}
