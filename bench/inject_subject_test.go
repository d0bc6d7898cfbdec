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
	said("+memory") // no "-memory" for the killed one: another group is there
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
	if err := errors.Join(os.Remove(strangers), removeGroup(second)); err != nil {
		t.Fatal(err)
	}
	said("+memory")
	if err := removeGroup(first); err != nil {
		t.Fatal(err)
	}
	said("-memory")
}
