package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestOldNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.go")
	text := `package a

// runPasses runs the slots.
func runSlots() {}

// Stop ends it.
func stop() {}

// shownCell is a cell.
type shownCell struct{}

// Kinds of steps and their names.
func names() {}

// EndpointSlices come first.
func order() {}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := oldNames(path)
	if err != nil || len(got) != 2 {
		t.Errorf("%v, %q", err, got)
	}
}
