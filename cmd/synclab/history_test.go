package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/history"
)

// writeRuns writes six runs of full syncs of about a second, of which the last takes slower times as long.
func writeRuns(t *testing.T, slower float64) (dirs []string) {
	t.Helper()
	for i, middle := range []float64{1, 1.01, 0.99, 1.02, 0.98, slower} {
		run := raw.Run{Started: time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)}
		dirs = append(dirs, writeRun(t, run, 10, middle*0.99, middle*1.01, middle, middle))
	}
	return dirs
}

// The exit status of --check shows whether the newest run starts a worse level.
func TestHistoryStatus(t *testing.T) {
	same, worse := writeRuns(t, 1), writeRuns(t, 1.2)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(t.TempDir(), "history.html")
	for _, c := range []struct {
		dirs   []string
		args   string
		status int
		want   string // on stdout, or on stderr if the status is not 0
	}{
		{worse, "--check --page " + page, exitFailed, "a new worse level: synclab/nftables at 10 Services × 10: full sync from 1.00 s to 1.20 s"},
		{worse, "", exitDone, "slower, new"},
		{worse, "--format github", exitDone, "✗ synclab/nftables at 10 Services × 10: full sync"},
		{worse, "--check --max-slower 30%", exitDone, "slower, within 30 %"},
		{worse, "--check --threshold full_sync=off", exitDone, "1 with a change"},
		{worse, "--by kernel", exitDone, "too few points"},
		{worse[:5], "--check", exitDone, "no change shown"},
		{same, "--check -o yaml", exitDone, "figure: full_sync"},
		{worse, text, exitUsage, "neither a history nor a summary.json"},
		{worse, "--by day", exitUsage, "want run, synclab, kube-proxy or kernel"},
		{worse, "--threshold fullsync=5%", exitUsage, "no such figure"},
		{nil, "", exitUsage, "wants run folders"},
	} {
		status, stdout, stderr := invoke(t, append(append([]string{"history"}, c.dirs...), strings.Fields(c.args)...)...)
		out := stdout
		if c.status != exitDone {
			out = stderr
		}
		if status != c.status || !strings.Contains(strings.Join(strings.Fields(out), " "), c.want) {
			t.Errorf("history %s: status %d, want %d and %q\n%s%s", c.args, status, c.status, c.want, stdout, stderr)
		}
	}
	if html, err := os.ReadFile(page); err != nil || !strings.Contains(string(html), "<svg") {
		t.Errorf("the page: %d bytes, %v", len(html), err)
	}
}

// TestHistoryFile: complete runs are appended, and a file that is no history is refused before anything runs.
func TestHistoryFile(t *testing.T) {
	measures(t)
	file := filepath.Join(t.TempDir(), "history.jsonl")
	for range 2 {
		status, _, stderr := invoke(t, "run", "cold-start", noWaits, "--services", "10", "--reps", "1", "--out", filepath.Join(t.TempDir(), "run"), "--history", file)
		if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(stderr)
		}
		if status != exitDone {
			t.Fatalf("status %d\n%s", status, stderr)
		}
	}
	status, stdout, stderr := invoke(t, "history", file, "-o", "json")
	var h history.History
	if err := json.Unmarshal([]byte(stdout), &h); err != nil {
		t.Fatalf("status %d: %v\n%s", status, err, stderr)
	}
	if len(h.Points) != 2 || len(h.Trends) < 3 || len(h.Trends[0].Values) != 2 {
		t.Errorf("%d points, %d trends", len(h.Points), len(h.Trends))
	}
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, append(before, "text\n"...), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "run")
	if status, _, stderr := invoke(t, "run", "cold-start", "--out", out, "--history", file); status != exitUsage || !strings.Contains(stderr, "history.jsonl:3: not a line of a history") {
		t.Errorf("status %d\n%s", status, stderr)
	}
	if _, err := os.Stat(out); err == nil {
		t.Error("the run began")
	}
	if status, _, stderr := invoke(t, "run", "cold-start", "--history", file, "--shard", "1/2"); status != exitUsage || !strings.Contains(stderr, "not for shards") {
		t.Errorf("status %d\n%s", status, stderr)
	}
}
