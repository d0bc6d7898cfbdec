package virtualtest

import (
	"context"
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
	fewer, err := minimize(t.Context(), all, func(some []Action) bool {
		at = 0
		for _, a := range some {
			at += a.After
		}
		return at == 100*time.Minute && fails(some)
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(fewer) != 3 || fewer[0].N != 17 || fewer[1].N != 60 || fewer[2].N != 99 || fewer[1].After != 43*time.Minute {
		t.Errorf("left are %v", fewer)
	}
	if plays > 100 {
		t.Errorf("%d plays of 100 Actions", plays)
	}
	waits, err := minimize(t.Context(), fewer, fails)
	if err != nil || len(waits) != 3 {
		t.Errorf("%v, left are %v", err, waits)
	}
	for _, a := range waits {
		if a.After > 2*time.Second {
			t.Errorf("unnecessary waits: %v", waits)
		}
	}
}

// Without time left, minimize tries nothing.
func TestMinimizeEnds(t *testing.T) {
	all := []Action{{N: 1}, {N: 2}}
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	left, err := minimize(ctx, all, func([]Action) bool { t.Error("played"); return true })
	if err != nil || len(left) != 2 {
		t.Errorf("%v, left are %v", err, left)
	}
}
