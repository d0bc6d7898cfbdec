package machine

import (
	"os/exec"
	"testing"

	"synclab/bench/lab/netns"
)

// Each loop takes some time, a packet takes longer with rules than without, and nothing stays in the namespace.
func TestLoops(t *testing.T) {
	for _, tool := range []string{legacyRestore, "nft"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(err)
		}
	}
	netns.Fresh(t)
	loops, err := MeasureLoops(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, loop := range loops {
		if loop.Seconds <= 0 {
			t.Errorf("%s: %v s", loop.Name, loop.Seconds)
		}
	}
	rules, err := exec.Command("iptables-legacy-save", "-t", "filter").Output()
	if err != nil {
		t.Fatal(err)
	}
	again, err := MeasureLoops(t.Context())
	if err != nil || len(again) != len(loops) {
		t.Errorf("a second time: %d of %d loops, %v", len(again), len(loops), err)
	}
	if after, err := exec.Command("iptables-legacy-save", "-t", "filter").Output(); err != nil || len(after) > len(rules)+100 {
		t.Errorf("rules grow: %d bytes, then %d (%v)", len(rules), len(after), err)
	}
}
