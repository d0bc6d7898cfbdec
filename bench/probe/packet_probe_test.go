package probe

import (
	"testing"

	"synclab/bench/raw"
	"synclab/bench/traffic"
)

// A flow that a busy machine lost does not make the other flows to the same address differ from another subject's.
func TestOutcomeText(t *testing.T) {
	for want, outcomes := range map[string]map[string]int{
		"answered":            {traffic.Answered: 7, raw.TooBusy: 1},
		"refused":             {traffic.Refused: 2},
		raw.TooBusy:           {raw.TooBusy: 2},
		"answered or refused": {traffic.Answered: 3, traffic.Refused: 4, raw.TooBusy: 1},
	} {
		if got := outcomeText(outcomes); got != want {
			t.Errorf("%v: %q, want %q", outcomes, got, want)
		}
	}
}
