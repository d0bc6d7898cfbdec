package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A FIFO in a folder does not block the reader, and an endless input is refused before it fills the memory.
func TestReadObjectsRefusesWhatIsNoFile(t *testing.T) {
	folder := func(make func(path string) error) string {
		dir := t.TempDir()
		if err := make(filepath.Join(dir, "objects.yaml")); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	for what, make := range map[string]func(path string) error{
		"FIFO":             func(path string) error { return unix.Mkfifo(path, 0o600) },
		"link to a device": func(path string) error { return os.Symlink("/dev/zero", path) },
	} {
		if _, err := ReadObjects([]string{folder(make)}, nil, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "objects.yaml: not a regular file") {
			t.Errorf("%s: %v", what, err)
		}
	}
	text, err := os.ReadFile("testdata/manifests/ngx.yaml")
	if err != nil {
		t.Fatal(err)
	}
	linked := folder(func(path string) error {
		file := filepath.Join(t.TempDir(), "data")
		return errors.Join(os.WriteFile(file, text, 0o600), os.Symlink(file, path))
	})
	if _, err := ReadObjects([]string{linked}, nil, ipv4Cluster); err != nil {
		t.Errorf("link to a file: %v", err)
	}

	defer func(before int64) { largestInput = before }(largestInput)
	largestInput = 1 << 20
	if _, err := ReadObjects([]string{"/dev/zero"}, nil, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "/dev/zero: more than 1 MiB") {
		t.Errorf("/dev/zero: %v", err)
	}
	if _, err := ReadObjects([]string{"-"}, strings.NewReader(strings.Repeat(" ", 1<<20+1)), ReadOptions{}); err == nil || !strings.Contains(err.Error(), "stdin: more than 1 MiB") {
		t.Errorf("stdin: %v", err)
	}
	large := filepath.Join(t.TempDir(), "large.json")
	if err := errors.Join(os.WriteFile(large, text, 0o600), os.Truncate(large, 1<<20+1)); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadObjects([]string{large}, nil, ReadOptions{}); err == nil || !strings.Contains(err.Error(), "large.json: more than 1 MiB") {
		t.Errorf("large file: %v", err)
	}
}
