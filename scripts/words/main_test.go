package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err, "; install the package git")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.go":             "package a\n\n// nobody is told of it.\n",
		"b.md":             "Plain.\n\nWhat Stands in a table.\n",
		"data.bin":         "nobody\n",
		"docs/sample/x.md": "nobody\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v %s", args[0], err, out)
		}
	}
	var out strings.Builder
	found, err := check(dir, &out)
	if err != nil || found != 3 {
		t.Errorf("%d found, %v; want 3:\n%s", found, err, &out)
	}
	for _, place := range []string{`a.go:3: "nobody"`, `a.go:3: "is told"`, `b.md:3: "What Stands"`} {
		if !strings.Contains(out.String(), place) {
			t.Errorf("%s is not found:\n%s", place, &out)
		}
	}
}

func TestParse(t *testing.T) {
	for _, text := range []string{"no tab", "(\tunbalanced"} {
		if _, err := parse(text); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}
