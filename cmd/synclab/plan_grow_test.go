package main

import (
	"testing"

	"github.com/spf13/cobra"

	"synclab/cmd/synclab/planning"
	"synclab/reports/comparison"
	"synclab/reports/plan"
)

func TestParseGrowth(t *testing.T) {
	today := plan.Cluster{Services: 5000, Endpoints: 10, Nodes: 100, Churn: plan.Churn{Endpoints: 4}}
	for _, c := range []struct {
		parts []string
		want  plan.Growth
	}{
		{nil, plan.Growth{}},
		{[]string{"services=2x"}, plan.Growth{Services: 2}},
		{[]string{"services=2x", "endpoints=3X", "churn=1.5×"}, plan.Growth{Services: 2, Endpoints: 3, Churn: 1.5}},
		{[]string{"services=+20%", " nodes=5000"}, plan.Growth{Services: 1.2, Nodes: 50}},
		{[]string{"services=40000", "endpoints=12.5", "churn=1x"}, plan.Growth{Services: 8, Endpoints: 1.25, Churn: 1}},
	} {
		got, err := planning.ParseGrowth(c.parts, today)
		if err != nil || got != c.want {
			t.Errorf("%q: %+v, %v; want %+v", c.parts, got, err, c.want)
		}
	}
	still := today
	still.Churn.Endpoints = 0
	const howFar = "want a factor such as 2x, a share such as +20%, or a final number"
	for _, c := range []struct {
		parts []string
		today plan.Cluster
		want  string
	}{
		{[]string{"services"}, today, "--grow services: want a quantity and its growth, e.g. services=2x"},
		{[]string{"services=2x", "pods=2x"}, today, "--grow pods=2x: want one of services, endpoints, nodes, churn"},
		{[]string{"services=2x", "services=3x"}, today, "--grow services=3x: services is given twice"},
		{[]string{"services=many"}, today, "--grow services=many: " + howFar},
		{[]string{"services=+20"}, today, "--grow services=+20: " + howFar},
		{[]string{"services=20%"}, today, "--grow services=20%: " + howFar},
		{[]string{"services="}, today, "--grow services=: " + howFar},
		{[]string{"services=infx"}, today, "--grow services=infx: " + howFar},
		{[]string{"services=-20%"}, today, "--grow services=-20%: a cluster cannot shrink here; want growth"},
		{[]string{"nodes=0.5x"}, today, "--grow nodes=0.5x: a cluster cannot shrink here; want growth"},
		{[]string{"services=4000"}, today, "--grow services=4000: today there are 5000 already; want more"},
		{[]string{"services=1x", "endpoints=+0%"}, today, "--grow services=1x,endpoints=+0%: nothing grows"},
		{[]string{"churn=10"}, still, "--grow churn=10: there are none today: a factor to this number does not exist"},
	} {
		if got, err := planning.ParseGrowth(c.parts, c.today); err == nil || err.Error() != c.want {
			t.Errorf("%q: %+v, %v; want %s", c.parts, got, err, c.want)
		}
	}
}

func TestSLOs(t *testing.T) {
	read := func(args ...string) (comparison.SLOs, error) {
		var f sloFlags
		cmd := &cobra.Command{Use: "plan"}
		f.register(cmd)
		if err := cmd.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		p, defaulted, err := f.read(cmd)
		if err == nil && defaulted != (len(args) == 0) {
			t.Errorf("%q: defaulted: %v", args, defaulted)
		}
		if err == nil {
			err = (&plan.Question{SLOs: p}).Validate()
		}
		return p, err
	}
	if p, err := read(); err != nil || p != comparison.PlanSLOs {
		t.Errorf("without flags: %+v, %v", p, err)
	}
	want := comparison.PlanSLOs
	want.Latency = 1
	if p, err := read("--npl-p99", "1s"); err != nil || p != want {
		t.Errorf("one flag: %+v, %v; want %+v", p, err, want)
	}
	want = comparison.SLOs{FirstPacket: 100e-6, CPU: 0.25, Memory: 1 << 30}
	if p, err := read("--npl-p99", "0", "--first-packet-p99", "100us", "--cpu", "250m", "--memory", "1Gi", "--first-sync", "0s"); err != nil || p != want {
		t.Errorf("all flags: %+v, %v; want %+v", p, err, want)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--npl-p99", "-1s"}, "--npl-p99 -1s: want more than 0, or 0 for no SLO"},
		{[]string{"--first-sync", "-1m"}, "--first-sync -1m0s: want more than 0, or 0 for no SLO"},
		{[]string{"--cpu", "half"}, `--cpu "half": want a number of CPUs such as 0.5 or 500m`},
		{[]string{"--cpu", "-1"}, `--cpu "-1": want a number of CPUs such as 0.5 or 500m`},
		{[]string{"--memory", "512MB!"}, `--memory "512MB!": want a size such as 512Mi or 2Gi`},
		{[]string{"--npl-p99", "0", "--first-packet-p99", "0", "--cpu", "0", "--memory", "0", "--first-sync", "0"}, "there is no SLO: any cluster size would meet it"},
	} {
		if _, err := read(c.args...); err == nil || err.Error() != c.want {
			t.Errorf("%q: %v; want %s", c.args, err, c.want)
		}
	}
}
