package main

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"synclab/bench/conform"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

func TestCompareRulesUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--random", "5"}, "--random is only for --rules"},
		{[]string{"--variant", "nft"}, "--variant is only for --rules"},
		{[]string{"a", "b"}, `takes at most 1 argument (a scenario), got also "b"`},
		{[]string{"--rules", "--random", "-1"}, "--random -1"},
		{[]string{"--rules", "--workers", "0"}, "--workers 0"},
		{[]string{"--rules", "--variant", "ipvs"}, `--variant "ipvs": want legacy or nft`},
		{[]string{"--rules", "--family", "ipx"}, `--family "ipx": want IPv4 or IPv6`},
		{[]string{"--rules", "--then", "x.yaml"}, "-f, which is not given"},
		{[]string{"--rules", "--subjects", "synclab/iptables-nft"}, "two --subjects, not 1"},
		{[]string{"--rules", "--subjects", "kube-proxy/nftables,synclab/iptables-nft"}, "not kube-proxy/nftables"},
		{[]string{"--rules", "stedy-churn"}, "steady-churn"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			status, stdout, stderr := invoke(t, append([]string{"compare"}, c.args...)...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("status %d, %q\n%s\nwant status %d and %q", status, stdout, stderr, exitUsage, c.want)
			}
		})
	}
}

// requested returns the request of `compare --rules` with some flags.
func requested(t *testing.T, args ...string) conform.Request {
	t.Helper()
	var rules rulesFlags
	var shared runFlags
	var q conform.Request
	cmd := &cobra.Command{Args: cobra.ArbitraryArgs, RunE: func(cmd *cobra.Command, args []string) (err error) {
		q, err = rules.request(cmd, args, streams{strings.NewReader(""), io.Discard, io.Discard}, &shared)
		return err
	}}
	shared.register(cmd, "", "")
	rules.register(cmd)
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return q
}

func TestCompareRulesRequest(t *testing.T) {
	if _, err := conform.Variants(); err != nil {
		t.Skip(err)
	}
	q := requested(t, "--rules", "--random", "70", "--seed", "9", "--variant", "nft", "--family", "IPv6", "--minimize", "x.yaml")
	if q.Clusters != 70 || q.Seed != 9 || q.Limit.Variant != iptables.Nft || q.Limit.Family != "IPv6" || q.Minimize == 0 || len(q.Scenarios) > 0 || !q.First.KubeProxy || q.Second.KubeProxy {
		t.Errorf("%+v", q)
	}
	if q := requested(t, "--rules", "--variant", "legacy"); len(q.Scenarios) != len(scenarios.List()) || q.Scenarios[0].Scenario.Shape.Services > smallServices {
		t.Errorf("without anything: %d scenarios", len(q.Scenarios))
	}
	q = requested(t, "--rules", "--variant", "legacy", "mixed-types", "cold-start", "--services", "7", "--seed", "3")
	if len(q.Scenarios) != 2 || q.Scenarios[1].Scenario.Shape.Services != 7 || q.Scenarios[0].Scenario.Seed != 3 || q.Scenarios[0].Config.ClusterCIDR == "" {
		t.Errorf("two scenarios: %+v", q.Scenarios)
	}
	q = requested(t, "--rules", "-f", "../../sim/manifests/testdata/manifests/ngx.yaml", "--subjects", "synclab/iptables-nft,kube-proxy/iptables-legacy")
	if q.Objects == nil || q.First.KubeProxy || q.First.Variant != iptables.Nft || !q.Second.KubeProxy || len(q.Setting.Families) == 0 {
		t.Errorf("files: %+v", q)
	}
}

func TestCompareRulesTells(t *testing.T) {
	dir := t.TempDir()
	f := rulesFlags{minimize: filepath.Join(dir, "small.yaml")}
	var out, errs bytes.Buffer
	s := streams{nil, &out, &errs}
	failure := &conform.Failure{Batch: "seed 7 (iptables-nft)", What: "cluster 3, step 1", Replay: "synclab compare --rules --random 25 --seed 7", Text: "- rule", Before: "before\n", After: "after\n"}
	f.tell(s, failure, 1, "")
	f.tell(s, failure, 2, "/opt/kube-proxy")
	for _, want := range []string{
		"seed 7 (iptables-nft): cluster 3, step 1\n- rule\nreproduce with: synclab compare --rules --random 25 --seed 7\n",
		"smaller: synclab compare --rules -f " + dir + "/small-before.yaml --then " + dir + "/small.yaml\n",
		"--seed 7 --kube-proxy /opt/kube-proxy\n", "--then " + dir + "/small-2.yaml\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	for name, want := range map[string]string{"small.yaml": "after\n", "small-before.yaml": "before\n", "small-2.yaml": "after\n"} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for n, want := range map[int]string{0: "0", 999: "999", 2000: "2,000", 1234567: "1,234,567"} {
		if got := thousands(n); got != want {
			t.Errorf("%d is written %s", n, got)
		}
	}
	if got := explained(map[string]int{"b": 1000, "a": 2}); got != ", 1,002 explained (a 2, b 1,000; see docs/differences.md)" {
		t.Error(got)
	}
}
