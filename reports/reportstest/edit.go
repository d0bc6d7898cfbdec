package reportstest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"synclab/bench/raw"
)

// Pair writes two runs that are equal except for noise and for change, which alters the second one.
func Pair(t *testing.T, y Run, change func(*Run)) (before, after string) {
	t.Helper()
	root := t.TempDir()
	before, after = filepath.Join(root, "before"), filepath.Join(root, "after")
	y.ID = "before"
	y.Write(t, before)
	y.ID, y.Noise = "after", y.Noise+1
	y.Subjects = slices.Clone(y.Subjects)
	change(&y)
	y.Write(t, after)
	return before, after
}

// EditRun changes the run.json of a folder.
func EditRun(t *testing.T, dir string, change func(*raw.Run)) {
	t.Helper()
	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var run raw.Run
	if err := json.Unmarshal(text, &run); err != nil {
		t.Fatal(err)
	}
	change(&run)
	if text, err = json.Marshal(run); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
