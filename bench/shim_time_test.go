package bench

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"synclab/bench/shim"
)

// What the shim itself computes is no CPU time of the subject's, and is taken out once.
func TestShimTimeIsNotTheSubjects(t *testing.T) {
	s, err := shim.Install(t.Context(), shim.Options{Dir: t.TempDir(), Tools: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	r := &repetition{shim: s, spent: time.Second}
	r.fail = func(err error) { t.Error(err) }
	var own time.Duration
	for n := 1; n <= 2; n++ {
		if err := exec.Command(filepath.Join(s.Path(), "true")).Run(); err != nil {
			t.Fatal(err)
		}
		calls, _, err := s.Read(0)
		if err != nil || len(calls) != n {
			t.Fatal(calls, err)
		}
		own += calls[n-1].Own
		if got := r.cpu(); own <= 0 || got != time.Second-own {
			t.Errorf("after %d calls: %v, want 1s less %v", n, got, own)
		}
	}
}
