package bench

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"synclab/scenarios"
)

// The CPU time of changes is theirs, not that of a fault or a probe in front of them.
func TestWorkIsThatOfTheChanges(t *testing.T) {
	fault, churn := scenarios.Step{Fault: &scenarios.Fault{}}, scenarios.Step{Churn: &scenarios.Churn{}}
	settle := scenarios.Step{Settle: &scenarios.Settle{}}
	for name, c := range map[string]struct {
		steps []*scenarios.Step
		want  []string // the work's step during each
	}{
		"changes":               {[]*scenarios.Step{&churn, &settle}, []string{"churn", "churn"}},
		"a fault and changes":   {[]*scenarios.Step{&fault, &churn, &settle}, []string{"fault", "churn", "churn"}},
		"faults and changes":    {[]*scenarios.Step{&fault, &fault, &churn, &churn}, []string{"fault", "fault", "churn", "churn"}},
		"a fault alone":         {[]*scenarios.Step{&fault, &settle}, []string{"fault", "fault"}},
		"nothing to settle for": {[]*scenarios.Step{&settle}, []string{"settle"}},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Unix(1, 0)
			now := testclock.NewFakeClock(start)
			r := &repetition{clock: now}
			var got []string
			for _, step := range c.steps {
				r.beginWork(step, step.Kind())
				got = append(got, r.work.step)
				now.Step(time.Second)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("work is of %v, want %v", got, c.want)
			}
			if !r.work.began.Equal(start) {
				t.Errorf("work began at %v, want %v", r.work.began, start)
			}
		})
	}
}

// A followed cluster's remarks come from a goroutine of their own.
func TestProgressIsToldOneAtATime(t *testing.T) {
	var inside, most atomic.Int32
	show := oneAtATime(func(Progress) {
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond) // lets the others in, if they may
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

// A bound that nothing would hold is refused.
func TestMemoryIsBoundedOnlyInProcessesOfTheirOwn(t *testing.T) {
	o := ExecuteOptions{Feed: FeedInformers, MaxMemory: 1 << 30}
	if err := o.prepareTools(t.Context(), &Versions{}); err == nil {
		t.Error("no error")
	}
}
