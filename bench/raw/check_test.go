package raw

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// writtenRun writes a run of some records, and returns its folder.
func writtenRun(t *testing.T, records int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "run")
	w, err := OpenRun(dir, Run{}, false)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := w.Write(Record{Metric: FullSync, Value: 0.001 * float64(1+i), Unit: "s", Rep: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A run whose records were lost, added or replaced is not complete, wherever they were cut.
func TestChangedRecords(t *testing.T) {
	dir := writtenRun(t, 20)
	path := filepath.Join(dir, RecordsFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(whole), "\n")
	for name, c := range map[string]struct {
		text   string
		status string
		reason string
	}{
		"as written":        {string(whole), StatusComplete, ""},
		"cut at a line":     {strings.Join(lines[:12], ""), StatusChanged, "records.jsonl has 12 records, and the run wrote 20"},
		"cut in a line":     {string(whole[:len(whole)-7]), StatusChanged, "records.jsonl has 19 records, and the run wrote 20"},
		"empty":             {"", StatusChanged, "records.jsonl has 0 records, and the run wrote 20"},
		"a line more":       {string(whole) + lines[0], StatusChanged, "records.jsonl has 21 records, and the run wrote 20"},
		"another value":     {strings.Replace(string(whole), "0.003", "0.004", 1), StatusChanged, "records.jsonl has other records than the run wrote"},
		"lines out of turn": {lines[1] + lines[0] + strings.Join(lines[2:], ""), StatusChanged, "records.jsonl has other records than the run wrote"},
	} {
		if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		if run, _, err := ReadRun(dir); err != nil || run.Status != c.status || run.Reason != c.reason {
			t.Errorf("%s: status %s (%s), %v; want %s (%s)", name, run.Status, run.Reason, err, c.status, c.reason)
		}
	}
}

// A killed run is not running, in whatever folder it is.
func TestKilledRun(t *testing.T) {
	dir := t.TempDir()
	w, err := OpenRun(dir, Run{}, false)
	if err != nil {
		t.Fatal(err)
	}
	status := func() string {
		t.Helper()
		run, _, err := ReadRun(dir)
		if err != nil {
			t.Fatal(err)
		}
		return run.Status
	}
	if got := status(); got != StatusRunning {
		t.Errorf("a run that is locked is %s", got)
	}
	if err := w.reserve.Close(); err != nil { // as the kernel does when the process ends
		t.Fatal(err)
	}
	if got := status(); got != StatusInterrupted {
		t.Errorf("a run without a lock is %s", got)
	}
	if err := os.Remove(filepath.Join(dir, ReserveFile)); err != nil {
		t.Fatal(err)
	}
	if got := status(); got != StatusInterrupted {
		t.Errorf("a copied run is %s", got)
	}
}

// A newer format is refused by name, with the version that reads it.
func TestNewerFormat(t *testing.T) {
	dir := writtenRun(t, 1)
	path := filepath.Join(dir, RunFile)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	newer := strings.Replace(string(text), fmt.Sprintf(`"format": %d`, Format), fmt.Sprintf(`"format": %d`, Format+1), 1)
	newer = strings.Replace(newer, `"synclab": ""`, `"synclab": "v9.1"`, 1)
	if err := os.WriteFile(path, []byte(newer), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("run.json: it has format %d", Format+1)) || !strings.Contains(err.Error(), "v9.1") {
		t.Errorf("ReadRun = %v", err)
	}
}

// Values that nothing can have measured are refused where they stand, not where they are drawn.
func TestExtremeRecords(t *testing.T) {
	dir := writtenRun(t, 1)
	path := filepath.Join(dir, RecordsFile)
	good := `{"at":1,"rep":1,"metric":"full_sync","value":1,"unit":"s","services":10,"endpoints":2}`
	for _, bad := range []string{
		`"value":1e308`, `"value":-1e16`, `"value":1e999`, `"value":NaN`, `"at":1e300`, `"at":-1e10`, `"rep":-1`, `"rep":1000000000`,
		`"services":-5`, `"services":9000000000000000000`, `"endpoints":1e12`, `"endpoints":-1`, `"uncertainty":1e300`, `"share":1000`, `"position":-9000000000000`, `"bytes":9000000000000000000`,
	} {
		name, _, _ := strings.Cut(bad, ":")
		line := strings.Replace(good, name+":1", bad, 1)
		if line == good || !strings.Contains(line, bad) {
			line = strings.TrimSuffix(good, "}") + "," + bad + "}" // the last of two values counts
		}
		if err := os.WriteFile(path, []byte(good+"\n"+line+"\n"+good+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ReadRun(dir); err == nil || !strings.Contains(err.Error(), RecordsFile+":2:") {
			t.Errorf("%s: %v; want an error that names line 2", bad, err)
		}
	}
	// Differences may be negative, and leave the rounding of floats.
	if err := os.WriteFile(path, []byte(strings.Replace(good, `"value":1`, `"value":-1`, 1)+"\n"+strings.Replace(good, `"value":1`, `"value":-5e-324`, 1)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, all, err := ReadRun(dir); err != nil || len(all) != 2 || all[0].Value != -1 || all[1].Value != 0 {
		t.Errorf("%+v, %v", all, err)
	}
}
