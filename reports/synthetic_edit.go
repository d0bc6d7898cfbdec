package reports

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"synclab/bench/raw"
)

// pair writes two runs that are equal except for noise and for change, which alters the second one.
func pair(t *testing.T, y synthetic, change func(*synthetic)) (before, after string) {
	t.Helper()
	root := t.TempDir()
	before, after = filepath.Join(root, "before"), filepath.Join(root, "after")
	y.id = "before"
	y.write(t, before)
	y.id, y.noise = "after", y.noise+1
	y.subjects = slices.Clone(y.subjects)
	change(&y)
	y.write(t, after)
	return before, after
}

// editRun changes the run.json of a folder.
func editRun(t *testing.T, dir string, change func(*raw.Run)) {
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
