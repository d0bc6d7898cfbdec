package temporary

import (
	"os"
	"path/filepath"
	"testing"
)

// Remove and Sweep remove nothing of a folder that a link in place of the temporary folder leads to.
func TestSwappedFolder(t *testing.T) {
	root, victim := t.TempDir(), t.TempDir()
	kept := filepath.Join(victim, "file")
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := New(root)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(d.Path, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(d.Path, filepath.Join(root, "elsewhere")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(victim, d.Path); err != nil {
		t.Fatal(err)
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	if _, err := Sweep(root); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(kept); err != nil {
		t.Errorf("the link's target was emptied: %v", err)
	}
	if entries, err := os.ReadDir(filepath.Join(root, "elsewhere")); err != nil || len(entries) != 0 {
		t.Errorf("the temporary folder itself: %v, %v; want it empty", entries, err)
	}
}
