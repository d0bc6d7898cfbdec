package main

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"synclab/bench"
	"synclab/proxier"
)

// A run starts this program again, as a worker and as a proxier: then the test binary is the program.
func TestMain(m *testing.M) {
	if os.Getenv(envProgram) != "" || len(os.Args) > 1 && slices.Contains([]string{"worker", "proxy", "rules-worker"}, os.Args[1]) {
		main()
	}
	os.Exit(m.Run())
}

// envProgram makes the test binary the program, whatever its arguments are.
const envProgram = "SYNCLAB_TEST_PROGRAM"

// runScenario runs a small scenario and reads what it wrote.
func runScenario(t *testing.T, args ...string) (bench.Run, []bench.Record) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	defer time.AfterFunc(5*time.Minute, stacksOfWorkers).Stop()
	status, stdout, stderr := invoke(t, append(args, "--out", out, "--reps", "1")...)
	if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(stderr)
	}
	if status != exitDone {
		t.Fatalf("%v: status %d\n%s%s", args, status, stdout, stderr)
	}
	run, records, err := bench.ReadRun(out)
	if err != nil {
		t.Fatal(err)
	}
	return run, records
}

// stacksOfWorkers ends this process's workers, which print what their goroutines wait for.
func stacksOfWorkers() {
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range processes {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			continue
		}
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
		_, rest, _ := strings.Cut(string(stat), ") ") // state, parent
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
}

func count(records []bench.Record, subject string, metric bench.Metric) int {
	n := 0
	for _, r := range records {
		if r.Subject == subject && r.Metric == metric {
			n++
		}
	}
	return n
}

// The proxier as a process of its own is measured from outside, and tells of its phases itself; the kernel holds what
// the closed form says.
func TestRunThroughTheAPI(t *testing.T) {
	var subjects []string
	for _, subject := range bench.Subjects() {
		if subject.Proxier == bench.Synclab && subject.Available() == nil {
			subjects = append(subjects, subject.Name)
		}
	}
	_, records := runScenario(t, "run", "steady-churn", "--services", "10", "--endpoints", "3", "--feed", "api", "--subjects", strings.Join(subjects, ","),
		"--set", "proxy.minSyncPeriod=50ms", "--set", "steps.churn.events=5", "--set", "steps.churn.rate=10", "--set", "steps.probe.samples=10")
	for _, subject := range subjects {
		for _, metric := range []bench.Metric{bench.ColdStart, bench.FullSync, bench.Plan, bench.Encode, bench.Restore, bench.Restores, bench.ToolSys, bench.SubjectCPU, bench.PeakRSS, bench.FirstPacket} {
			if count(records, subject, metric) == 0 {
				t.Errorf("%s: no %s", subject, metric)
			}
		}
		about, err := bench.ParseSubject(subject)
		if calls := count(records, subject, bench.ToolCalls); err != nil || calls > 0 != (about.Backend == proxier.Iptables) {
			t.Errorf("%s: %d tool_calls, %v", subject, calls, err)
		}
		if n := count(records, subject, bench.NetworkProgrammingLatency); n != 5 {
			t.Errorf("%s: %d of 5 changes became visible", subject, n)
		}
		syncs := count(records, subject, bench.FullSync) + count(records, subject, bench.PartialSync)
		if restores := count(records, subject, bench.Restore); restores != syncs {
			t.Errorf("%s: %d restores in %d syncs", subject, restores, syncs)
		}
		rules := map[string]float64{}
		for _, r := range records {
			if r.Subject != subject {
				continue
			}
			place := r.Step + r.Family + r.Table
			switch r.Metric {
			case bench.RulesKernel:
				rules[place] = r.Value
			case bench.RulesClosedForm:
				if rules[place] != r.Value || r.Value == 0 {
					t.Errorf("%s: %s has %v rules, the closed form says %v", subject, place, rules[place], r.Value)
				}
			}
		}
	}
}
