package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/scenarios"
)

// runWith makes the folder of a run that was interrupted after some records.
func runWith(t *testing.T, records ...raw.Record) (dir string) {
	t.Helper()
	scenario, err := scenarios.Load("cold-start", nil, scenarios.Sizes{})
	if err != nil {
		t.Fatal(err)
	}
	dir = filepath.Join(t.TempDir(), "run")
	w, err := raw.OpenRun(dir, raw.Run{ID: "run", Scenario: *scenario, Subjects: []string{"synclab/nftables"}, Reps: 1}, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(records...); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(raw.StatusInterrupted, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The report of a run that ended before its first sync has no numbers, and a message says so.
func TestReportOfNoSync(t *testing.T) {
	sync := raw.Record{Scenario: "cold-start", Subject: "synclab/nftables", Services: 10, Rep: 1, Step: "create", Metric: raw.FullSync, Value: 0.25, Unit: "s"}
	for _, c := range []struct {
		name    string
		records []raw.Record
		said    bool
	}{{"nothing", nil, true}, {"a sync", []raw.Record{sync}, false}} {
		status, _, stderr := invoke(t, "report", "--no-png", runWith(t, c.records...))
		if said := strings.Contains(stderr, "no sync was measured"); status != exitDone || said != c.said {
			t.Errorf("%s: status %d, %s; want a message: %v", c.name, status, stderr, c.said)
		}
	}
}

// A report is written into the folder of another user only with --out. Without it, the report is in a folder of one's own.
func TestReportOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a folder to another user")
	}
	dir, here := runWith(t), t.TempDir()
	t.Chdir(here)
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	theirs, ours := filepath.Join(dir, "index.html"), filepath.Join(here, "synclab-report-run", "index.html")
	status, stdout, stderr := invoke(t, "report", "--no-png", dir)
	if _, err := os.Stat(theirs); status != exitDone || err == nil || !strings.Contains(stdout, "report: synclab-report-run/index.html") {
		t.Errorf("status %d, %s%s; a page in their folder: %v", status, stdout, stderr, err == nil)
	}
	if _, err := os.Stat(ours); err != nil {
		t.Error(err)
	}
	if status, _, stderr := invoke(t, "report", "--no-png", dir, "--out", dir); status != exitDone {
		t.Errorf("--out: status %d, %s", status, stderr)
	}
	if _, err := os.Stat(theirs); err != nil {
		t.Errorf("--out: %v", err)
	}
	if err := os.Chown(filepath.Join(here, "synclab-report-run"), 65534, 65534); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := invoke(t, "report", "--no-png", dir); status == exitDone || !strings.Contains(stderr, "--out") {
		t.Errorf("no folder of one's own: status %d, %s", status, stderr)
	}
}
