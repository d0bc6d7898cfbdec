package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/reports/agreement"
	"synclab/scenarios"
)

// recordedRun makes the folder of a run of one subject, with one sync of 40 ms per change.
func recordedRun(t *testing.T) string {
	t.Helper()
	s := scenarios.Scenario{
		Name: "recorded", Seed: 1, Shape: scenarios.Shape{Services: 10, Endpoints: scenarios.Endpoints{Count: 2}},
		Proxy: scenarios.Proxy{MinSyncPeriod: 100 * time.Millisecond},
		Steps: []scenarios.Step{{Create: &scenarios.Create{}}, {Settle: &scenarios.Settle{}}, {Churn: &scenarios.Churn{Rate: 1, Events: 10}}},
	}
	s.Fill()
	dir := filepath.Join(t.TempDir(), "recorded")
	w, err := raw.OpenRun(dir, raw.Run{ID: "recorded", Scenario: s, Subjects: []string{"kube-proxy/nftables"}, Reps: 1, Feed: raw.FeedAPI}, false)
	if err != nil {
		t.Fatal(err)
	}
	put := func(metric raw.Metric, at, value float64, step string, sync int, kind string) {
		r := raw.Record{Metric: metric, At: at, Value: value, Unit: "s", Step: step, Sync: sync, Kind: kind, Family: "IPv4", Rep: 1,
			Scenario: s.Name, Subject: "kube-proxy/nftables", Services: 10, Endpoints: 2}
		if err := w.Write(r); err != nil {
			t.Fatal(err)
		}
	}
	put(raw.FullSync, 1, 0.1, "2:settle", 1, "full")
	put(raw.ChangesApplied, 2, 10, "3:churn", 0, "")
	for i := range 10 {
		end := 2 + float64(i) + 0.045
		put(raw.PartialSync, end, 0.04, "3:churn", i+2, "partial")
		put(raw.ToolUser, end, 0.02, "3:churn", i+2, "partial")
		put(raw.NetworkProgrammingLatency, end, 0.045, "3:churn", 0, "")
	}
	if err := w.Close(raw.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestSimulate(t *testing.T) {
	dir := recordedRun(t)
	t.Chdir(t.TempDir()) // a folder without a calibration
	status, stdout, stderr := invoke(t, "simulate", dir, "--seeds", "2", "-o", "json")
	if status != exitDone || !strings.Contains(stderr, "only its own sync times are compared") {
		t.Fatalf("status %d, stderr %s", status, stderr)
	}
	var a agreement.Agreement
	if err := json.Unmarshal([]byte(stdout), &a); err != nil {
		t.Fatal(err)
	}
	if len(a.Cells) != 1 || a.Cells[0].Changes != 10 || len(a.Cells[0].Simulations) != 1 || !a.Cells[0].Simulations[0].Within || a.Cells[0].Simulations[0].Syncs.Value != 10 {
		t.Errorf("%+v", a)
	}
}

func TestSimulateUsage(t *testing.T) {
	empty, dir := t.TempDir(), recordedRun(t)
	t.Chdir(empty)
	for _, c := range []struct{ args, want string }{
		{"simulate " + empty, "is not the folder of a run"},
		{"simulate", "no run in runs/ yet"},
		{"simulate " + dir + " --seeds 0", "--seeds 0: want at least 1"},
		{"simulate " + dir + " --model " + empty, "cost model"},
	} {
		if status, _, stderr := invoke(t, strings.Fields(c.args)...); status != exitUsage || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s", c.args, status, stderr)
		}
	}
}
