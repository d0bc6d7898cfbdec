package shim

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"synclab/bench/lab/upstream"
)

// A file next to the executable is not run, unless it is the one that the executable was linked with.
func TestBesideTheExecutable(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(filepath.Dir(exe), Beside)
	if err := os.WriteFile(beside, []byte("#!/bin/sh\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(beside)
	if path, err := Command(t.Context()); err != nil || path == beside {
		t.Errorf("of a program without its digest: %s, %v", path, err)
	}
	digest, err := upstream.Digest(beside)
	if err != nil {
		t.Fatal(err)
	}
	defer func(before string) { besideDigest = before }(besideDigest)
	besideDigest = digest
	if path, err := Command(t.Context()); err != nil || path != beside {
		t.Errorf("of an image: %s, %v", path, err)
	}
	if err := errors.Join(os.Remove(beside), os.WriteFile(beside, []byte("#!/bin/sh\nid\n"), 0o700)); err != nil {
		t.Fatal(err)
	}
	if path, err := Command(t.Context()); err == nil {
		t.Errorf("a replaced file is used: %s", path)
	}
}
