package fault

import (
	"slices"
	"testing"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// A fault that may lose flows excuses lost flows until the next settle step. A lasting fault excuses them until it is
// cleared.
func TestMayFail(t *testing.T) {
	fault := func(kind string) scenarios.Step { return scenarios.Step{Fault: &scenarios.Fault{Kind: kind}} }
	settle := scenarios.Step{Settle: &scenarios.Settle{}}
	steps := []scenarios.Step{
		settle, fault(scenarios.FaultRestoreFails), settle, fault(scenarios.FaultConntrackFull), settle, fault(scenarios.FaultClear), settle, settle,
	}
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"1:settle", "3:settle", false}, {"3:settle", "4:fault", true}, {"5:settle", "5:settle", true}, {"7:settle", "8:settle", true},
		{"8:settle", "8:settle", false}, {"", "", false},
	} {
		if got := MayFail(steps, c.from, c.to); got != c.want {
			t.Errorf("from %q to %q: %v", c.from, c.to, got)
		}
	}
}

// Which faults cannot affect a subject. Those of tools and tables spare a subject with BPF maps; those of its process and of the
// API do not.
func TestSpares(t *testing.T) {
	noTools := []string{scenarios.FaultRestoreFails, scenarios.FaultRestoreKilled, scenarios.FaultRuleRefused, scenarios.FaultLockHeld}
	for name, spared := range map[string][]string{
		"synclab/iptables-legacy": nil, "synclab/iptables-nft-tree": {scenarios.FaultLockHeld}, "synclab/nftables": noTools,
		"kube-proxy/iptables-legacy": nil, "kube-proxy/nftables": {scenarios.FaultLockHeld},
		"cilium/lb": append(slices.Clone(noTools), scenarios.FaultWriter, scenarios.FaultFlush, scenarios.FaultDelete, scenarios.FaultReference, scenarios.FaultForeign, scenarios.FaultConntrackStale),
	} {
		about := subject.Named(name)
		env := &pass.Env{Assignment: pass.Assignment{Feed: raw.FeedAPI, Subject: name}, About: about}
		for _, kind := range Kinds {
			if why := Spares(env, &scenarios.Fault{Kind: kind.Name}); (why != "") != slices.Contains(spared, kind.Name) {
				t.Errorf("%s, %s: spared since %q", name, kind.Name, why)
			}
		}
		why := Spares(env, &scenarios.Fault{Kind: scenarios.FaultFlush, Table: "filter"})
		if ownTable := about.Nftables() || name == "cilium/lb"; (why != "") != ownTable {
			t.Errorf("%s, flush of filter: spared since %q", name, why)
		}
	}
}

// Each kind that a scenario may name is registered once, and lasts as its form says.
func TestKinds(t *testing.T) {
	var names []string
	for _, k := range Kinds {
		names = append(names, k.Name)
		if holds := (&scenarios.Fault{Kind: k.Name}).Holds(); holds != (k.lasts == forTime) {
			t.Errorf("%s: with a time in scenarios: %v, and here: %v", k.Name, holds, !holds)
		}
		if (k.inject == nil) == (k.disturb == nil) {
			t.Errorf("%s: want either inject or disturb", k.Name)
		}
	}
	want := scenarios.FaultKinds()
	slices.Sort(names)
	slices.Sort(want)
	if !slices.Equal(names, want) {
		t.Errorf("registered are %q, want %q", names, want)
	}
}
