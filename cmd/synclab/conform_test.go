package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/conform"
	"synclab/proxier/iptables"
	"synclab/reports/sections"
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
		{[]string{"--max-time", "0s"}, "--max-time 0s: want more than 0"},
		{[]string{"--max-memory", "1Gi"}, "--max-memory is for --verdicts"},
		{[]string{"--exec-env", "PATH"}, "--exec-env is for --verdicts"},
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

func TestConformReports(t *testing.T) {
	dir := t.TempDir()
	f := conformFlags{}
	cmd := newConformWith(streams{}, &f)
	small := filepath.Join(dir, "small.yaml")
	if err := cmd.ParseFlags([]string{"--random", "70", "--minimize", small, "--proxy-config", "my proxy.yaml", "--subjects", "kube-proxy/iptables-nft,synclab/iptables-nft"}); err != nil {
		t.Fatal(err)
	}
	set := " --proxy-config 'my proxy.yaml' --subjects kube-proxy/iptables-nft,synclab/iptables-nft\n"
	var out, errs bytes.Buffer
	s := streams{nil, &out, &errs}
	failure := &conform.Failure{Batch: "seed 7 (iptables-nft)", What: "cluster 3, step 1", Again: conform.Again{Flags: [][2]string{{"random", "25"}, {"seed", "7"}, {"then"}}}, Text: "- rule", Before: "before\n", After: "after\n"}
	f.tell(cmd, s, failure, 1)
	f.tell(cmd, s, failure, 2)
	f.tell(cmd, s, &conform.Failure{Batch: "x.yaml", Error: "x.yaml, at first: no node"}, 2)
	for _, want := range []string{
		"seed 7 (iptables-nft): cluster 3, step 1\n- rule\nreproduce with: synclab conform --random 25 --seed 7 --minimize " + small + set,
		"smaller: synclab conform --filename " + dir + "/small-before.yaml --then " + small + set,
		"--then " + dir + "/small-2.yaml" + set,
		"could not compare x.yaml, at first: no node\nreproduce with: synclab conform --minimize",
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

// What decides the exit status: a difference, or else a failure of the comparison.
func TestConformStatus(t *testing.T) {
	for _, c := range []struct {
		e      conform.Event
		status int
		want   string
	}{
		{conform.Event{Clusters: 1, States: 2}, exitDone, "1 cluster, 2 states: 0 unexplained differences, 0 explained\n"},
		{conform.Event{Clusters: 1, States: 2, Unexplained: 1, Differing: 1}, exitFailed, "1 cluster, 2 states: 1 unexplained difference in 1 state, 0 explained\nsynclab: 1 unexplained difference in 1 state\n"},
		{conform.Event{Clusters: 1, States: 2, NotCompared: 1}, exitNotCompared, "0 unexplained differences, 0 explained\nsynclab: could not compare 1 cluster to the end: see above\n"},
		{conform.Event{Clusters: 2, States: 2, NotCompared: 1, Unexplained: 3, Differing: 2}, exitFailed, "synclab: 3 unexplained differences in 2 states; could not compare 1 cluster"},
		{conform.Event{}, exitNotCompared, "no state was compared"},
	} {
		var out bytes.Buffer
		status := exitStatus(t.Context(), &out, verdictOf(streams{nil, &out, &out}, &c.e))
		if status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%+v: status %d, %s\nwant status %d and %s", c.e, status, &out, c.status, c.want)
		}
	}
	for _, c := range []struct {
		err    error
		status int
	}{
		{verdictOfPackets(sections.PacketAnswers{Packets: 9}), exitDone},
		{verdictOfPackets(sections.PacketAnswers{Packets: 9, Unexplained: 1, Missing: []string{"x/y"}}), exitFailed},
		{verdictOfPackets(sections.PacketAnswers{Packets: 9, Looped: 2}), exitFailed},
		{verdictOfPackets(sections.PacketAnswers{Packets: 9, Busy: 1}), exitDone},
		{verdictOfPackets(sections.PacketAnswers{Busy: 9}), exitNotCompared},
		{verdictOfPackets(sections.PacketAnswers{Packets: 9, Missing: []string{"x/y"}}), exitNotCompared},
		{verdictOfPackets(sections.PacketAnswers{}), exitNotCompared},
		{ofComparison(errors.New("no namespace")), exitNotCompared},
		{ofComparison(&netns.WorkerError{Status: 1}), exitNotCompared},
		{ofComparison(&netns.WorkerError{Status: exitInterrupted}), exitInterrupted},
		{ofComparison(badInput(errors.New("no such file"))), exitUsage},
	} {
		if status := exitStatus(t.Context(), io.Discard, c.err); status != c.status {
			t.Errorf("%v: status %d, want %d", c.err, status, c.status)
		}
	}
}

// A lab without kube-proxy compares synclab with itself.
func TestConformOfFiles(t *testing.T) {
	if _, err := conform.Variants(); err != nil {
		t.Skip(err)
	}
	dir := t.TempDir()
	states := make([]string, 3)
	for i, port := range []string{"80", "81", "82"} {
		states[i] = filepath.Join(dir, port+".yaml")
		if err := os.WriteFile(states[i], []byte("apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.7, ports: [{port: "+port+"}]}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	same := []string{"conform", "--subjects", "synclab/iptables-legacy,synclab/iptables-nft", "--variant", "legacy", "-f", states[0]}
	status, stdout, stderr := invoke(t, append(same, "--then", states[1], "--then", states[2])...)
	if want := "1 cluster, 3 states: 0 unexplained differences"; status != exitDone || !strings.Contains(stdout, want) {
		t.Errorf("status %d, %s%s\nwant %s", status, stdout, stderr, want)
	}
}
