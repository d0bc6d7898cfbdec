package outfile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A program is used only if no other user can change it, or a folder above it.
func TestTrusted(t *testing.T) {
	top := t.TempDir()
	program := filepath.Join(top, "a", "b", "program")
	if err := errors.Join(os.MkdirAll(filepath.Dir(program), 0o700), os.WriteFile(program, nil, 0o700), os.Symlink(program, filepath.Join(top, "link"))); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{program, filepath.Join(top, "link"), filepath.Dir(program)} {
		if err := Trusted(path); err != nil {
			t.Error(err)
		}
	}
	if err := Trusted(filepath.Join(top, "none")); err == nil {
		t.Error("a missing file is trusted")
	}
	folder := filepath.Join(top, "a")
	for _, c := range []struct {
		path  string
		mode  os.FileMode
		safe  bool
		again os.FileMode
	}{
		{folder, 0o777, false, 0o700},
		{folder, 0o777 | os.ModeSticky, true, 0o700},
		{folder, 0o755, true, 0o700},
		{program, 0o777, false, 0o700},
		{program, 0o702, false, 0o700},
	} {
		if err := os.Chmod(c.path, c.mode); err != nil {
			t.Fatal(err)
		}
		if err := Trusted(program); (err == nil) != c.safe {
			t.Errorf("%s with mode %v: %v", c.path, c.mode, err)
		}
		if err := os.Chmod(c.path, c.again); err != nil {
			t.Fatal(err)
		}
	}
	if os.Geteuid() != 0 {
		return // only root can give files away
	}
	const stranger = 12345
	for _, path := range []string{folder, program} {
		if err := os.Chown(path, stranger, stranger); err != nil {
			t.Fatal(err)
		}
		if Trusted(program) == nil {
			t.Errorf("%s of another user is trusted", path)
		}
		if err := os.Chown(path, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Chown(program, 0, stranger), os.Chmod(program, 0o770)); err != nil {
		t.Fatal(err)
	}
	if Trusted(program) == nil {
		t.Error("a program that another group may write is trusted")
	}
}
