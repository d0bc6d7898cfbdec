package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"synclab/bench/search"
	"synclab/reports/plan"
)

// A plan measures, answers in words and in a table, and writes a folder with everything. The same question again uses its
// cells. Its page is made again from its folder.
func TestPlan(t *testing.T) {
	measures(t)
	args := []string{"plan", "--services", "20", "--endpoints", "2", "--churn", "0.4", "--nodes", "5", "--subjects", "synclab/nftables", "--budget", "5s", "--no-png", "--check", "--out", filepath.Join(t.TempDir(), "plan"),
		"--npl-p99", "10s", "--first-packet-p99", "1s", "--first-sync", "1m"} // as other tests run beside it
	status, stdout, stderr := invoke(t, args...)
	if strings.Contains(stderr, "not available") && os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") == "" {
		t.Skip(stderr)
	}
	if status != exitDone {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	for _, part := range []string{"Services: there, synclab/nftables meets every SLO", "synclab/nftables was assumed to be in use today: --today names another subject", "at least 20 (observed); beyond, unknown", "\nsynclab/nftables "} {
		if !strings.Contains(stdout, part) {
			t.Errorf("stdout lacks %q:\n%s", part, stdout)
		}
	}
	_, page, _ := strings.Cut(stdout, "\npage: ")
	dir := filepath.Dir(strings.TrimSpace(page))
	if err := os.Remove(strings.TrimSpace(page)); err != nil {
		t.Fatal(err)
	}
	if status, again, stderr := invoke(t, "report", dir, "--no-png"); status != exitDone || again != stdout {
		t.Errorf("report: status %d, %s\n%s", status, stderr, again)
	}
	a, err := plan.Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if cells := a.Subjects[0].Cells; len(cells) == 0 || cells[0].Values[plan.Start].V <= 0 || cells[0].Values[plan.Latency].V <= 0 || cells[0].Values[plan.Memory].V <= 0 {
		t.Errorf("cells %+v", cells)
	}
	status, stdout, stderr = invoke(t, append(args, "-o", "json")...) // its own folder: the plan goes on
	if status != exitDone || !strings.Contains(stderr, "cells of the same question are in "+dir) {
		t.Fatalf("again: status %d\n%s%s", status, stdout, stderr)
	}
	var again plan.Answer
	if err := json.Unmarshal([]byte(stdout), &again); err != nil {
		t.Fatal(err)
	}
	used := strings.Contains(stderr, "cells of earlier plans are used")
	if n := len(again.Subjects[0].Cells); used && n < 2 || !used && !strings.Contains(stderr, "cells of earlier plans are left out") {
		t.Errorf("%d cells:\n%s", n, stderr)
	}
}

// What a dump says, and what would be measured. A folder with a plan is not overwritten.
func TestPlanOfADump(t *testing.T) {
	t.Chdir(t.TempDir())
	dump := dumped(t, plannedCluster(t))
	args := []string{"plan", "-f", dump, "--churn", "0.5", "--subjects", "synclab/nftables", "--grow", "services=2x", "--dry-run"}
	status, stdout, stderr := invoke(t, args...)
	want := "80 Services first, then 10 to 320: the mix of " + dump + ", 1 changes a second there, 4 nodes, minSyncPeriod 1s\nsubjects: synclab/nftables\n"
	if status != exitDone || stdout != want || !strings.Contains(stderr, "40 Services with 40 ports") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	a := plan.Answer{Question: plan.Question{Key: "k"}, Subjects: []plan.SubjectAnswer{{Name: "a"}}}
	if err := a.Write("mine"); err != nil {
		t.Fatal(err)
	}
	if status, _, stderr := invoke(t, append(args, "--out", "mine")...); status != exitUsage || !strings.Contains(stderr, "mine has a plan already, of another question or with cells that cannot be used; replace it with --force") {
		t.Errorf("over a plan: status %d, %s", status, stderr)
	}
}

// The messages of a check for SLOs that are met, violated, and unknown.
func TestCheckSLOs(t *testing.T) {
	a := &plan.Answer{Question: plan.Question{Asked: plan.Cluster{Services: 1000}}, Subjects: []plan.SubjectAnswer{{Name: "a", Cells: make([]plan.Cell, 1)}, {Name: "b"}}}
	var said strings.Builder
	for _, c := range []struct {
		bracket search.Bracket
		err     bool
		said    string
	}{
		{search.Bracket{Met: 2000, MetReps: 3, Violated: 3000, ViolatedReps: 3}, false, ""},
		{search.Bracket{Met: 1000, MetReps: 1}, false, ""},
		{search.Bracket{Met: 500, MetReps: 1, Violated: 1000, ViolatedReps: 1}, true, ""},
		{search.Bracket{Met: 500, MetReps: 1}, false, "a, at 1,000 Services: unknown: at least 500 (observed); beyond, unknown\n"},
	} {
		said.Reset()
		a.Subjects[0].Bracket = c.bracket
		if err := checkSLOs(&said, a); (err != nil) != c.err || said.String() != c.said {
			t.Errorf("%+v: %v, %q", c.bracket, err, said.String())
		}
	}
}

// Mistakes are refused before anything is measured.
func TestPlanRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	cluster := []string{"--services", "100", "--churn", "1"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "the size of the cluster today is missing"},
		{append([]string{"now"}, cluster...), `takes no argument, got "now"`},
		{append([]string{"--grow", "services=2x,pods=3x"}, cluster...), "--grow pods=3x: want one of services, endpoints, nodes, churn"},
		{[]string{"--services", "99999999", "--churn", "1"}, "--services 99999999: want 1 to 1,000,000"},
		{[]string{"--services", "abc", "--churn", "1"}, `"abc" for "--services" flag: want a whole number`},
		{append([]string{"--npl-p99", "5"}, cluster...), `"5" for "--npl-p99" flag: want a time with its unit, such as 90s or 5m`},
		{append([]string{"--set", "shape.colour=red"}, cluster...), "shape.colour"},
		{append([]string{"--memory", "12"}, cluster...), "--memory 12: that many bytes are too few for a proxier; did you mean 12Mi?"},
		{append([]string{"--memory", "12k"}, cluster...), "--memory 12k: too little for a proxier; want 4Mi or more"},
		{append([]string{"--cpu", "half"}, cluster...), `--cpu "half": want a number of CPUs`},
		{append([]string{"--min-sync-period", "-1s"}, cluster...), "--min-sync-period -1s: want more than 0"},
		{append([]string{"--max-memory", "1Gi"}, cluster...), "--max-time, --max-memory and --feed are not for plan"},
		{append([]string{"--subjects", "cilium"}, cluster...), `"cilium" is not known`},
		{append([]string{"--today", "cilium"}, cluster...), `--today: subject "cilium" is not known`},
		{append([]string{"--subjects", "synclab/nftables", "--today", "kube-proxy/nftables"}, cluster...), "--today kube-proxy/nftables is not among --subjects"},
		{append([]string{"--budget", "0s"}, cluster...), "--budget 0s: want more than 0"},
		{append([]string{"--precision", "0"}, cluster...), `--precision "0": want a share such as 15% or 0.15`},
		{append([]string{"--kernel", "6.12"}, cluster...), "--kernel is not for plan"},
		{append([]string{"--force"}, cluster...), "--force replaces the plan in --out, which is not given"},
		{[]string{"-f", "none.yaml", "--churn", "1"}, "none.yaml"},
	} {
		status, stdout, stderr := invoke(t, append([]string{"plan"}, c.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("%q: status %d, %s; want %s", c.args, status, stderr, c.want)
		}
	}
}

// The subject in use comes first: --today, else the mode of the configuration, else the first of the list.
func TestPlannedSubjects(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("nft.yaml", []byte("apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\nnftables:\n  minSyncPeriod: 7s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		first string
		all   int
	}{
		{[]string{"--subjects", "synclab/nftables,kube-proxy/nftables"}, "synclab/nftables", 2},
		{[]string{"--subjects", "synclab/nftables,kube-proxy/nftables", "--today", "kube-proxy/nftables"}, "kube-proxy/nftables", 2},
		{[]string{"--proxy-config", "nft.yaml"}, "kube-proxy/nftables", len(planned)},
		{[]string{"--today", "kube-proxy/iptables-nft"}, "kube-proxy/iptables-nft", len(planned) + 1},
	} {
		status, stdout, stderr := invoke(t, append([]string{"plan", "--services", "100", "--churn", "1", "--dry-run"}, c.args...)...)
		_, list, _ := strings.Cut(strings.TrimSpace(stdout), "subjects: ")
		if names := strings.Split(list, ", "); status != exitDone || names[0] != c.first || len(names) != c.all && !strings.Contains(stderr, "left out") {
			t.Errorf("%q: status %d, %q, %s", c.args, status, names, stderr)
		}
		if slices.Contains(c.args, "nft.yaml") && !strings.Contains(stdout, "minSyncPeriod 7s") {
			t.Errorf("the configuration's minSyncPeriod is not used: %s", stdout)
		}
	}
}
