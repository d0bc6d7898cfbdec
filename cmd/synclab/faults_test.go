package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/raw"
	"synclab/bench/subject"
)

// Each fault happens, is detected and repaired, and leaves nothing behind.
func TestFaults(t *testing.T) {
	for _, name := range []string{"synclab/iptables-legacy", "synclab/iptables-nft-tree", "synclab/nftables"} {
		t.Run(name, func(t *testing.T) {
			if about, err := subject.Parse(name); err != nil || about.Available() != nil {
				t.Skipf("%v %v", err, about.Available())
			}
			out := filepath.Join(t.TempDir(), "run")
			status, stdout, stderr := invoke(t, "run", "./testdata/faults.yaml", "--feed", "api", "--subjects", name, "--reps", "1",
				"--dump-iptables", "--out", out)
			if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
				t.Skip(stderr)
			}
			if status != exitDone {
				t.Fatalf("status %d\n%s%s", status, stdout, stderr)
			}
			if strings.Contains(stdout, "FOREIGN") || strings.Contains(stdout, "foreign-writer") {
				t.Errorf("foreign rules are left:\n%s", stdout)
			}
			run, records, err := raw.ReadRun(out)
			if err != nil {
				t.Fatal(err)
			}
			counts := map[raw.Metric]map[string]int{raw.FaultDuration: {}, raw.FaultDetected: {}, raw.FaultRepaired: {}}
			for _, r := range records {
				switch {
				case r.Metric == raw.Violation || r.Metric == raw.Exceeded || r.Metric == raw.FaultRepaired && r.Error != "":
					t.Errorf("%s %s: %s", r.Metric, r.Fault, r.Error)
				case counts[r.Metric] != nil:
					counts[r.Metric][r.Fault]++
				}
			}
			for i, step := range run.Scenario.Steps {
				if step.Fault == nil || step.Fault.Kind == "clear" {
					continue
				}
				want := 1
				if unaffected(name, step.Fault.Kind, step.Fault.Table) {
					want = 0
				}
				churns := i+1 < len(run.Scenario.Steps) && run.Scenario.Steps[i+1].Churn != nil
				for metric, of := range counts {
					injected := slices.Contains([]string{"restore-fails", "restore-killed", "rule-refused"}, step.Fault.Kind)
					optional := metric == raw.FaultDetected && churns && !injected // a change may be the cause of a sync
					if n := ofStep(of, i+1); n != want && !(optional && n == 0) {
						t.Errorf("step %d, %+v: %s is recorded %d times, want %d", i+1, *step.Fault, metric, n, want)
					}
				}
			}
		})
	}
}

// unaffected reports whether a fault cannot affect a subject.
func unaffected(subject, kind, table string) bool {
	switch subject {
	case "synclab/nftables":
		return slices.Contains([]string{"restore-fails", "restore-killed", "rule-refused", "lock-held"}, kind) || table == "filter"
	case "synclab/iptables-nft-tree":
		return kind == "lock-held"
	}
	return false
}

// ofStep counts the records of one step's faults.
func ofStep(counts map[string]int, step int) int {
	n := 0
	for fault, times := range counts {
		if strings.HasPrefix(fault, fmt.Sprintf("%d:", step)) {
			n += times
		}
	}
	return n
}
