package virtualtest

import (
	"slices"
	"testing"
	"time"

	"synclab/bench/shrink"
)

// Minimize searches, for the budget of real time, for fewer Actions that lead to the same violation. The remaining
// Actions keep their times: the Action after a removed one takes over its wait.
func Minimize(t *testing.T, seed uint64, length time.Duration, v *Violation, budget time.Duration) ([]Action, error) {
	first, all, err := ActionsOf(seed, length, v.Action)
	if err != nil {
		return nil, err
	}
	s, end := SettingOf(seed), time.Now().Add(budget)
	fails := func(some []Action) bool {
		report, err := Replay(t, s, first, some)
		return err == nil && report.Violation != nil && report.Violation.Invariant == v.Invariant
	}
	return minimize(all, fails, func() bool { return time.Now().After(end) }), nil
}

// minimize removes Actions from a failing list. Then it shortens waits.
func minimize(all []Action, fails func([]Action) bool, over func() bool) []Action {
	indices := func() []int {
		var out []int
		for i := range all {
			if !over() {
				out = append(out, i)
			}
		}
		return out
	}
	_ = shrink.Drop(indices, func(gone []int) (bool, error) {
		fewer := without(all, gone[0], gone[len(gone)-1]+1)
		if len(fewer) == 0 || !fails(fewer) {
			return false, nil
		}
		all = fewer
		return true, nil
	})
	for i := range all {
		const short = time.Second
		if all[i].After <= 2*short || over() {
			continue
		}
		sooner := slices.Clone(all)
		sooner[i].After = short + all[i].After%short
		if fails(sooner) {
			all = sooner
		}
	}
	return all
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
