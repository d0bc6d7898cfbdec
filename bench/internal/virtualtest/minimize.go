package virtualtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"synclab/bench/verify/shrink"
)

// Minimize searches, for the budget of real time, for fewer Actions that lead to the same violation. The remaining
// Actions keep their times: the Action after a removed one takes over its wait.
func Minimize(t *testing.T, seed uint64, length time.Duration, v *Violation, budget time.Duration) ([]Action, error) {
	first, all, err := ActionsOf(seed, length, v.Action)
	if err != nil {
		return nil, err
	}
	s := SettingOf(seed)
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	return minimize(ctx, all, func(some []Action) bool {
		report, err := Replay(t, s, first, some)
		return err == nil && report.Violation != nil && report.Violation.Invariant == v.Invariant
	})
}

// minimize removes Actions from a failing list, and shortens waits.
func minimize(ctx context.Context, all []Action, fails func([]Action) bool) ([]Action, error) {
	search := shrink.Search[[]Action]{
		Fails:  func(_ context.Context, some []Action) (bool, error) { return len(some) > 0 && fails(some), nil },
		Passes: []shrink.Pass[[]Action]{removed, shrink.Parts(longWaits, withShortWaits)},
	}
	return search.Minimize(ctx, all)
}

func removed(all []Action) (int, func(from, to int) []Action) {
	return len(all), func(from, to int) []Action { return without(all, from, to) }
}

// shortWait replaces the whole seconds of a long wait.
const shortWait = time.Second

func longWaits(all []Action) (indices []int) {
	for i, a := range all {
		if a.After > 2*shortWait {
			indices = append(indices, i)
		}
	}
	return indices
}

func withShortWaits(all []Action, indices []int) []Action {
	sooner := slices.Clone(all)
	for _, i := range indices {
		sooner[i].After = shortWait + all[i].After%shortWait
	}
	return sooner
}

// without returns the list without the Actions from one index to another.
func without(all []Action, from, to int) []Action {
	fewer := slices.Clone(all[:from])
	fewer = append(fewer, all[to:]...)
	if to < len(all) {
		for _, dropped := range all[from:to] {
			fewer[from].After += dropped.After
		}
	}
	return fewer
}
