package host

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"synclab/bench/lab/shim"
	"synclab/bench/pass"
)

// The shim's own CPU time is subtracted once from the subject's.
func TestShimTimeIsNotTheSubjects(t *testing.T) {
	s, err := shim.Install(t.Context(), shim.Options{Dir: t.TempDir(), Tools: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	r := &Host{Env: &pass.Env{Shim: s}, spent: time.Second}
	r.Fail = func(err error) { t.Error(err) }
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
		if got := r.CPU(); own <= 0 || got != time.Second-own {
			t.Errorf("after %d calls: %v, want 1s less %v", n, got, own)
		}
	}
}
