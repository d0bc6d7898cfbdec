package pass

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A program that was replaced during a run does not start, whether it is named by its path or found on PATH.
func TestReplacedProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	program := filepath.Join(dir, "proxy")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(program, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	var tools Tools
	for _, name := range []string{program, "proxy"} {
		if _, err := tools.Note(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"one": "", "two": "has changed since the run began"} {
		write(name)
		for _, of := range []string{program, "proxy"} {
			if err := tools.Check(of); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), of+" "+want) {
				t.Errorf("%s with content %s: %v", of, name, err)
			}
		}
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := tools.Check(program); err == nil {
		t.Error("a program that is gone starts")
	}
	if err := tools.Check("/not/noted"); err != nil {
		t.Error(err)
	}
}
