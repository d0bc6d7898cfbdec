package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/lab/netns"
)

// Without HOME, as in many containers and CI jobs, runs work with both feeds. Built programs go to the temporary folder.
func TestRunWithoutHome(t *testing.T) {
	skipShort(t)
	env := slices.DeleteFunc(os.Environ(), func(set string) bool {
		name, _, _ := strings.Cut(set, "=")
		return name == "HOME" || strings.HasPrefix(name, "XDG_") || name == "GOCACHE" || name == "GOPATH"
	})
	temporary := t.TempDir()
	for _, feed := range []string{"informers", "api"} {
		cmd := exec.Command(os.Args[0], "run", "cold-start", noWaits, "--services", "5", "--reps", "1", "--feed", feed,
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
	// The home of the user database may not exist.
	built, _ := filepath.Glob(filepath.Join(temporary, "synclab-cache-*", "shim-*"))
	if account, err := user.LookupId(fmt.Sprint(os.Getuid())); err == nil {
		homes, _ := filepath.Glob(filepath.Join(account.HomeDir, ".cache", "synclab", "shim-*"))
		built = append(built, homes...)
	}
	if len(built) == 0 {
		t.Error("the programs for the feed api were not built in one of the two caches: another HOME is in use, and this test shows nothing")
	}
}
