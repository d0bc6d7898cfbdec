package fault

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Two runs have separate cgroups. Those of killed runs are removed, and the parent is restored with the last one. A
// folder stands for a cgroup: its control file keeps the last write.
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
		t.Error("the group of a killed run still exists")
	}
	second, err := newGroup(parent)
	if err != nil || second == first {
		t.Fatalf("%s, %v", second, err)
	}
	if _, err := os.Stat(first); err != nil {
		t.Errorf("the group of a running run: %v", err)
	}
	if err := removeGroup(first); err != nil { // the group that enabled the parent's memory accounting ends first
		t.Fatal(err)
	}
	said("+memory")
	bound := filepath.Join(strangers, "memory.max")
	if err := errors.Join(os.WriteFile(bound, []byte("1000\n"), 0o600), removeGroup(second)); err != nil {
		t.Fatal(err)
	}
	said("+memory") // another group has a limit
	third, err := newGroup(parent)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(bound, []byte("max\n"), 0o600), removeGroup(third)); err != nil {
		t.Fatal(err)
	}
	said("-memory")
}
