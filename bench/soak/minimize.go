package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/utils/clock"

	"synclab/bench/fault"
	"synclab/bench/shrink"
	"synclab/scenarios"
)

// Minimizer searches for a smaller scenario with the same failure: first fewer steps, then smaller steps, then a
// smaller shape. It keeps the first create, the first settle, and the last settle and check.
type Minimizer struct {
	// Fails runs a scenario and reports whether it has the same failure.
	Fails func(context.Context, *scenarios.Scenario) (bool, error)
	// Tries is the most runs of a scenario until it fails.
	Tries int
	// Budget bounds the search; a run that exceeds it is cancelled.
	Budget time.Duration
	Clock  clock.WithTicker
	// FailedAt is the step at which the first run failed, from 0; -1 if unknown.
	FailedAt int
	Tell     func(string)
}

// minimizing is the state of a search.
type minimizing struct {
	*Minimizer
	best  *scenarios.Scenario
	found bool            // best has failed again
	seen  map[string]bool // scenarios that have been tried
	until time.Time
}

// Minimize returns the smallest scenario that failed, or nil if none failed, not even s.
func (m *Minimizer) Minimize(ctx context.Context, s *scenarios.Scenario) (*scenarios.Scenario, error) {
	search := &minimizing{Minimizer: m, best: s, seen: map[string]bool{}, until: m.Clock.Now().Add(m.Budget)}
	limited, cancel := context.WithCancel(ctx)
	defer cancel()
	defer m.cutShort(limited, cancel)()
	err := search.all(limited)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case limited.Err() != nil:
		err = nil // the budget is used up
	}
	if !search.found {
		return nil, err
	}
	return search.best, err
}

// cutShort cancels the search when the budget is used up. The returned function stops its timer.
func (m *Minimizer) cutShort(ctx context.Context, cancel func()) func() {
	timer := m.Clock.NewTimer(m.Budget)
	go func() {
		select {
		case <-timer.C():
			cancel()
		case <-ctx.Done():
		}
	}()
	return func() { timer.Stop() }
}

func (z *minimizing) all(ctx context.Context) error {
	if err := z.ends(ctx); err != nil {
		return err
	}
	if !z.found { // no shorter one failed: does the original fail again?
		if _, err := z.try(ctx, z.best); err != nil || !z.found {
			return err
		}
	}
	for {
		before := z.best
		for _, pass := range []func(context.Context) error{z.fewerSteps, z.smallerSteps, z.smallerShape} {
			if err := pass(ctx); err != nil {
				return err
			}
		}
		if z.best == before {
			return nil
		}
	}
}

// over reports whether the budget is used up.
func (z *minimizing) over() bool { return !z.Clock.Now().Before(z.until) }

// try runs a scenario, unless it is invalid or was tried before, and keeps it if it fails.
func (z *minimizing) try(ctx context.Context, s *scenarios.Scenario) (bool, error) {
	text, err := s.YAML()
	if err != nil {
		return false, err
	}
	if z.seen[string(text)] || s.Validate() != nil || z.over() {
		return false, nil
	}
	z.seen[string(text)] = true
	for range max(1, z.Tries) {
		failed, err := z.Fails(ctx, s)
		if err == nil && ctx.Err() != nil {
			err = ctx.Err() // a cancelled run has no result
		}
		if err != nil {
			return false, err
		}
		if failed {
			z.best, z.found = s, true
			z.Tell(fmt.Sprintf("still fails with %d Services and %d steps", s.Shape.Services, len(s.Steps)))
			return true, nil
		}
		if z.over() {
			return false, nil
		}
	}
	return false, nil
}

// ends tries the two most likely candidates: only the round with the failure, and no steps after that round.
func (z *minimizing) ends(ctx context.Context) error {
	if z.FailedAt < 0 {
		return nil
	}
	steps := z.best.Steps
	begin, end := roundOf(steps, z.FailedAt)
	early := z.best
	cut := withSteps(early, steps[:end])
	head := headOf(steps)
	if begin > head {
		if failed, err := z.try(ctx, withSteps(early, slices.Concat(steps[:head], steps[begin:end]))); failed || err != nil {
			return err
		}
	}
	_, err := z.try(ctx, cut)
	return err
}

// headOf returns the first step of the first round: after the first settle step and a traffic step that follows it.
func headOf(steps []scenarios.Step) int {
	head := 1 + slices.IndexFunc(steps, func(s scenarios.Step) bool { return s.Settle != nil })
	if head < len(steps) && steps[head].Traffic != nil && !steps[head].Traffic.Stop {
		head++
	}
	return head
}

// roundOf returns the bounds of step i's round, which ends with a settle step and the check after it.
func roundOf(steps []scenarios.Step, i int) (begin, end int) {
	ends := func(j int) bool {
		return steps[j].Check != nil || (steps[j].Settle != nil && (j+1 == len(steps) || steps[j+1].Check == nil))
	}
	i = min(i, len(steps)-1)
	for end = i; end < len(steps)-1 && !ends(end); {
		end++
	}
	for begin = i; begin > 0 && !ends(begin-1); {
		begin--
	}
	return begin, end + 1
}

// withSteps returns a scenario with other steps. It drops steps without effect: clearing when no lasting fault is
// active, and the end of a stream that does not run.
func withSteps(s *scenarios.Scenario, steps []scenarios.Step) *scenarios.Scenario {
	smaller := *s
	smaller.Steps = nil
	faulty, streams := false, false
	for _, step := range steps {
		switch {
		case step.Fault != nil && step.Fault.Kind == scenarios.FaultClear:
			if !faulty {
				continue
			}
			faulty = false
		case step.Fault != nil:
			faulty = faulty || !fault.Of(step.Fault.Kind).AtOnce()
		case step.Traffic != nil:
			if step.Traffic.Stop && !streams {
				continue
			}
			streams = !step.Traffic.Stop
		}
		smaller.Steps = append(smaller.Steps, step)
	}
	return &smaller
}

// removable returns the steps that may be removed. withSteps removes a clear step with its faults, and a stream's end
// with the stream.
func removable(steps []scenarios.Step) []int {
	firstCreate := slices.IndexFunc(steps, func(s scenarios.Step) bool { return s.Create != nil })
	firstSettle := slices.IndexFunc(steps, func(s scenarios.Step) bool { return s.Settle != nil })
	lastSettle, lastCheck := firstSettle, -1
	for i, step := range steps {
		switch {
		case step.Settle != nil:
			lastSettle = i
		case step.Check != nil:
			lastCheck = i
		}
	}
	var may []int
	for i, step := range steps {
		switch {
		case i == firstCreate, i == firstSettle, i == lastSettle, i == lastCheck:
		case step.Fault != nil && step.Fault.Kind == scenarios.FaultClear:
		default:
			may = append(may, i)
		}
	}
	return may
}

// fewerSteps removes steps, the last ones first: the cause of a failure is mostly near the end.
func (z *minimizing) fewerSteps(ctx context.Context) error {
	may := func() []int {
		out := removable(z.best.Steps)
		slices.Reverse(out)
		return out
	}
	return shrink.Drop(may, func(gone []int) (bool, error) {
		var steps []scenarios.Step
		for i, step := range z.best.Steps {
			if !slices.Contains(gone, i) {
				steps = append(steps, step)
			}
		}
		return z.try(ctx, withSteps(z.best, steps))
	})
}

// smallerSteps makes steps smaller, one after the other.
func (z *minimizing) smallerSteps(ctx context.Context) error {
	for i := range z.best.Steps {
		for {
			step, ok := smaller(z.best.Steps[i])
			if !ok {
				break
			}
			steps := slices.Clone(z.best.Steps)
			steps[i] = step
			failed, err := z.try(ctx, withSteps(z.best, steps))
			if err != nil {
				return err
			}
			if !failed {
				break
			}
		}
	}
	return nil
}

// smaller returns a step that does less: half as many changes, or one of other things; false if it cannot do less.
func smaller(step scenarios.Step) (scenarios.Step, bool) {
	return step.Smaller(func(n int) int {
		if step.Churn != nil {
			return n / 2
		}
		return 1
	})
}
