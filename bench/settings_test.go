package bench

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// Settings of a process need a subject that is a process.
func TestSettingsNeedAProcess(t *testing.T) {
	tuned, _ := subject.Parse("synclab/nftables+tuned")
	if feed := feedFor([]subject.Spec{tuned}, &scenarios.Scenario{}); feed != raw.FeedAPI {
		t.Errorf("feed %s: GOGC needs a separate process", feed)
	}
	o := ExecuteOptions{running: []subject.Spec{tuned}, Feed: raw.FeedInformers}
	if err := o.prepareTools(context.Background(), &raw.Run{}); err == nil || !strings.Contains(err.Error(), "needs a separate process") {
		t.Errorf("with informers: %v", err)
	}
}

// A subject that serves sockets alone is refused where rules or packets from elsewhere count.
func TestCiliumServesSocketsAlone(t *testing.T) {
	for name, step := range map[string]scenarios.Step{
		"verdicts": {Probe: &scenarios.Probe{Kind: "verdicts"}}, "check": {Check: &scenarios.Check{}},
		"migrate": {Migrate: &scenarios.Migrate{To: "synclab/nftables"}},
	} {
		o := ExecuteOptions{Subjects: []string{"cilium/lb"}, Scenario: &scenarios.Scenario{Steps: []scenarios.Step{step}}}
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A followed cluster's remarks come from a separate goroutine.
func TestProgressIsToldOneAtATime(t *testing.T) {
	var inside, most atomic.Int32
	show := oneAtATime(func(Progress) {
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond) // lets other goroutines in, if nothing stops them
		inside.Add(-1)
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { show(Progress{}) })
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

// A memory limit that nothing could enforce is refused.
func TestMemoryIsBoundedOnlyInProcessesOfTheirOwn(t *testing.T) {
	o := ExecuteOptions{Feed: raw.FeedInformers, MaxMemory: 1 << 30}
	if err := o.prepareTools(t.Context(), &raw.Run{}); err == nil {
		t.Error("no error")
	}
}
