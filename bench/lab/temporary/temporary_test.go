package temporary

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Programs in a temporary folder run by their paths, so others may not rename it.
func TestSharedFolder(t *testing.T) {
	shared := t.TempDir()
	t.Setenv("TMPDIR", shared)
	for mode, good := range map[os.FileMode]bool{0o777: false, 0o777 | os.ModeSticky: true, 0o700: true} {
		if err := os.Chmod(shared, mode); err != nil {
			t.Fatal(err)
		}
		d, err := New("")
		if (err == nil) != good || err != nil && !strings.Contains(err.Error(), "let TMPDIR name another folder") {
			t.Errorf("%v: %v", mode, err)
		}
		if err == nil {
			if err := d.Remove(); err != nil {
				t.Error(err)
			}
		}
	}
}

// Sweep removes the folders of ended processes. It keeps those of running processes, of other users, and what is no
// folder.
func TestSweep(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	at := func(name string) string { return filepath.Join(root, name) }
	alive, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	dead, empty, strangers := at(prefix+"dead"), at(prefix+"empty"), at(prefix+"strangers")
	kept := []string{alive.Path, at("other"), at(prefix + "file"), at(prefix + "link")}
	if err := errors.Join(os.MkdirAll(filepath.Join(dead, "folder"), 0o700), os.WriteFile(filepath.Join(dead, ownerName), nil, 0o600),
		os.WriteFile(filepath.Join(dead, "folder", "file"), nil, 0o400), os.Symlink(elsewhere, filepath.Join(dead, "link")), os.Mkdir(empty, 0o700),
		os.Mkdir(at("other"), 0o700), os.WriteFile(at(prefix+"file"), nil, 0o600), os.Symlink(elsewhere, at(prefix+"link")),
		os.WriteFile(filepath.Join(elsewhere, "file"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // elsewhere there is one user only
		if err := errors.Join(os.Mkdir(strangers, 0o700), os.Chown(strangers, 65534, 65534)); err != nil {
			t.Fatal(err)
		}
		kept = append(kept, strangers)
	}
	swept, err := Sweep(root)
	slices.Sort(swept)
	if err != nil || !slices.Equal(swept, []string{dead, empty}) {
		t.Errorf("Sweep = %v, %v; want %s and %s", swept, err, dead, empty)
	}
	for _, path := range append(kept, filepath.Join(elsewhere, "file")) {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("swept too: %v", err)
		}
	}
	if err := alive.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(alive.Path); err == nil {
		t.Error("Remove kept the folder")
	}
}

// No sweep removes the folder of a running process, not even one that is being made.
func TestNewBesideSweeps(t *testing.T) {
	root := t.TempDir()
	stop, stopped := make(chan struct{}), make(chan error)
	go func() {
		var failed error
		for {
			select {
			case <-stop:
				stopped <- failed
				return
			default:
				_, err := Sweep(root)
				failed = errors.Join(failed, err)
			}
		}
	}()
	for range 300 {
		d, err := New(root)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Lstat(filepath.Join(d.Path, ownerName)); err != nil {
			t.Fatalf("a new folder: %v", err)
		}
		if err := d.Remove(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
