package check

import (
	"testing"

	"synclab/bench/traffic"
	"synclab/bench/verify/invariants"
)

// A check that only asks the subject's servers leaves the evidence of the other invariants to the next full check.
func TestEvidenceIsKept(t *testing.T) {
	for _, c := range []struct {
		what  string
		names []string
		kept  bool
	}{
		{"health check NodePorts", []string{"I14"}, true},
		{"both servers", []string{"I11", "I14"}, true},
		{"all", nil, false},
		{"one with rules too", []string{"I2", "I14"}, false},
	} {
		before := &invariants.Leftover{Syncs: 3}
		r := &Checks{left: before, restarted: &invariants.Restarted{}, restores: restores{failed: []failedRestore{{}}}}
		r.met.met(&traffic.Observed{Finding: traffic.NewFlow, Outcome: traffic.TimedOut}, false)
		r.checked(c.names, nil)
		flows := r.met.traffic(false)
		if got := []bool{r.left == before, r.restarted != nil, flows != nil && flows.Failed == 1, len(r.restores.failed) == 1}; got[0] != c.kept || got[1] != c.kept || got[2] != c.kept || got[3] != c.kept {
			t.Errorf("%s: leftovers, restart, flows and restores kept: %v, want %v", c.what, got, c.kept)
		}
	}
}
