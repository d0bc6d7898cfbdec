package virtualtest

import (
	"slices"
	"testing"
	"time"
)

// minimize keeps the Actions that the failure needs, at their original times.
func TestMinimize(t *testing.T) {
	var all []Action
	for i := range 100 {
		all = append(all, Action{After: time.Minute, Kind: change, N: i})
	}
	all[99].Kind = calm
	plays := 0
	fails := func(some []Action) bool {
		plays++
		has := func(n int) bool { return slices.ContainsFunc(some, func(a Action) bool { return a.N == n }) }
		return has(17) && has(60) && has(99)
	}
	at := time.Duration(0)
	fewer := minimize(all, func(some []Action) bool {
		at = 0
		for _, a := range some {
			at += a.After
		}
		return at == 100*time.Minute && fails(some)
	}, func() bool { return false })
	if len(fewer) != 3 || fewer[0].N != 17 || fewer[1].N != 60 || fewer[2].N != 99 || fewer[1].After != 43*time.Minute {
		t.Errorf("left are %v", fewer)
	}
	if plays > 100 {
		t.Errorf("%d plays of 100 Actions", plays)
	}
	waits := minimize(fewer, fails, func() bool { return false })
	for _, a := range waits {
		if a.After > 2*time.Second {
			t.Errorf("unnecessary waits: %v", waits)
		}
	}
}

// Without time left, minimize tries nothing.
func TestMinimizeEnds(t *testing.T) {
	all := []Action{{N: 1}, {N: 2}}
	if left := minimize(all, func([]Action) bool { t.Error("played"); return true }, func() bool { return true }); len(left) != 2 {
		t.Errorf("left are %v", left)
	}
}
