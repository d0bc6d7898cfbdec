package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"synclab/bench/lab/cgroup"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/subject/visible"
	"synclab/proxier/iptables"
)

// A run starts this program again, as a worker and as a proxier. In tests, the test binary is the program.
func TestMain(m *testing.M) {
	if os.Getenv(envProgram) != "" || len(os.Args) > 1 && slices.Contains([]string{worker, "proxy", rulesWorker, loopsWorker}, os.Args[1]) {
		main()
	}
	os.Exit(m.Run())
}

// envProgram makes the test binary the program, for any arguments.
const envProgram = "SYNCLAB_TEST_PROGRAM"

// measures is for tests that run subjects. They wait for most of their time, so they run beside each other.
func measures(t *testing.T) {
	t.Helper()
	skipShort(t)
	t.Parallel()
}

// skipShort skips a test that takes seconds if there is no time for it.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: it takes seconds")
	}
}

// runScenario runs a small scenario and reads its records. If the machine was too busy for flows that bypass the rules,
// it runs once more.
func runScenario(t *testing.T, args ...string) (raw.Run, []raw.Record) {
	t.Helper()
	run, records := runScenarioOnce(t, args...)
	if slices.ContainsFunc(records, func(r raw.Record) bool { return r.Metric == raw.ControlFailure }) {
		t.Log("the machine was too busy for flows that no rule concerns: the scenario runs again, once")
		run, records = runScenarioOnce(t, args...)
	}
	return run, records
}

// noWaits shortens the waits of a scenario between isolated changes.
const noWaits = "--set=proxy.minSyncPeriod=20ms"

// patience is a --max-time that no subject may exceed. Then a subject that does not converge ends with its own errors.
const patience = "--max-time=3m"

func runScenarioOnce(t *testing.T, args ...string) (raw.Run, []raw.Record) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "run")
	defer time.AfterFunc(hangs, stacksOfWorkers).Stop()
	status, stdout, stderr := invoke(t, append(args, "--out", out, "--reps", "1")...)
	if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(stderr)
	}
	if status != exitDone {
		t.Fatalf("%v: status %d\n%s%s", args, status, stdout, stderr)
	}
	run, records, err := raw.ReadRun(out)
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(records, func(r raw.Record) bool { return r.Metric == raw.Exceeded }); i >= 0 && slices.Contains(args, patience) {
		t.Fatalf("%v: %s: %s", args, records[i].Subject, records[i].Error)
	}
	return run, records
}

// hangs is after which time a scenario of some Services hangs.
const hangs = 5 * time.Minute

// stacksOfWorkers ends this process's workers that hang, which print the stacks of their goroutines. Those of other tests, that
// began later, go on.
func stacksOfWorkers() {
	var up float64 // seconds since the machine started
	text, _ := os.ReadFile("/proc/uptime")
	_, _ = fmt.Sscan(string(text), &up)
	processes, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range processes {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		stat, _ := os.ReadFile(path)
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest) // state, parent, …; the 20th is when it started, in hundredths of a second
		if len(fields) < 20 || fields[1] != strconv.Itoa(os.Getpid()) {
			continue
		}
		if began, err := strconv.ParseFloat(fields[19], 64); err == nil && up-began/100 > (hangs-10*time.Second).Seconds() {
			_ = syscall.Kill(pid, syscall.SIGQUIT)
		}
	}
}

func count(records []raw.Record, subject string, metric raw.Metric) int {
	n := 0
	for _, r := range records {
		if r.Subject == subject && r.Metric == metric {
			n++
		}
	}
	return n
}

// A proxier in a separate process is measured from outside, and reports its phases itself. The kernel has as many rules
// as the closed form.
func TestRunThroughTheAPI(t *testing.T) {
	measures(t)
	var subjects []string
	for _, about := range subject.Own() {
		if about.Available() == nil {
			subjects = append(subjects, about.Name)
		}
	}
	_, records := runScenario(t, "run", "steady-churn", "--services", "10", "--endpoints", "3", "--feed", "api", "--subjects", strings.Join(subjects, ","),
		"--set", "proxy.minSyncPeriod=50ms", "--set", "steps.churn.events=5", "--set", "steps.churn.rate=10", "--set", "steps.probe.samples=10")
	for _, name := range subjects {
		for _, metric := range []raw.Metric{raw.ColdStart, raw.FullSync, raw.Plan, raw.Encode, raw.Restore, raw.Restores, raw.ToolSys, raw.SubjectCPU, raw.PeakRSS, raw.FirstPacket} {
			if count(records, name, metric) == 0 {
				t.Errorf("%s: no %s", name, metric)
			}
		}
		about, err := subject.Parse(name)
		if calls := count(records, name, raw.ToolCalls); err != nil || calls > 0 != about.HasTools() {
			t.Errorf("%s: %d tool_calls, %v", name, calls, err)
		}
		if n := count(records, name, raw.NetworkProgrammingLatency); n != 5 {
			t.Errorf("%s: %d of 5 changes became visible", name, n)
		}
		syncs := count(records, name, raw.FullSync) + count(records, name, raw.PartialSync)
		if restores := count(records, name, raw.Restore); restores != syncs {
			t.Errorf("%s: %d restores in %d syncs", name, restores, syncs)
		}
		rules := map[string]float64{}
		for _, r := range records {
			if r.Subject != name {
				continue
			}
			place := r.Step + r.Family + r.Table
			switch r.Metric {
			case raw.RulesKernel:
				rules[place] = r.Value
			case raw.RulesExpected:
				if rules[place] != r.Value || r.Value == 0 {
					t.Errorf("%s: %s has %v rules, the closed form has %v", name, place, rules[place], r.Value)
				}
			}
		}
	}
}

// Backend userspace is measured by its rules and its endpoint log, in both families: cold start, changes, a restart, and
// handshakes of either protocol. A change of endpoints runs no tool.
func TestUserspaceIsMeasured(t *testing.T) {
	measures(t)
	const name = "synclab/userspace"
	if about, err := subject.Parse(name); err != nil || about.Available() != nil {
		t.Skip(err, about.Available())
	}
	common := []string{"--services", "20", "--endpoints", "3", "--subjects", name, "--set", "shape.families=[IPv4,IPv6]", "--set", "proxy.minSyncPeriod=50ms"}
	for scenario, sets := range map[string][]string{
		"steady-churn": {"steps.react.count=3", "steps.churn.events=5", "steps.churn.rate=10", "steps.probe.samples=10"},
		"restart":      nil,
		"handshakes":   {"sweep=[]", "steps.probe.samples=20"},
		"connections":  {"sweep=[]", "steps.connections.for=250ms"},
	} {
		t.Run(scenario, func(t *testing.T) {
			args := append([]string{"run", scenario}, common...)
			for _, set := range sets {
				args = append(args, "--set", set)
			}
			run, records := runScenario(t, args...)
			if run.Feed != raw.FeedAPI || count(records, name, raw.ColdStart) != 1 || count(records, name, raw.FullSync) < 2 {
				t.Errorf("feed %s, %d cold starts, %d full syncs", run.Feed, count(records, name, raw.ColdStart), count(records, name, raw.FullSync))
			}
			methods := map[string]bool{}
			for _, r := range records {
				if r.Metric == raw.FirstPacket {
					methods[r.Family+r.Method] = true
				}
			}
			switch scenario {
			case "steady-churn":
				visible := []int{count(records, name, raw.NetworkProgrammingLatency), count(records, name, raw.Reaction), count(records, name, raw.PartialSync)}
				if visible[0] == 0 || visible[1] == 0 || visible[2] == 0 || count(records, name, raw.RulesEvaluated) == 0 {
					t.Errorf("latencies, reactions and partial syncs: %v", visible)
				}
				if restores := count(records, name, raw.Restore); restores >= visible[2] {
					t.Errorf("%d restores, %d partial syncs", restores, visible[2])
				}
			case "restart":
				if n := count(records, name, raw.FullSync); n < 4 {
					t.Errorf("%d full syncs of two processes and families", n)
				}
			case "connections": // three positions and an endpoint, in two families
				if count(records, name, raw.ConnectionsPerSecond) != 8 || count(records, name, raw.ConnectionCPU) != 8 || count(records, name, raw.Throughput) != 8 {
					t.Errorf("%d turns of connections", count(records, name, raw.ConnectionsPerSecond))
				}
			case "handshakes":
				if !methods["IPv4handshake"] || !methods["IPv6handshake"] || !methods["IPv4echo"] || !methods["IPv6echo"] {
					t.Errorf("first packets of %v", methods)
				}
			}
		})
	}
}

// A subject whose rules no reader knows is measured by packets: its start, isolated changes and churn. Here it is backend
// userspace, which the lab would know by its name.
func TestUnknownRulesAreMeasuredByPackets(t *testing.T) {
	measures(t)
	const name = "exec:mine"
	if about, err := subject.Parse("synclab/userspace"); err != nil || about.Available() != nil {
		t.Skip(err, about.Available())
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	_, records := runScenario(t, "run", "steady-churn", "--services", "20", "--endpoints", "3",
		"--subjects", name+"="+program+" proxy --config={config} --backend=userspace --families=IPv4", "--set", "shape.protocols.UDP=0.5",
		"--set", "steps.react.count=3", "--set", "steps.churn.events=5", "--set", "steps.churn.rate=10", "--set", "steps.probe.samples=10")
	if n := count(records, name, raw.ColdStart); n != 1 || count(records, name, raw.Exceeded) > 0 {
		t.Errorf("%d cold starts, %d times stopped", n, count(records, name, raw.Exceeded))
	}
	changes, seen := 0.0, 0
	for _, r := range records {
		switch r.Metric {
		case raw.ChangesApplied:
			changes += r.Value
		case raw.Reaction, raw.NetworkProgrammingLatency, raw.ColdStart, raw.ColdStartShare:
			if r.Method != raw.ByPackets || r.Value <= 0 {
				t.Errorf("%+v", r)
			}
			if r.Metric != raw.ColdStart && r.Metric != raw.ColdStartShare {
				seen++
			}
		case raw.ChangeReverted:
			seen++
		}
	}
	if changes == 0 || float64(seen) != changes {
		t.Errorf("%d of %v changes were seen", seen, changes)
	}
}

// With Cilium's programs for sockets, flows reach endpoints, also while the control plane restarts, and first packets take
// their time. No cgroup is left.
func TestCiliumCarriesPackets(t *testing.T) {
	measures(t)
	const name = "cilium/lb"
	if err := errors.Join(visible.HasBPF(), cgroup.MayJoin()); err != nil {
		t.Skip(err)
	}
	if _, err := upstream.Cilium(t.Context(), upstream.Options{CachedOnly: true}); errors.Is(err, upstream.ErrNotBuilt) {
		t.Skip("no Cilium here; 'synclab build cilium' builds it")
	}
	parent, err := cgroup.Own()
	if err != nil {
		t.Fatal(err)
	}
	groups := filepath.Join(parent, "synclab-joined-*")
	before, _ := filepath.Glob(groups)
	_, records := runScenario(t, "run", "disruption", "--services", "20", "--subjects", name)
	flows := 0
	for _, r := range records {
		if r.Metric == raw.Flow {
			flows++
			if r.Error != "" || r.Outcome != "" {
				t.Errorf("%+v", r)
			}
		}
	}
	if flows < 100 || count(records, name, raw.Reachable) == 0 || count(records, name, raw.Exceeded) > 0 {
		t.Errorf("%d flows, %d changes reachable, %d times stopped", flows, count(records, name, raw.Reachable), count(records, name, raw.Exceeded))
	}
	_, records = runScenario(t, "run", "traversal", "--services", "20", "--subjects", name)
	if count(records, name, raw.FirstPacket) == 0 {
		t.Error("no first packets")
	}
	if left, _ := filepath.Glob(groups); len(left) > len(before) {
		t.Errorf("cgroups %q, before %q", left, before)
	}
}

// The tools of another root are used by all subjects, and a root without tools is refused before anything runs. Here it is
// this machine's own root: only the loader's links differ.
func TestToolsOfAnotherRoot(t *testing.T) {
	skipShort(t) // not beside others: such a subject changes the environment of this process
	const name = "synclab/iptables-legacy"
	if about, err := subject.Parse(name); err != nil || about.Available() != nil {
		t.Skip(err, about.Available())
	}
	run, records := runScenario(t, "run", "cold-start", noWaits, "--services", "10", "--subjects", name+",synclab/iptables-nft", "--feed", "api", "--tools", "/")
	if count(records, name, raw.ColdStart) != 1 || count(records, name, raw.ToolCalls) == 0 || !strings.Contains(run.Versions.IPTablesLegacy, "legacy") {
		t.Errorf("versions %+v, %d cold starts", run.Versions, count(records, name, raw.ColdStart))
	}
	if env := os.Getenv(iptables.EnvTools); env != "" {
		t.Errorf("after the run: %s", env)
	}
	empty := t.TempDir()
	for _, args := range [][]string{{"run", "cold-start"}, {"compare"}, {"conform"}, {"soak"}} {
		status, _, stderr := invoke(t, append(args, "--tools", empty)...)
		if status != exitUsage || !strings.Contains(stderr, "no iptables, nft or ipset below "+empty) {
			t.Errorf("%v: status %d: %s", args, status, stderr)
		}
	}
}
