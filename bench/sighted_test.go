package bench

import (
	"os"
	"strings"
	"testing"
	"time"

	"synclab/bench/visible"
	"synclab/sim"
)

// A change that was undone is no sample of network programming latency, and is not lost; what only reading told of says
// how exact it is.
func TestSightsAreRecordedForWhatTheyAre(t *testing.T) {
	s := newSlow(t)
	due := s.started.Add(time.Second)
	s.sighted(visible.Sight{Op: sim.Update, Due: due, Visible: due.Add(250 * time.Millisecond)})
	s.sighted(visible.Sight{Op: sim.Update, Due: due, Visible: due.Add(500 * time.Millisecond), Since: due.Add(250 * time.Millisecond)})
	s.sighted(visible.Sight{Op: sim.Update, Due: due, Visible: due.Add(125 * time.Millisecond), Undone: true})
	said, err := os.ReadFile(s.said)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"metric":"network_programming_latency","value":0.25,"unit":"s"}`,
		`"metric":"network_programming_latency","value":0.5,"unit":"s","within":0.25}`,
		`"metric":"change_undone","value":0.125,"unit":"s"}`,
	} {
		if strings.Count(string(said), want) != 1 {
			t.Errorf("not once: %s\n%s", want, said)
		}
	}
	if n := strings.Count(string(said), `"network_programming_latency"`); n != 2 {
		t.Errorf("%d latencies, want 2:\n%s", n, said)
	}
}
