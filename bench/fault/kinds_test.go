package fault

import (
	"testing"

	"synclab/scenarios"
)

// A fault that may lose flows excuses lost flows until the next settle step. A lasting fault excuses them until it is
// cleared.
func TestMayFail(t *testing.T) {
	fault := func(kind string) scenarios.Step { return scenarios.Step{Fault: &scenarios.Fault{Kind: kind}} }
	settle := scenarios.Step{Settle: &scenarios.Settle{}}
	steps := []scenarios.Step{
		settle, fault(scenarios.FaultRestoreFails), settle, fault(scenarios.FaultConntrackFull), settle, fault(scenarios.FaultClear), settle, settle,
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"1:settle", "3:settle", false}, {"3:settle", "4:fault", true}, {"5:settle", "5:settle", true}, {"7:settle", "8:settle", true},
		{"8:settle", "8:settle", false}, {"", "", false},
	} {
		if got := MayFail(steps, c.from, c.to); got != c.want {
			t.Errorf("from %q to %q: %v", c.from, c.to, got)
		}
	}
}
