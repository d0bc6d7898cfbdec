package bench

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Two runs have groups of their own, killed ones' are removed, and the parent is as it was once the last one is gone. The
// folder stands for a cgroup: its control file keeps what was written last.
func TestGroups(t *testing.T) {
	parent := t.TempDir()
	control := filepath.Join(parent, "cgroup.subtree_control")
	said := func(want string) {
		t.Helper()
		if text, err := os.ReadFile(control); err != nil || string(text) != want {
			t.Errorf("subtree_control: %q, %v; want %q", text, err, want)
		}
	}
	old := time.Now().Add(-time.Hour)
	killed, strangers := filepath.Join(parent, groupAddedPrefix+"killed"), filepath.Join(parent, "strangers")
	if err := errors.Join(os.WriteFile(control, []byte("cpu"), 0o600), os.Mkdir(killed, 0o755), os.Mkdir(strangers, 0o755), os.Chtimes(killed, old, old), os.Chtimes(strangers, old, old)); err != nil {
		t.Fatal(err)
	}
	first, err := newGroup(parent)
	if err != nil {
		t.Fatal(err)
	}
	said("+memory")
	if _, err := os.Stat(killed); err == nil {
		t.Error("what a killed run left is still there")
	}
	second, err := newGroup(parent)
	if err != nil || second == first {
		t.Fatalf("%s, %v", second, err)
	}
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the group of a run that is going on: %v", err)
	}
	if err := removeGroup(first); err != nil { // the one that had the parent account for memory ends first
		t.Fatal(err)
	}
	said("+memory")
	bound := filepath.Join(strangers, "memory.max")
	if err := errors.Join(os.WriteFile(bound, []byte("1000\n"), 0o600), removeGroup(second)); err != nil {
		t.Fatal(err)
	}
	said("+memory") // another group has a bound
	third, err := newGroup(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(bound, []byte("max\n"), 0o600), removeGroup(third)); err != nil {
		t.Fatal(err)
	}
	said("-memory")
}
