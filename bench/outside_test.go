package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// kubeProxy returns an unmodified kube-proxy that is built already: a test cannot fetch one inside its namespace.
func kubeProxy(t *testing.T) string {
	t.Helper()
	path, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case err == nil:
	case errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "":
		t.Skip("no kube-proxy here; 'synclab build kube-proxy' builds it")
	default:
		t.Fatal(err)
	}
	return path
}

// newOutsideTrial is a trial with subjects that are separate processes.
func newOutsideTrial(t *testing.T, scenario string, subjects []string, sets ...string) *trial {
	t.Helper()
	tr := newTrial(t, scenario, 10, sets...)
	tr.options.Subjects, tr.options.KubeProxy.Path = subjects, kubeProxy(t)
	for _, name := range subjects {
		if subject, err := subject.Parse(name); err != nil || subject.Available() != nil {
			t.Skipf("%v %v", err, subject.Available())
		}
	}
	return tr
}

var kubeProxies = []string{"kube-proxy/iptables-legacy", "kube-proxy/iptables-nft", "kube-proxy/nftables"}

// All outside metrics are recorded for each backend of kube-proxy, and every change is accounted for.
func TestKubeProxyIsMeasured(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	tr := newOutsideTrial(t, "steady-churn", kubeProxies, "steps.react.count=3", "steps.churn.events=5", "steps.churn.rate=5", "steps.probe.samples=20")
	tr.mustExecute()
	if tr.run.Feed != raw.FeedAPI || !strings.HasPrefix(tr.run.Versions.KubeProxy, "v1.") {
		t.Errorf("run.json: feed %q, kube-proxy %q", tr.run.Feed, tr.run.Versions.KubeProxy)
	}
	for _, subject := range kubeProxies {
		for _, metric := range []raw.Metric{raw.Reaction, raw.ColdStart, raw.FullSync, raw.PartialSync, raw.Restore, raw.ToolUser, raw.ToolSys, raw.ToolCalls, raw.RestoreBytes, raw.ChildPeakRSS,
			raw.PeakRSS, raw.RSS, raw.SubjectCPU, raw.ShimCost, raw.ReadingCost, raw.RulesKernel, raw.FirstPacket, raw.NetworkProgrammingLatency, raw.CacheLoad} {
			records := tr.of(subject, metric)
			if len(records) == 0 {
				t.Errorf("%s: no %s", subject, metric)
			}
			for _, r := range records {
				if r.Value <= 0 && metric != raw.ToolUser && metric != raw.ToolSys && metric != raw.ShimCost {
					t.Errorf("%s: %s is %v", subject, metric, r.Value)
				}
			}
		}
		made := map[bool]float64{} // changes that are not visible yet; true: isolated changes
		for _, r := range tr.of(subject, raw.ChangesApplied) {
			made[r.Step == "3:react"] += r.Value
		}
		made[false] -= float64(len(tr.of(subject, raw.NetworkProgrammingLatency)))
		for _, r := range tr.of(subject, raw.Reaction) {
			made[true]--
			if r.Step != "3:react" || r.Uncertainty <= 0 || r.Uncertainty > r.Value {
				t.Errorf("%s: %+v", subject, r)
			}
		}
		if made[false] != 0 || made[true] != 0 {
			t.Errorf("%s: changes that did not become visible: %v", subject, made)
		}
		wrote := map[float64]bool{} // when rules were written
		for _, r := range tr.of(subject, raw.Restore) {
			wrote[r.At] = true
		}
		full := tr.of(subject, raw.FullSync)
		if len(full) == 0 && len(tr.of(subject, raw.SyncsNotSeparable)) == 0 {
			t.Errorf("%s: no full sync", subject)
		}
		if len(full) > 0 && !wrote[full[0].At] { // not the time when its metrics were read
			t.Errorf("%s: the full sync is at %v, writes are at %v", subject, full[0].At, wrote)
		}
		if cold := tr.of(subject, raw.ColdStart); len(cold) != 1 {
			t.Errorf("%s: %d cold starts", subject, len(cold))
		}
	}
}

// A subject that is restarted, or whose restores fail, converges again, and the run records it.
func TestKubeProxyAfterRestartAndFailures(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	for _, scenario := range []string{"restart", "flaky-restore"} {
		t.Run(scenario, func(t *testing.T) {
			tr := newOutsideTrial(t, scenario, kubeProxies[:1])
			tr.mustExecute()
			if len(tr.of(kubeProxies[0], raw.Exceeded)) > 0 {
				t.Errorf("it was stopped: %+v", tr.of(kubeProxies[0], raw.Exceeded))
			}
		})
	}
}

// Any command can be a subject. It is measured even without metrics.
func TestExecSubject(t *testing.T) {
	binary := kubeProxy(t)
	subject := "exec:mine=" + binary + " --config={config} --hostname-override={node}"
	tr := newOutsideTrial(t, "cold-start", []string{subject})
	tr.options.ExecConfig = "{{.KubeProxyConfiguration}}\n# for {{.NodeName}}, from {{.Kubeconfig}}\n"
	tr.mustExecute()
	if got := tr.run.Subjects; len(got) != 1 || got[0] != "exec:mine" {
		t.Errorf("run.json has subjects %v", got)
	}
	if len(tr.of("exec:mine", raw.ColdStart)) != 1 || len(tr.of("exec:mine", raw.Restore)) == 0 {
		t.Errorf("records: %+v", tr.records)
	}
}

// A subject that exceeds a budget is a result: its progress is recorded, the others continue, and it is not measured
// again.
func TestExceededBudgets(t *testing.T) {
	for name, change := range map[string]func(*trial){
		"time": func(tr *trial) {
			for _, step := range tr.options.Scenario.Steps {
				if step.Settle != nil {
					step.Settle.Timeout = time.Millisecond
				}
			}
		},
		"memory": func(tr *trial) { tr.options.MaxMemory = 1 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			tr := newOutsideTrial(t, "cold-start", kubeProxies[:2])
			tr.options.Reps = 2
			change(tr)
			tr.mustExecute()
			for _, subject := range kubeProxies[:2] {
				records := tr.of(subject, raw.Exceeded)
				if len(records) != 1 || records[0].Value <= 0 || !strings.Contains(records[0].Error, " of 10 Service ports") {
					t.Errorf("%s: exceeded %+v", subject, records)
				}
			}
		})
	}
}

// A subject that does not converge is stopped with its own errors, of which there are many.
func TestStuckSubjectSaysWhy(t *testing.T) {
	script := filepath.Join(t.TempDir(), "stuck.sh")
	if err := os.WriteFile(script, []byte(`for i in 1 2 3 4 5 6 7; do
	echo "E1125 22:00:0$i.000000     123 proxier.go:765] \"Sync failed\" err=\"nft: line $i: Too many links\"" >&2
	echo "I1125 22:00:0$i.000000     123 proxier.go:765] \"Retrying\"" >&2
done
exec sleep 1000
`), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := newTrial(t, "cold-start", 10, "steps.1.settle.timeout=1s")
	tr.options.Subjects = []string{"exec:stuck=sh " + script}
	tr.mustExecute()
	records := tr.of("exec:stuck", raw.Exceeded)
	want := `; the subject reports: "Sync failed" err="nft: line 7: Too many links" (7 times)`
	if len(records) != 1 || !strings.HasSuffix(records[0].Error, want) {
		t.Errorf("%+v\nwant %s", records, want)
	}
}

// execShell runs a shell script as a subject that ends, and returns the last lines that it wrote, as part of an error.
func execShell(t *testing.T, change func(*trial), script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script.sh")
	if err := os.WriteFile(path, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	tr := newTrial(t, "cold-start", 10)
	tr.options.Subjects = []string{"exec:script=sh " + path}
	change(tr)
	err := tr.execute(t.Context())
	if err == nil || !strings.Contains(err.Error(), "exec:script exited unexpectedly (exit status 0)") {
		t.Fatalf("error: %v\n%s", err, tr.stderr.String())
	}
	return err.Error()
}

// A subject gets the variables that it needs and those of --exec-env, and has its own System V IPC and host name.
func TestSubjectIsSeparate(t *testing.T) {
	t.Setenv("CI_JOB_TOKEN", "secret-1")
	t.Setenv("ASKED_FOR", "wanted-2")
	t.Setenv("LC_TIME", "C.UTF-8")
	var tr *trial
	got := execShell(t, func(made *trial) { tr, made.options.ExecEnv = made, []string{"ASKED_FOR"} }, `
echo "env: "$(env)
echo ipc: $(readlink /proc/self/ns/ipc), uts: $(readlink /proc/self/ns/uts)
echo host: $(uname -n)
`)
	for _, want := range []string{"ASKED_FOR=wanted-2", "LC_TIME=C.UTF-8", "NODE_NAME=", "KUBECONFIG=", "PATH=", "GOGC=100"} {
		if !strings.Contains(got, want) {
			t.Errorf("the subject lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "secret-1") || strings.Contains(got, "CI_JOB_TOKEN") {
		t.Errorf("the subject has a variable that it does not need:\n%s", got)
	}
	for _, kind := range []string{"ipc", "uts"} {
		if mine, err := os.Readlink("/proc/self/ns/" + kind); err == nil && (strings.Contains(got, mine) || !strings.Contains(got, kind+":[")) {
			t.Errorf("the subject is in the %s namespace of the lab, %s:\n%s", kind, mine, got)
		}
	}
	if host, err := os.Hostname(); err != nil || !strings.Contains(got, "host: "+host) {
		t.Errorf("the host name is not %s (%v):\n%s", host, err, got)
	}
	if !slices.Equal(tr.run.ExecEnv, []string{"ASKED_FOR"}) {
		t.Errorf("run.json has variables %v", tr.run.ExecEnv)
	}
}

// A subject sees its program, and what its command names; of the other files of the user nothing, and it changes none.
func TestSubjectFiles(t *testing.T) {
	base := t.TempDir()
	at := func(path string) string { return filepath.Join(base, path) }
	secrets := []string{"home/.ssh/id", "outside/secret", "tmp/secret"}
	for _, path := range append([]string{"home/bin/beside", "home/conf/named"}, secrets...) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(at(path)), 0o700), os.WriteFile(at(path), []byte("content of "+path), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if cache, err := os.UserCacheDir(); err == nil {
		t.Setenv("XDG_CACHE_HOME", cache) // with the programs that are built already
	}
	t.Setenv("HOME", at("home"))
	t.Setenv("TMPDIR", at("tmp"))
	t.Chdir(at("home"))
	program := `#!/bin/sh
for f in "$1" home/bin/beside ` + strings.Join(secrets, " ") + `; do
	case $f in /*) ;; *) f=` + base + `/$f ;; esac
	echo "read: $(cat $f /proc/1/root$f /proc/self/cwd/.ssh/id .ssh/id 2>&1 | tr '\n' ' ')"
	echo changed >> $f
done 2>&1
touch $HOME/new $TMPDIR/new /dev/null && echo private: yes
echo writable: $(for d in /etc /usr /sys/kernel /proc/sys/kernel/panic ` + at("home/bin") + `; do test -w $d && echo $d; done), \
	devices: $(find /dev -type b), services: $(ls /run)
for d in /home /root /tmp; do umount $d 2>/dev/null && echo undone: $d; done
exit 0
`
	if err := os.WriteFile(at("home/bin/proxy"), []byte(program), 0o700); err != nil {
		t.Fatal(err)
	}
	got := execShell(t, func(tr *trial) {
		tr.options.Subjects = []string{"exec:script=bin/proxy " + at("home/conf/named")}
	}, "")
	for _, want := range []string{"content of home/bin/beside", "content of home/conf/named", "private: yes", "writable: , devices: , services:\n"} {
		if !strings.Contains(got+"\n", want) {
			t.Errorf("the subject lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "undone: ") {
		t.Errorf("the subject undid its confinement:\n%s", got)
	}
	for _, path := range secrets {
		if strings.Contains(got, "content of "+path) {
			t.Errorf("the subject reads %s:\n%s", path, got)
		}
	}
	for _, path := range append([]string{"home/bin/beside", "home/conf/named"}, secrets...) {
		if text, err := os.ReadFile(at(path)); err != nil || string(text) != "content of "+path {
			t.Errorf("the subject changed %s: %q, %v", path, text, err)
		}
	}
	if left, err := filepath.Glob(at("*/new")); err != nil || len(left) > 0 {
		t.Errorf("the subject left %v, %v", left, err)
	}
}

// A command that exits by itself ends the run with its error.
func TestSubjectThatEnds(t *testing.T) {
	tr := newOutsideTrial(t, "cold-start", []string{"exec:broken=ls /no/such/folder"})
	err := tr.execute(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exec:broken exited unexpectedly") || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("error: %v", err)
	}
}

// All subjects serve exactly the scenario's families: kube-proxy writes no IPv6 rules in an IPv4 cluster. Records have
// the subject's name with its suffix, and all isolated changes are seen.
func TestSameFamilies(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const subject = "kube-proxy/nftables+gogc50"
	tr := newOutsideTrial(t, "cold-start", []string{subject}, "steps.react.count=2")
	var rules string
	tr.options.Dump = func(_, dumped string) { rules += dumped }
	tr.mustExecute()
	if len(tr.of(subject, raw.Reaction)) != 2 || len(tr.of(subject, raw.ColdStart)) != 1 {
		t.Errorf("%d reactions, %d cold starts", len(tr.of(subject, raw.Reaction)), len(tr.of(subject, raw.ColdStart)))
	}
	if !strings.Contains(rules, "table ip kube-proxy") || strings.Contains(rules, "table ip6 kube-proxy") {
		t.Errorf("rules of IPv6 beside those of IPv4, or none at all:\n%s", rules)
	}
}

// Rules of backend userspace do not lead to endpoints, so checks of rules are refused. A check that only asks is not.
func TestUserspaceIsNotChecked(t *testing.T) {
	tr := newTrial(t, "cold-start", 10)
	tr.options.Subjects = []string{"synclab/userspace"}
	tr.options.Scenario.Steps = append(tr.options.Scenario.Steps, scenarios.Step{Check: &scenarios.Check{}})
	if _, err := Execute(t.Context(), tr.options); err == nil || !strings.Contains(err.Error(), "synclab/userspace: step check") {
		t.Errorf("a scenario with checks: %v", err)
	}
	tr.options.Scenario.Steps[len(tr.options.Scenario.Steps)-1].Check.Invariants = []string{"I14"}
	if err := tr.options.fill(); err != nil {
		t.Errorf("a check of I14: %v", err)
	}
}
