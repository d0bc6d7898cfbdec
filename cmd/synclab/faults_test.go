package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench/fault"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// smallFaults writes the library's scenario faults, small and short. It leaves out the kinds that package fault tests: those
// of the API, which take long, and a full conntrack table, which other tests would notice.
func smallFaults(t *testing.T) (file string) {
	t.Helper()
	s, err := scenarios.Load("faults", nil, scenarios.Sizes{Services: 20, Endpoints: 3})
	if err != nil {
		t.Fatal(err)
	}
	s.Shape.Types, s.Shape.WithoutEndpoint = map[string]float64{"NodePort": 0.2}, 0.1
	s.Proxy.SyncPeriod, s.Proxy.MinSyncPeriod = 300*time.Millisecond, 50*time.Millisecond
	without := false
	s.Steps = slices.DeleteFunc(s.Steps, func(step scenarios.Step) bool {
		switch f := step.Fault; {
		case step.Churn != nil:
			step.Churn.Rate, step.Churn.Events = 20, min(step.Churn.Events, 8)
		case step.Settle != nil:
			*step.Settle = scenarios.Settle{Timeout: time.Minute}
		case f != nil && f.Kind != scenarios.FaultClear:
			without = fault.Of(f.Kind).OfAPI() || fault.Of(f.Kind).FillsConntrack
			f.Bytes *= 16 // no limit may end the subject
			if f.For < time.Hour {
				f.For = min(f.For, 500*time.Millisecond)
			}
		}
		return without || step.Traffic != nil || step.Check != nil
	})
	s.Steps = append(s.Steps, scenarios.Step{Fault: &scenarios.Fault{Kind: scenarios.FaultClear}}, scenarios.Step{Settle: &scenarios.Settle{Timeout: time.Minute}},
		scenarios.Step{Check: &scenarios.Check{}})
	text, err := s.YAML()
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "faults.yaml")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// Each fault happens, is detected and repaired, and leaves nothing behind: neither its own chains nor a broken invariant.
func TestFaults(t *testing.T) {
	measures(t)
	for _, name := range []string{"synclab/iptables-legacy", "synclab/iptables-nft-tree", "synclab/nftables"} {
		t.Run(name, func(t *testing.T) {
			about, err := subject.Parse(name)
			if err != nil || about.Available() != nil {
				t.Skipf("%v %v", err, about.Available())
			}
			env := &pass.Env{Assignment: pass.Assignment{Feed: raw.FeedAPI, Subject: name}, About: about}
			out := filepath.Join(t.TempDir(), "run")
			status, stdout, stderr := invoke(t, "run", smallFaults(t), "--feed", env.Feed, "--subjects", name, "--reps", "1",
				"--dump-iptables", "--out", out)
			if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
				t.Skip(stderr)
			}
			if status != exitDone {
				t.Fatalf("status %d\n%s%s", status, stdout, stderr)
			}
			if strings.Contains(stdout, "FOREIGN-") || strings.Contains(stdout, "foreign-writer") {
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
				if step.Fault == nil || step.Fault.Kind == scenarios.FaultClear {
					continue
				}
				want := 1
				if fault.Spares(env, step.Fault) != "" {
					want = 0
				}
				churns := i+1 < len(run.Scenario.Steps) && run.Scenario.Steps[i+1].Churn != nil
				for metric, of := range counts {
					planted := fault.Of(step.Fault.Kind).Planted != ""
					// A change may be the cause of a sync. In mangle, nothing is missing: these proxiers have only an empty chain there.
					optional := metric == raw.FaultDetected && (churns && !planted || step.Fault.Table == "mangle")
					if n := ofStep(of, i+1); n != want && !(optional && n == 0) {
						t.Errorf("step %d, %+v: %s is recorded %d times, want %d", i+1, *step.Fault, metric, n, want)
					}
				}
			}
		})
	}
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
