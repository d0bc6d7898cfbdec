package virtual

import (
	"slices"
	"testing"
	"time"
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

// minimize removes parts of a failing list, first halves, then ever smaller parts. Then it shortens waits.
func minimize(all []Action, fails func([]Action) bool, over func() bool) []Action {
	for size := (len(all) + 1) / 2; size > 0; size /= 2 {
		// Start with the first Actions: Actions that a check does not need most often come early.
		for from := 0; from < len(all) && !over(); {
			fewer := without(all, from, min(from+size, len(all)))
			if len(fewer) > 0 && fails(fewer) {
				all = fewer
				continue
			}
			from += size
		}
	}
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
