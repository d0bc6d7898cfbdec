package bench

import (
	"testing"

	"synclab/bench/lab/machine"
)

// A stall that lasts is one, of the step in which it began, with its longest time.
func TestStallsAreCountedOnce(t *testing.T) {
	var w stallWatch
	for _, one := range []struct{ step, record string }{
		{"1:create", "0,1,100000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 22s! [nft:81]"},
		{"1:create", "0,2,110000000,-;watchdog: BUG: soft lockup - CPU#0 stuck for 23s! [ipset:7]"},
		{"2:settle", "0,3,126000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 48s! [nft:81]"},
		{"2:settle", "0,4,152000000,-;watchdog: BUG: soft lockup - CPU#1 stuck for 74s! [nft:81]"},
		{"2:settle", "0,5,152000001,-;rcu: INFO: rcu_preempt self-detected stall on CPU"},
	} {
		s, ok := machine.ParseStall(one.record)
		if !ok {
			t.Fatal(one.record)
		}
		if kept, fresh := w.add(stalled{Stall: s, step: one.step}); fresh == (s.Seconds > 30) || kept.Text != s.Text || !fresh && kept.step != "1:create" {
			t.Errorf("%s: kept %+v, fresh %t", one.record, kept, fresh)
		}
	}
	if len(w.found) != 3 || w.found[0].Seconds != 74 || w.found[0].step != "1:create" || w.found[1].Seconds != 23 || w.found[2].Kind != machine.RCUStall {
		t.Errorf("%+v", w.found)
	}
}
