package soak

import (
	"context"
	"fmt"
	"slices"
	"time"

	"synclab/bench/fault"
	"synclab/bench/verify/shrink"
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
	// FailedAt is the step at which the first run failed, from 0; -1 if unknown.
	FailedAt int
	Tell     func(string)
}

// Minimize returns the smallest scenario that failed, or nil if none failed, not even s.
func (m *Minimizer) Minimize(ctx context.Context, s *scenarios.Scenario) (*scenarios.Scenario, error) {
	limited, cancel := context.WithTimeout(ctx, m.Budget)
	defer cancel()
	search := shrink.Search[*scenarios.Scenario]{Fails: m.fails, Passes: []shrink.Pass[*scenarios.Scenario]{
		shrink.Parts(removable, withoutSteps), shrink.Parts(divisible, withSmallerSteps), shrink.Parts(simplifications, simplified),
	}}
	first, failed, err := search.First(limited, append(likely(s, m.FailedAt), s)...)
	if err != nil || !failed {
		return nil, err
	}
	return search.Minimize(limited, first)
}

// fails runs a valid scenario until it fails.
func (m *Minimizer) fails(ctx context.Context, s *scenarios.Scenario) (bool, error) {
	if s.Validate() != nil {
		return false, nil
	}
	for range max(1, m.Tries) {
		failed, err := m.Fails(ctx, s)
		if failed {
			m.Tell(fmt.Sprintf("still fails with %d Services and %d steps", s.Shape.Services, len(s.Steps)))
		}
		if failed || err != nil || ctx.Err() != nil {
			return failed, err
		}
	}
	return false, nil
}

// likely returns the two most likely smaller scenarios: only the round with the failure, and no steps after that round.
func likely(s *scenarios.Scenario, failedAt int) []*scenarios.Scenario {
	if failedAt < 0 {
		return nil
	}
	begin, end := roundOf(s.Steps, failedAt)
	cut := withSteps(s, s.Steps[:end])
	if head := headOf(s.Steps); begin > head {
		return []*scenarios.Scenario{withSteps(s, slices.Concat(s.Steps[:head], s.Steps[begin:end])), cut}
	}
	return []*scenarios.Scenario{cut}
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

// removable returns the steps that may be removed, the last ones first: the cause of a failure is mostly near the end.
// withSteps removes a clear step with its faults, and a stream's end with the stream.
func removable(s *scenarios.Scenario) (may []int) {
	firstCreate := slices.IndexFunc(s.Steps, func(s scenarios.Step) bool { return s.Create != nil })
	firstSettle := slices.IndexFunc(s.Steps, func(s scenarios.Step) bool { return s.Settle != nil })
	lastSettle, lastCheck := firstSettle, -1
	for i, step := range s.Steps {
		switch {
		case step.Settle != nil:
			lastSettle = i
		case step.Check != nil:
			lastCheck = i
		}
	}
	for i, step := range slices.Backward(s.Steps) {
		switch {
		case i == firstCreate, i == firstSettle, i == lastSettle, i == lastCheck:
		case step.Fault != nil && step.Fault.Kind == scenarios.FaultClear:
		default:
			may = append(may, i)
		}
	}
	return may
}

func withoutSteps(s *scenarios.Scenario, gone []int) *scenarios.Scenario {
	var steps []scenarios.Step
	for i, step := range s.Steps {
		if !slices.Contains(gone, i) {
			steps = append(steps, step)
		}
	}
	return withSteps(s, steps)
}

// divisible returns the steps that can do less.
func divisible(s *scenarios.Scenario) (can []int) {
	for i, step := range s.Steps {
		if _, ok := smaller(step); ok {
			can = append(can, i)
		}
	}
	return can
}

func withSmallerSteps(s *scenarios.Scenario, some []int) *scenarios.Scenario {
	steps := slices.Clone(s.Steps)
	for _, i := range some {
		steps[i], _ = smaller(steps[i])
	}
	return withSteps(s, steps)
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
