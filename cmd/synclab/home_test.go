package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/netns"
)

// Who has no HOME, as in many containers and CI jobs, runs with both feeds; what is built goes to the temporary folder.
func TestRunWithoutHome(t *testing.T) {
	env := slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return name == "HOME" || strings.HasPrefix(name, "XDG_") || name == "GOCACHE" || name == "GOPATH"
	})
	temporary := t.TempDir()
	for _, feed := range []string{"informers", "api"} {
		cmd := exec.Command(os.Args[0], "run", "cold-start", "--services", "5", "--reps", "1", "--feed", feed,
			"--subjects", "synclab/nftables", "--out", filepath.Join(temporary, feed))
		cmd.Env = append(slices.Clone(env), envProgram+"=1", "TMPDIR="+temporary)
		text, err := cmd.CombinedOutput()
		if err != nil && strings.Contains(string(text), netns.ErrUnavailable.Error()) && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(string(text))
		}
		if err != nil {
			t.Errorf("%s: %v\n%s", feed, err, text)
		}
	}
	if built, _ := filepath.Glob(filepath.Join(temporary, "synclab-cache-*", "shim-*")); len(built) == 0 {
		t.Error("what the feed api needs was not built in the temporary folder: there is another HOME, and this shows nothing")
	}
}
