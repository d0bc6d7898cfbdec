package bench

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"synclab/bench/upstream"
)

// kubeProxy is an unmodified kube-proxy that is there already: a test cannot fetch one into its namespace.
func kubeProxy(t *testing.T) string {
	t.Helper()
	path, _, err := upstream.KubeProxy(t.Context(), upstream.Options{CachedOnly: true})
	switch {
	case err == nil:
	case errors.Is(err, upstream.ErrNotBuilt) && os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") == "":
		t.Skip("no kube-proxy here; 'make kube-proxy' builds it")
	default:
		t.Fatal(err)
	}
	return path
}

// newOutsideTrial is a trial with subjects that are processes of their own.
func newOutsideTrial(t *testing.T, scenario string, subjects []string, sets ...string) *trial {
	t.Helper()
	tr := newTrial(t, scenario, 10, sets...)
	tr.options.Subjects, tr.options.KubeProxy.Path = subjects, kubeProxy(t)
	for _, name := range subjects {
		if subject, err := ParseSubject(name); err != nil || subject.Available() != nil {
			t.Skipf("%v %v", err, subject.Available())
		}
	}
	return tr
}

var kubeProxies = []string{"kube-proxy/iptables-legacy", "kube-proxy/iptables-nft", "kube-proxy/nftables"}

// Everything that is measured from outside is there for each backend of kube-proxy, and every change is accounted for.
func TestKubeProxyIsMeasured(t *testing.T) {
	tr := newOutsideTrial(t, "steady-churn", kubeProxies, "steps.react.count=3", "steps.churn.events=5", "steps.churn.rate=5", "steps.probe.samples=20")
	tr.mustExecute()
	if tr.run.Feed != FeedAPI || !strings.HasPrefix(tr.run.Versions.KubeProxy, "v1.") {
		t.Errorf("run.json: feed %q, kube-proxy %q", tr.run.Feed, tr.run.Versions.KubeProxy)
	}
	for _, subject := range kubeProxies {
		for _, metric := range []Metric{Reaction, ColdStart, FullSync, PartialSync, Restore, ToolUser, ToolSys, ToolCalls, RestoreBytes, ChildPeakRSS,
			PeakRSS, SubjectCPU, ShimCost, RulesKernel, FirstPacket, NetworkProgrammingLatency} {
			records := tr.of(subject, metric)
			if len(records) == 0 {
				t.Errorf("%s: no %s", subject, metric)
			}
			for _, r := range records {
				if r.Value <= 0 && metric != ToolUser && metric != ToolSys && metric != ShimCost {
					t.Errorf("%s: %s is %v", subject, metric, r.Value)
				}
			}
		}
		made := map[bool]float64{} // changes that are not visible yet; true: isolated ones
		for _, r := range tr.of(subject, Played) {
			made[r.Step == "3:react"] += r.Value
		}
		made[false] -= float64(len(tr.of(subject, NetworkProgrammingLatency)))
		for _, r := range tr.of(subject, Reaction) {
			made[true]--
			if r.Step != "3:react" || r.Within <= 0 || r.Within > r.Value {
				t.Errorf("%s: %+v", subject, r)
			}
		}
		if made[false] != 0 || made[true] != 0 {
			t.Errorf("%s: changes that did not become visible: %v", subject, made)
		}
		wrote := map[float64]bool{} // when rules were written
		for _, r := range tr.of(subject, Restore) {
			wrote[r.At] = true
		}
		if full := tr.of(subject, FullSync)[0]; !wrote[full.At] { // and not when its metrics were read
			t.Errorf("%s: the full sync is at %v, writes are at %v", subject, full.At, wrote)
		}
		if cold := tr.of(subject, ColdStart); len(cold) != 1 {
			t.Errorf("%s: %d cold starts", subject, len(cold))
		}
	}
}

// A subject that is started again, or whose restores fail, gets in sync again, and the run says so.
func TestKubeProxyAfterRestartAndFailures(t *testing.T) {
	for _, scenario := range []string{"restart", "flaky-restore"} {
		t.Run(scenario, func(t *testing.T) {
			tr := newOutsideTrial(t, scenario, kubeProxies[:1])
			tr.mustExecute()
			if len(tr.of(kubeProxies[0], Exceeded)) > 0 {
				t.Errorf("it was stopped: %+v", tr.of(kubeProxies[0], Exceeded))
			}
		})
	}
}

// Any command can be a subject; what it has no metrics for is measured all the same.
func TestExecSubject(t *testing.T) {
	binary := kubeProxy(t)
	subject := "exec:mine=" + binary + " --config={config} --hostname-override={node}"
	tr := newOutsideTrial(t, "cold-start", []string{subject})
	tr.options.ExecConfig = "{{.KubeProxyConfiguration}}\n# for {{.NodeName}}, from {{.Kubeconfig}}\n"
	tr.mustExecute()
	if got := tr.run.Subjects; len(got) != 1 || got[0] != "exec:mine" {
		t.Errorf("run.json has subjects %v", got)
	}
	if len(tr.of("exec:mine", ColdStart)) != 1 || len(tr.of("exec:mine", Restore)) == 0 {
		t.Errorf("records: %+v", tr.records)
	}
}

// A subject that exceeds a budget is a result: it is recorded with how far it came, the others go on, and it is not
// tried again.
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
				records := tr.of(subject, Exceeded)
				if len(records) != 1 || records[0].Value <= 0 || !strings.Contains(records[0].Error, " of 10 Service ports") {
					t.Errorf("%s: exceeded %+v", subject, records)
				}
			}
		})
	}
}

// A command that ends by itself ends the run with what it said.
func TestSubjectThatEnds(t *testing.T) {
	tr := newOutsideTrial(t, "cold-start", []string{"exec:broken=ls /no/such/folder"})
	err := tr.execute(context.Background())
	if err == nil || !strings.Contains(err.Error(), "exec:broken ended by itself") || !strings.Contains(err.Error(), "No such file") {
		t.Errorf("error: %v", err)
	}
}

// All subjects serve the scenario's families and no other: kube-proxy writes nothing for IPv6 in a cluster of IPv4. Records carry
// the name with its suffix, and isolated changes are all seen.
func TestSameFamilies(t *testing.T) {
	const subject = "kube-proxy/nftables+gogc50"
	tr := newOutsideTrial(t, "cold-start", []string{subject}, "steps.react.count=2")
	var rules string
	tr.options.Dump = func(_, dumped string) { rules += dumped }
	tr.mustExecute()
	if len(tr.of(subject, Reaction)) != 2 || len(tr.of(subject, ColdStart)) != 1 {
		t.Errorf("%d reactions, %d cold starts", len(tr.of(subject, Reaction)), len(tr.of(subject, ColdStart)))
	}
	if !strings.Contains(rules, "table ip kube-proxy") || strings.Contains(rules, "table ip6 kube-proxy") {
		t.Errorf("rules of IPv6 beside those of IPv4, or none at all:\n%s", rules)
	}
}
