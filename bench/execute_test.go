package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/proxier/kernel"
	"synclab/scenarios"
	"synclab/sim/manifests"
)

// quick makes scenarios of the library end in seconds.
var quick = []string{"proxy.minSyncPeriod=100ms", "proxy.syncPeriod=1s"}

// trial is a small run of a scenario, once with each subject.
type trial struct {
	t       *testing.T
	options ExecuteOptions
	stderr  bytes.Buffer
	run     raw.Run
	records []raw.Record
}

func newTrial(t *testing.T, scenario string, services int, sets ...string) *trial {
	t.Helper()
	if testing.Short() {
		t.Skip("-short")
	}
	s, err := scenarios.Load(scenario, append(quick[:len(quick):len(quick)], sets...), scenarios.Sizes{Services: services, Endpoints: 3})
	if err != nil {
		t.Fatal(err)
	}
	tr := &trial{t: t}
	tr.options = ExecuteOptions{
		Scenario: s, Reps: 1, Out: filepath.Join(t.TempDir(), "run"), WorkerArgs: workerArgs, Stderr: &tr.stderr,
	}
	for _, about := range subject.Own() {
		if about.Available() == nil {
			tr.options.Subjects = append(tr.options.Subjects, about.Name)
		}
	}
	if len(tr.options.Subjects) == 0 {
		t.Skip("no iptables")
	}
	return tr
}

// first returns the subject whose turn comes first.
func (tr *trial) first() string {
	return turn(make([]scenarios.Cell, 1), 0, 1, tr.options.Subjects, tr.options.Scenario.Seed)[0].subject
}

func (tr *trial) execute(ctx context.Context) error {
	tr.t.Helper()
	dir, err := Execute(ctx, tr.options)
	if dir != tr.options.Out {
		tr.t.Fatalf("Execute = %q, %v; want folder %s\n%s", dir, err, tr.options.Out, tr.stderr.String())
	}
	var readErr error
	if tr.run, tr.records, readErr = raw.ReadRun(dir); readErr != nil {
		tr.t.Fatal(readErr)
	}
	return err
}

func (tr *trial) mustExecute() {
	tr.t.Helper()
	if err := tr.execute(tr.t.Context()); err != nil {
		tr.t.Fatalf("%v\n%s", err, tr.stderr.String())
	}
	if tr.run.Status != raw.StatusComplete {
		tr.t.Errorf("status %s, want %s", tr.run.Status, raw.StatusComplete)
	}
}

// of returns the values of a metric for a subject.
func (tr *trial) of(subject string, metric raw.Metric) []raw.Record {
	var found []raw.Record
	for _, r := range tr.records {
		if r.Subject == subject && r.Metric == metric {
			found = append(found, r)
		}
	}
	return found
}

func (tr *trial) about(name string) subject.Spec {
	tr.t.Helper()
	about, err := subject.Parse(name)
	if err != nil {
		tr.t.Fatal(err)
	}
	return about
}

// lacks reports whether a subject has no values of a metric: no child process, no iptables table, no closed form.
func lacks(s subject.Spec, metric raw.Metric) bool {
	switch metric {
	case raw.ChildPeakRSS:
		return !s.HasTools()
	case raw.RulesExpected:
		return !s.Classic()
	case raw.Rules, raw.Chains, raw.Jumps:
		return s.Nftables()
	}
	return false
}

// agrees checks after each settle step that the kernel has as many rules as the proxier reports, and as the closed form
// where it applies.
func (tr *trial) agrees(closedForm bool) {
	tr.t.Helper()
	for _, subject := range tr.options.Subjects {
		about := tr.about(subject)
		if about.Nftables() { // no closed form for rules and elements
			if len(tr.of(subject, raw.RulesKernel)) == 0 || len(tr.of(subject, raw.Rules)) > 0 {
				tr.t.Errorf("%s: the rules are not counted in the kernel", subject)
			}
			continue
		}
		last := map[string]float64{}
		compared := 0
		for _, r := range tr.records {
			place := r.Family + " " + r.Table
			switch {
			case r.Subject != subject:
			case r.Metric == raw.Rules:
				last[place] = r.Value
			case r.Metric == raw.RulesKernel || r.Metric == raw.RulesExpected:
				if r.Value != last[place] || r.Value == 0 {
					tr.t.Errorf("%s, %s, %s: %s is %v, rules %v", subject, r.Step, place, r.Metric, r.Value, last[place])
				}
				compared++
			}
		}
		if forms := len(tr.of(subject, raw.RulesExpected)); compared == 0 || forms > 0 != (closedForm && !about.Tree()) {
			tr.t.Errorf("%s: %d comparisons, %d closed forms", subject, compared, forms)
		}
	}
}

// units of the metrics that every run of steady-churn has.
var units = map[raw.Metric]string{
	raw.Load: "s", raw.FullSync: "s", raw.PartialSync: "s", raw.Queue: "s", raw.Plan: "s", raw.Encode: "s", raw.Jumps: "s", raw.Restore: "s", raw.ToolUser: "s",
	raw.ToolSys: "s", raw.NetworkProgrammingLatency: "s", raw.FirstPacket: "s", raw.Rules: "count", raw.RulesKernel: "count",
	raw.RulesExpected: "count", raw.Chains: "count", raw.Changes: "count", raw.Backlog: "count", raw.RestoreBytes: "B", raw.PeakRSS: "B",
	raw.ChildPeakRSS: "B",
}

func TestExecute(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const services, events = 20, 10
	tr := newTrial(t, "steady-churn", services, "shape.protocols.UDP=0.5", "steps.churn.rate=10",
		"steps.churn.events="+strconv.Itoa(events), "steps.probe.samples=20", "steps.probe.positions=3")
	stages := map[string]bool{}
	tr.options.Progress = func(p Progress) { stages[p.Subject+" "+p.Stage] = true }
	tr.mustExecute()
	tr.agrees(true)
	for _, subject := range tr.options.Subjects {
		for metric, unit := range units {
			records := tr.of(subject, metric)
			if len(records) == 0 != lacks(tr.about(subject), metric) {
				t.Errorf("%s: %d %s", subject, len(records), metric)
			}
			for _, r := range records {
				if r.Unit != unit || r.Value < 0 || r.Services != services || r.Endpoints != 3 || r.Rep != 1 || r.Step == "" && metric != raw.Load {
					t.Errorf("%s: %+v; want unit %s", subject, r, unit)
				}
			}
		}
		if failed := tr.of(subject, raw.SyncFailed); len(failed) > 0 {
			t.Errorf("%s: %+v", subject, failed)
		}
		if n := len(tr.of(subject, raw.NetworkProgrammingLatency)); n != events {
			t.Errorf("%s: %d latencies of %d changes", subject, n, events)
		}
		for _, stage := range []string{"generate", "1:create", "2:settle", "3:react", "4:churn", "5:settle", "6:probe"} {
			if !stages[subject+" "+stage] {
				t.Errorf("%s: no progress of %s: %v", subject, stage, stages)
			}
		}
	}
}

// Restores are killed, fail, and find the lock taken: no change is lost.
func TestExecuteFlakyRestore(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const events = 8
	sets := []string{}
	for _, step := range []int{3, 6, 9} {
		sets = append(sets, fmt.Sprintf("steps.%d.churn.rate=8", step), fmt.Sprintf("steps.%d.churn.events=%d", step, events))
	}
	tr := newTrial(t, "flaky-restore", 20, sets...)
	tr.mustExecute()
	tr.agrees(true)
	for _, subject := range tr.options.Subjects {
		failed := map[string]int{}
		for _, r := range tr.of(subject, raw.SyncFailed) {
			if r.Error == "" {
				t.Errorf("%s: a failed sync without its cause: %+v", subject, r)
			}
			failed[r.Error]++
			if strings.Contains(r.Error, "xtables lock") {
				failed["lock"]++
			}
		}
		about, least := tr.about(subject), 5 // 2 killed, 3 failed
		if !about.HasTools() {
			least = 0
		}
		if n := len(tr.of(subject, raw.SyncFailed)); n < least || (failed["lock"] > 0) != (about.Legacy()) {
			t.Errorf("%s: %d failed syncs, want %d at least and, with the legacy variant, some without the lock: %v", subject, n, least, failed)
		}
		if n := len(tr.of(subject, raw.NetworkProgrammingLatency)); n != 3*events {
			t.Errorf("%s: %d latencies of %d changes", subject, n, 3*events)
		}
	}
}

// Another program flushes table nat: all rules are back at the next settle step.
func TestExecuteDrift(t *testing.T) {
	tr := newTrial(t, "drift", 20)
	tr.mustExecute()
	tr.agrees(true)
	for _, subject := range tr.options.Subjects {
		if n := len(tr.of(subject, raw.FullSync)); n != 2 {
			t.Errorf("%s: %d full syncs, want the first and the repair", subject, n)
		}
	}
}

func TestExecuteMixedTypes(t *testing.T) {
	if limit, err := kernel.SendLimit(); err != nil || limit > 0 {
		t.Skipf("an iptables-nft-restore of this user may take only %d bytes of netlink messages (%v)", limit, err)
	}
	tr := newTrial(t, "mixed-types", 60, "steps.churn.rate=10", "steps.churn.events=10")
	tr.mustExecute()
	tr.agrees(false)
	for _, subject := range tr.options.Subjects {
		families := map[string]bool{}
		for _, r := range tr.of(subject, raw.RulesKernel) {
			families[r.Family] = true
		}
		if len(families) != 2 {
			t.Errorf("%s: families %v, want both", subject, families)
		}
	}
}

// Objects from manifests replace the scenario's shape, and the installed rules can be printed.
func TestExecuteManifests(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const folder = "../sim/manifests/testdata/manifests/"
	objects, err := manifests.ReadObjects([]string{
		folder + "ngx.yaml", folder + "nginx-demo.yaml", folder + "whoami.yaml", folder + "everything.yaml",
	}, nil, manifests.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	tr := newTrial(t, "cold-start", 1)
	tr.options.Objects = objects
	dumps := map[string]string{}
	tr.options.Dump = func(subject, rules string) { dumps[subject] += rules }
	tr.mustExecute()
	tr.agrees(false)
	for _, subject := range tr.options.Subjects {
		want := ":KUBE-SVC-DQYKF4NVSQPF2JO7 " // chain of default/ngx-svc
		if tr.about(subject).Nftables() {
			want = "map frontends {"
		}
		if !strings.Contains(dumps[subject], want) {
			t.Errorf("%s installed:\n%s", subject, dumps[subject])
		}
		for _, r := range tr.of(subject, raw.Rules) {
			if r.Services != len(objects.Services) {
				t.Errorf("%s: %d Services, want %d", subject, r.Services, len(objects.Services))
			}
		}
	}
}

// Ctrl-C during churn: the run ends at once, reports it, keeps its records, and leaves nothing behind.
func TestExecuteInterrupted(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	tr := newTrial(t, "steady-churn", 20, "steps.churn.rate=20", "steps.churn.events=100000")
	ctx, cancel := context.WithCancel(t.Context())
	tr.options.Progress = func(p Progress) {
		if p.Stage == "4:churn" && p.Done > 5 {
			cancel()
		}
	}
	if err := tr.execute(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Execute = %v, want %v", err, context.Canceled)
	}
	if tr.run.Status != raw.StatusInterrupted || tr.run.Finished == nil {
		t.Errorf("run.json says %s, finished %v", tr.run.Status, tr.run.Finished)
	}
	if subject := tr.first(); len(tr.of(subject, raw.FullSync)) == 0 || len(tr.of(subject, raw.RulesKernel)) == 0 {
		t.Errorf("%d records, and none of the first sync", len(tr.records))
	}
	for _, r := range tr.records {
		if r.Metric == raw.SyncFailed {
			t.Errorf("being stopped is recorded as a failure: %+v", r)
		}
	}
	leavesNothing(t)
}

// A killed worker ends the run with an error. Its records stay.
func TestExecuteWorkerKilled(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	tr := newTrial(t, "steady-churn", 20, "steps.churn.rate=20", "steps.churn.events=100000")
	var once sync.Once
	tr.options.Progress = func(p Progress) {
		if p.Stage == "4:churn" && p.Done > 5 {
			once.Do(func() {
				for _, pid := range children() {
					_ = unix.Kill(pid, unix.SIGKILL)
				}
			})
		}
	}
	if err := tr.execute(t.Context()); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("Execute = %v; want an error about the killed worker", err)
	}
	if tr.run.Status != raw.StatusFailed || len(tr.of(tr.first(), raw.FullSync)) == 0 {
		t.Errorf("run.json says %s, with %d records", tr.run.Status, len(tr.records))
	}
	leavesNothing(t)
}

// A step that exceeds its time ends the run. The error has the step, the reason and the remedy.
func TestExecuteFails(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	tr := newTrial(t, "cold-start", 200, "steps.1.settle.timeout=5ms")
	err := tr.execute(t.Context())
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{tr.first(), "services=200", "repetition 1", "step 2:settle", "5ms", "--set steps.1.settle.timeout="} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not name %s: %v", want, err)
		}
	}
	if tr.run.Status != raw.StatusFailed || !strings.Contains(tr.run.Reason, "2:settle") {
		t.Errorf("run.json says %s: %s", tr.run.Status, tr.run.Reason)
	}
	leavesNothing(t)
}

// leavesNothing checks that no processes, namespaces and files of workers are left.
func leavesNothing(t *testing.T) {
	t.Helper()
	left, err := os.ReadDir(os.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range left {
		if strings.HasPrefix(entry.Name(), "synclab") {
			t.Errorf("left behind: %s", entry.Name())
		}
	}
	if pids := children(); len(pids) > 0 {
		t.Errorf("processes are left: %v", pids)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	// Only a mount could keep a namespace without processes.
	if strings.Contains(string(mounts), " - nsfs ") {
		t.Errorf("a namespace is mounted:\n%s", mounts)
	}
}

// children returns the processes that this process started.
func children() []int {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the only error is a bad pattern
	var pids []int
	for _, path := range stats {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it ended meanwhile
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, …
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && fields[1] == strconv.Itoa(os.Getpid()) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// Targets choose which subjects are measured in which cells, and which only once. Other subjects are measured in all
// cells.
func TestPassesOfTargets(t *testing.T) {
	cell := func(n int, once []string, subjects ...string) scenarios.Cell {
		c := scenarios.Cell{Subjects: subjects, Once: once}
		c.Scenario.Shape.Services = n
		return c
	}
	var got []string
	for _, p := range slots([]scenarios.Cell{cell(1, nil, "a", "b"), cell(2, []string{"b"}, "b", "c")}, []string{"a", "b", "c", "mine"}, 2, 1) {
		got = append(got, fmt.Sprint(p.cell.Scenario.Shape.Services, p.subject, p.rep))
	}
	slices.Sort(got) // turns_test.go has the order
	want := "1a1 1a2 1b1 1b2 1mine1 1mine2 2b1 2c1 2c2 2mine1 2mine2"
	if strings.ReplaceAll(strings.Join(got, ","), " ", "") != strings.ReplaceAll(want, " ", ",") {
		t.Errorf("%v, want %v", got, want)
	}
}

// The worker's user namespace is recorded, not that of the process that writes run.json.
func TestRunSaysWhetherTheWorkerHadAUserNamespace(t *testing.T) {
	w, err := raw.OpenRun(t.TempDir(), raw.Run{}, false)
	if err != nil {
		t.Fatal(err)
	}
	var end ending
	if err := new(ExecuteOptions).take(strings.NewReader(`{"UserNamespace":true}`), w, Progress{}, &end); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(raw.StatusComplete, ""); err != nil {
		t.Fatal(err)
	}
	if run, _, err := raw.ReadRun(w.Dir()); err != nil || !run.Machine.UserNamespace {
		t.Errorf("run.json says %+v (%v)", run.Machine, err)
	}
}
