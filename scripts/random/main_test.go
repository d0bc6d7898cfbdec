package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestRandomTests(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"a_test.go": `package a
func TestOf(t *testing.T) { _ = seedstest.Of(t) }
func TestByHelper(t *testing.T) { t.Run("x", func(t *testing.T) { newRand(t) }) }
func TestByMethod(t *testing.T) { rig{}.draw(t) }
func TestOther(t *testing.T) { var seedstest int; _ = seedstest }
func BenchmarkOf(b *testing.B) { seedstest.Of(b) }`,
		"b_test.go": `package a
func newRand(t *testing.T) { seedstest.Several(t, 3) }
func (rig) draw(t *testing.T) { newRand(t) }`,
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tests, err := randomTests(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"TestByHelper", "TestByMethod", "TestOf"}; !slices.Equal(tests, want) {
		t.Errorf("random tests %v, want %v", tests, want)
	}
}

// Every package with random tests is found, with its tests.
func TestFind(t *testing.T) {
	packages, err := find(t.Context(), []string{"synclab/..."})
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, p := range packages {
		paths = append(paths, p.path)
	}
	for _, want := range []string{
		"synclab/proxier", "synclab/proxier/iptables/prefix", "synclab/bench/verify/conform", "synclab/bench/internal/verdictstest", "synclab/bench/internal/virtualtest",
	} {
		if !slices.Contains(paths, want) {
			t.Errorf("%s is not among %v", want, paths)
		}
	}
}

// A package whose tests import package seedstest but never use it is an error: its random tests would never run.
func TestNoRandomTests(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module synclab\n\ngo 1.26\n",
		"a.go":      "package a\n",
		"a_test.go": "package a\n\nimport _ \"synclab/internal/seedstest\"\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	seeds := filepath.Join(dir, "internal", "seedstest")
	if err := os.MkdirAll(seeds, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(seeds, "seedstest.go"), []byte("package seedstest\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	if packages, err := find(t.Context(), nil); err == nil {
		t.Errorf("found %v", packages)
	}
}
