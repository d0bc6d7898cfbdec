package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// A sweep in three shards measures the same passes as in one piece, and its report has the same rule counts.
func TestShardsAreTheSweep(t *testing.T) {
	measures(t)
	dir := t.TempDir()
	const file = "testdata/tiny.yaml"
	subjects := "synclab/nftables"
	if about, err := subject.Parse("synclab/iptables-legacy"); err == nil && about.Available() == nil {
		subjects += ",synclab/iptables-legacy"
	}
	whole, sweep := filepath.Join(dir, "whole"), filepath.Join(dir, "sweep")
	args := func(more ...string) []string {
		return append([]string{"run", file, "--subjects", subjects, "--reps", "2", "--set", "proxy.minSyncPeriod=50ms"}, more...)
	}
	must := func(args ...string) (stdout, stderr string) {
		t.Helper()
		status, stdout, stderr := invoke(t, args...)
		if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
			t.Skip(stderr)
		}
		if status != exitDone {
			t.Fatalf("%v: status %d\n%s%s", args, status, stdout, stderr)
		}
		return stdout, stderr
	}
	must(args("--out", whole)...)
	must(args("--out", sweep, "--shard", "0/3")...)
	must(args("--out", sweep, "--shard", "2/3")...)
	if _, stderr := must("report", "--no-png", sweep); !strings.Contains(stderr, "shard 1 of 3 is missing") {
		t.Errorf("stderr does not name the missing shard: %s", stderr)
	}
	must(args("--out", sweep, "--shard", "1/3")...)
	if stdout, _ := must(args("--out", sweep, "--shard", "2/3")...); !strings.Contains(stdout, "complete already") {
		t.Errorf("a complete shard: %s", stdout)
	}

	_, measured, err := raw.ReadRun(whole)
	if err != nil {
		t.Fatal(err)
	}
	var parts []raw.Record
	for _, shard := range records.ShardsIn(sweep) {
		_, measured, err := raw.ReadRun(shard)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, measured...)
	}
	want, got := measuredPasses(measured), measuredPasses(parts)
	if !slices.Equal(want, got) || len(want) != 4*len(strings.Split(subjects, ",")) {
		t.Errorf("in one piece\n%s\nin shards\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
	if want, got := ruleRows(t, whole), ruleRows(t, sweep); !slices.Equal(want, got) || len(want) == 0 {
		t.Errorf("rules in one piece\n%s\nin shards\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

// measuredPasses returns the cells, repetitions and subjects of records.
func measuredPasses(records []raw.Record) []string {
	var all []string
	for _, r := range records {
		all = append(all, fmt.Sprint(r.Params, " ", r.Rep, " ", r.Subject))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ruleRows returns the rule counts of a report.
func ruleRows(t *testing.T, dir string) []string {
	t.Helper()
	status, stdout, stderr := invoke(t, "report", "--no-png", "-o", "json", dir)
	var summary sections.Summary
	if err := json.Unmarshal([]byte(stdout), &summary); err != nil || status != exitDone {
		t.Fatalf("report %s: status %d, %v\n%s", dir, status, err, stderr)
	}
	var rows []string
	for _, row := range summary.Rows {
		switch row.Metric {
		case raw.RulesKernel, raw.RulesExpected:
			rows = append(rows, fmt.Sprintf("%s %d %s %s: %d values, %v to %v", row.Series, row.Cell.Services, row.Metric, row.Table, row.N, row.Min, row.Max))
		}
	}
	return rows
}

func TestShardFlags(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--shard", "3/3"}, `--shard "3/3": want I/N with I from 0 to N-1`},
		{[]string{"--shard", "-1/3"}, "want I/N"},
		{[]string{"--shard", "3"}, "want I/N"},
		{[]string{"--shard", "0/0"}, "want I/N"},
		{[]string{"--shard", "1/2", "--kubeconfig", "x"}, "--kubeconfig takes no shards"},
	} {
		status, stdout, stderr := invoke(t, append([]string{"run"}, c.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: status %d, %s%s; want %q", c.args, status, stdout, stderr, c.want)
		}
	}
}

// With --dry-run, the size of a shard or of a whole run is printed, and nothing is run.
func TestSizeOfShard(t *testing.T) {
	args := []string{"run", "size-sweep", "--reps", "3", "--dry-run", "--subjects", "synclab/nftables"}
	status, whole, stderr := invoke(t, args...)
	if status != exitDone || stderr != "" || !strings.Contains(whole, "the run of sweep ") || !strings.Contains(whole, ": 18 of 18 repetitions of cells") {
		t.Errorf("status %d\n%s%s", status, whole, stderr)
	}
	status, part, stderr := invoke(t, append(args, "--shard", "1/18")...)
	if status != exitDone || stderr != "" || !strings.Contains(part, ": 1 of 18 repetitions of cells") {
		t.Errorf("status %d\n%s%s", status, part, stderr)
	}
}
