package bench

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// Settings of a process need a subject that is a process.
func TestSettingsNeedAProcess(t *testing.T) {
	tuned, _ := subject.Parse("synclab/nftables+tuned")
	if feed := feedFor([]subject.Spec{tuned}, &scenarios.Scenario{}); feed != raw.FeedAPI {
		t.Errorf("feed %s: GOGC needs a separate process", feed)
	}
	o := ExecuteOptions{running: []subject.Spec{tuned}, Feed: raw.FeedInformers}
	if err := o.prepareTools(context.Background(), &raw.Run{}); err == nil || !strings.Contains(err.Error(), "needs a separate process") {
		t.Errorf("with informers: %v", err)
	}
}

// A subject has its own configuration, whose digest is in run.json.
func TestOwnConfig(t *testing.T) {
	tr := newTrial(t, "cold-start", 10)
	file := filepath.Join(t.TempDir(), "strict.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\niptables: {masqueradeAll: true}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain := tr.options.Subjects[0]
	rules := map[string]string{}
	tr.options.Subjects = []string{plain, plain + "+config:strict=" + file}
	tr.options.Dump = func(subject, text string) { rules[subject] = text }
	tr.mustExecute()
	if digest := tr.run.Programs["+config:strict"]; !strings.HasPrefix(digest, "sha256:") || tr.run.Subjects[1] != plain+"+config:strict" {
		t.Errorf("%q of %q", digest, tr.run.Subjects)
	}
	exempt := func(subject string) int { return strings.Count(rules[subject], "! -s ") }
	if usual, all := exempt(tr.options.Subjects[0]), exempt(tr.options.Subjects[1]); usual-all != 10 {
		t.Errorf("%d rules spare the pods from masquerading, and %d with masqueradeAll", usual, all)
	}
}

// Files of single subjects are checked before a run begins, and a name is one file.
func TestOwnFilesAreChecked(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(bad, []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: fast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		subjects []string
		want     string
	}{
		{[]string{"synclab/nftables+config:a"}, "want the path of +config:a, too: +config:a=PATH"},
		{[]string{"kube-proxy@src:a/nftables"}, "want the path of @src:a, too"},
		{[]string{"synclab/nftables+config:a=" + dir + "/none"}, "no such file"},
		{[]string{"kube-proxy/nftables+config:a=" + bad}, bad + ":3: mode"},
		{[]string{"synclab@src:a=/x/nftables", "synclab@src:a=/y/nftables+bucket"}, "have one name for two paths"},
		{[]string{"kube-proxy/nftables+tools:a=/x", "kube-proxy/nftables+tools:a=/y+gogc50"}, "have one name for two paths"},
	} {
		o := ExecuteOptions{Subjects: c.subjects, Scenario: &scenarios.Scenario{}}
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.subjects, err, c.want)
		}
	}
}

// A subject that serves sockets alone is refused where rules or packets from elsewhere count.
func TestCiliumServesSocketsAlone(t *testing.T) {
	for name, step := range map[string]scenarios.Step{
		"verdicts": {Probe: &scenarios.Probe{Kind: "verdicts"}}, "check": {Check: &scenarios.Check{}},
		"migrate": {Migrate: &scenarios.Migrate{To: "synclab/nftables"}},
	} {
		o := ExecuteOptions{Subjects: []string{"cilium/lb"}, Scenario: &scenarios.Scenario{Steps: []scenarios.Step{step}}}
		if err := o.fill(); err == nil || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A followed cluster's remarks come from a separate goroutine.
func TestProgressIsReportedOneAtATime(t *testing.T) {
	var inside, most atomic.Int32
	show := oneAtATime(func(Progress) {
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond) // lets other goroutines in, if nothing stops them
		inside.Add(-1)
	})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { show(Progress{}) })
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

// A memory limit that nothing could enforce is refused.
func TestMemoryIsBoundedOnlyInProcessesOfTheirOwn(t *testing.T) {
	o := ExecuteOptions{Feed: raw.FeedInformers, MaxMemory: 1 << 30}
	if err := o.prepareTools(t.Context(), &raw.Run{}); err == nil {
		t.Error("no error")
	}
}
