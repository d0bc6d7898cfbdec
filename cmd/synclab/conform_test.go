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

func TestConformUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--verdicts", "--random", "5"}, "--random and --verdicts exclude each other"},
		{[]string{"--random", "5", "-f", "x.yaml"}, "--filename and --random exclude each other"},
		{[]string{"--verdicts", "mixed-types"}, `--verdicts takes no scenario, got "mixed-types"`},
		{[]string{"--verdicts", "--subjects", "synclab/iptables-nft"}, "two --subjects or more"},
		{[]string{"--subjects", ""}, `--subjects "": want at least one`},
		{[]string{"--random", "-1"}, "--random -1"},
		{[]string{"--workers", "0"}, "--workers 0"},
		{[]string{"--variant", "ipvs"}, `--variant "ipvs": want legacy or nft`},
		{[]string{"--family", "ipx"}, `--family "ipx": want IPv4 or IPv6`},
		{[]string{"--then", "x.yaml"}, "-f, which is not given"},
		{[]string{"--subjects", "synclab/iptables-nft"}, "two --subjects, not 1"},
		{[]string{"--subjects", "kube-proxy/nftables,synclab/iptables-nft"}, "not kube-proxy/nftables"},
		{[]string{"stedy-churn"}, "steady-churn"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			status, stdout, stderr := invoke(t, append([]string{"conform"}, c.args...)...)
			if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("status %d, %q\n%s\nwant status %d and %q", status, stdout, stderr, exitUsage, c.want)
			}
		})
	}
}

// requested returns the request of `conform` with some flags.
func requested(t *testing.T, args ...string) conform.Request {
	t.Helper()
	var f conformFlags
	var q conform.Request
	cmd := newConformWith(streams{}, &f)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		q, err = f.request(cmd, args, streams{strings.NewReader(""), io.Discard, io.Discard})
		return err
	}
	cmd.SetArgs(args)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	return q
}

func TestConformRequest(t *testing.T) {
	if _, err := conform.Variants(); err != nil {
		t.Skip(err)
	}
	q := requested(t, "--random", "70", "--seed", "9", "--variant", "nft", "--family", "IPv6", "--minimize", "x.yaml")
	if q.Clusters != 70 || q.Seed != 9 || q.Limit.Variant != iptables.Nft || q.Limit.Family != "IPv6" || q.Minimize == 0 || len(q.Scenarios) > 0 || !q.First.KubeProxy || q.Second.KubeProxy {
		t.Errorf("%+v", q)
	}
	if q := requested(t, "--variant", "legacy"); len(q.Scenarios) != len(scenarios.List()) || q.Scenarios[0].Scenario.Shape.Services > smallServices {
		t.Errorf("without anything: %d scenarios", len(q.Scenarios))
	}
	q = requested(t, "--variant", "legacy", "mixed-types", "cold-start", "--services", "7", "--seed", "3")
	if len(q.Scenarios) != 2 || q.Scenarios[1].Scenario.Shape.Services != 7 || q.Scenarios[0].Scenario.Seed != 3 || q.Scenarios[0].Config.ClusterCIDR == "" {
		t.Errorf("two scenarios: %+v", q.Scenarios)
	}
	q = requested(t, "-f", "../../sim/manifests/testdata/manifests/ngx.yaml", "--subjects", "synclab/iptables-nft,kube-proxy/iptables-legacy")
	if q.Objects == nil || q.First.KubeProxy || q.First.Variant != iptables.Nft || !q.Second.KubeProxy || len(q.Setting.Families) == 0 {
		t.Errorf("files: %+v", q)
	}
}

func TestConformTells(t *testing.T) {
	dir := t.TempDir()
	f := conformFlags{minimize: filepath.Join(dir, "small.yaml")}
	var out, errs bytes.Buffer
	s := streams{nil, &out, &errs}
	failure := &conform.Failure{Batch: "seed 7 (iptables-nft)", What: "cluster 3, step 1", Replay: "synclab conform --random 25 --seed 7", Text: "- rule", Before: "before\n", After: "after\n"}
	f.tell(s, failure, 1, "")
	f.tell(s, failure, 2, "/opt/kube-proxy")
	for _, want := range []string{
		"seed 7 (iptables-nft): cluster 3, step 1\n- rule\nreproduce with: synclab conform --random 25 --seed 7\n",
		"smaller: synclab conform -f " + dir + "/small-before.yaml --then " + dir + "/small.yaml\n",
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
	if got := explained(map[string]int{"b": 1000, "a": 2}); got != ", 1,002 explained (a 2, b 1,000; see docs/differences.md)" {
		t.Error(got)
	}
}
