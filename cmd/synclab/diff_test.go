package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/reports/diff"
	"synclab/scenarios"
)

// writeRun makes the folder of a run of one subject with the given full syncs, in seconds.
func writeRun(t *testing.T, run raw.Run, services int, fullSyncs ...float64) string {
	t.Helper()
	dir := t.TempDir()
	run.ID, run.Status, run.Reps = filepath.Base(dir), raw.StatusComplete, len(fullSyncs)
	run.Scenario.Name = "cold-start"
	head, err := json.Marshal(run)
	if err != nil {
		t.Fatal(err)
	}
	var lines strings.Builder
	for i, seconds := range fullSyncs {
		record := raw.Record{Scenario: "cold-start", Subject: "synclab/nftables", Services: services, Endpoints: 10, Rep: i + 1,
			Metric: raw.FullSync, Value: seconds, Unit: "s"}
		if err := json.NewEncoder(&lines).Encode(record); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"run.json": string(head), "records.jsonl": lines.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The exit status shows whether a figure exceeds its threshold.
func TestDiffStatus(t *testing.T) {
	before := writeRun(t, raw.Run{}, 10, 1.00, 1.02, 1.01, 0.99, 0.98)
	slower := writeRun(t, raw.Run{Scenario: scenarios.Scenario{Thresholds: map[string]float64{"full_sync": 0.2}}}, 10, 1.15, 1.16, 1.18, 1.17, 1.14)
	few := writeRun(t, raw.Run{}, 10, 9, 9)
	other := writeRun(t, raw.Run{}, 20, 1, 1, 1, 1)
	for _, c := range []struct {
		args   string
		status int
		want   string // on stdout, or on stderr if the status is not 0
	}{
		{"--max-slower 5% --threshold full_sync=10%", exitDone, "slower, not shown to exceed 10 %"}, // runs differ by some 2 % anyway
		{"--max-slower 10% --threshold full_sync=5%", exitFailed, "beyond the threshold: synclab/nftables at 10 Services × 10: full sync from 1.00 s to 1.16 s"},
		{"", exitDone, "slower, within 20 %"}, // threshold of the scenario
		{"--threshold full_sync=off", exitDone, "slower"},
		{"--threshold all=5% -o json", exitDone, `"verdict": "slower"`},
		{"--threshold full_sync=5% -o yaml", exitFailed, "beyond the threshold"},
		{"--threshold all=5% --format github", exitDone, "<details><summary>All 1 figure</summary>"},
		{few, exitDone, "too few repetitions"},
		{before, exitDone, "the same run"},
		{other, exitUsage, "no subject in the same cell"},
		{filepath.Join(before, "nowhere"), exitUsage, "not a run"},
		{"--threshold fullsync=5%", exitUsage, "no such figure"},
		{"--threshold full_sync", exitUsage, "want FIGURE=SHARE"},
		{"--threshold full_sync=0.05", exitUsage, "want a share such as 5%"},
		{"--max-slower -3%", exitUsage, "want a share"},
		{slower + " " + slower, exitUsage, "or two runs, before and after; got 3"},
		{"--before a --after b", exitUsage, "name subjects of one run; got two runs"},
	} {
		args := append([]string{"diff", before}, strings.Fields(c.args)...)
		if !strings.HasPrefix(c.args, "/") {
			args = append(args, slower)
		}
		status, stdout, stderr := invoke(t, args...)
		text := stdout
		if c.status != exitDone {
			text = stderr
		}
		if status != c.status || !strings.Contains(text, c.want) {
			t.Errorf("diff %s: status %d, want %d and %q\n%s%s", c.args, status, c.status, c.want, stdout, stderr)
		}
		if c.status == exitUsage && stdout != "" {
			t.Errorf("diff %s prints %s", c.args, stdout)
		}
	}
}

func TestDiffOutput(t *testing.T) {
	before, after := writeRun(t, raw.Run{Seed: 1}, 10, 1, 1.01, 1.02, 1.03), writeRun(t, raw.Run{Seed: 2}, 10, 2, 2.01, 2.02, 2.03)
	status, stdout, _ := invoke(t, "diff", before, after, "-o", "json")
	var d diff.Diff
	if err := json.Unmarshal([]byte(stdout), &d); err != nil {
		t.Fatal(err)
	}
	if status != exitFailed || len(d.Rows) != 1 || d.Rows[0].Verdict != diff.Slower || !d.Rows[0].Beyond || *d.Rows[0].Ratio < 1.9 || len(d.Unlike) != 1 || d.Unlike[0].What != "seed" {
		t.Errorf("status %d, %+v", status, d)
	}
}

// Two small equal runs on a real kernel have the same counts, and a table.
func TestDiffOfRuns(t *testing.T) {
	measures(t)
	var dirs []string
	for i := range 2 {
		out := filepath.Join(t.TempDir(), fmt.Sprint("run-", i))
		status, stdout, stderr := invoke(t, "run", "cold-start", noWaits, "--services", "30", "--reps", "4", "--out", out)
		if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(stderr)
		}
		if status != exitDone {
			t.Fatalf("status %d\n%s%s", status, stdout, stderr)
		}
		dirs = append(dirs, out)
	}
	status, stdout, stderr := invoke(t, "diff", dirs[0], dirs[1], "--max-slower", "off")
	if status != exitDone || strings.Contains(stdout, "warning") || !strings.Contains(stdout, "run-0") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	d, err := diff.Compare(dirs[0], dirs[1], diff.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]diff.Delta{}
	for _, r := range d.Rows {
		seen[r.Figure] = r
	}
	for _, figure := range []string{"rules", "chains", "full_sync_bytes"} {
		if r := seen[figure]; !r.Exact || r.Verdict != diff.Same || r.Before.Value == 0 {
			t.Errorf("%s: %+v", figure, r)
		}
	}
	if r := seen["full_sync"]; r.P == nil || r.Low == nil || r.RepetitionsAfter != 4 {
		t.Errorf("full sync: %+v", r)
	}
}
