package machine

import (
	"os/exec"
	"testing"

	"synclab/bench/netns"
)

// The ring visits all of the memory once, and every piece of work is timed if it can be done.
func TestPace(t *testing.T) {
	ring, at, seen := pacedRing(1<<12), uint32(0), map[uint32]bool{}
	for range ring {
		at = ring[at]
		seen[at] = true
	}
	if len(seen) != len(ring) {
		t.Errorf("the walk visits %d of %d places", len(seen), len(ring))
	}
	p := MeasurePace(t.Context())
	if p.CPU <= 0 || p.Memory <= 0 {
		t.Errorf("%+v", p)
	}
	_, err := netns.Available(t.Context())
	_, tool := exec.LookPath("iptables-legacy-restore")
	if err == nil && tool == nil && (p.Restore <= 0 || p.Tool != "iptables-legacy-restore") {
		t.Errorf("nothing was restored: %+v", p)
	}
}
