package verdicts

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"synclab/bench/conform"
	"synclab/bench/upstream"
	"synclab/proxier/iptables"
	"synclab/sim"
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

// perKubeProxy is how many clusters one kube-proxy lives through, in one setting.
const perKubeProxy = 10

// An unmodified kube-proxy, mode iptables, does the same with every packet, or what an entry of docs/differences.md says.
func TestKubeProxyIptables(t *testing.T) {
	command := kubeProxy(t)
	variants, err := conform.Variants()
	if err != nil {
		t.Skip(err)
	}
	var limit conform.Constraint
	if len(variants) == 1 {
		limit.Variant = variants[0]
	}
	count := &tally{t: t, excused: map[string]int{}}
	n := howMany(perKubeProxy)
	t.Logf("%d clusters from seed %d on", n, *seed)
	for first := 0; first < n && !t.Failed(); first += perKubeProxy {
		liveThrough(t, count, command, *seed+uint64(first), min(perKubeProxy, n-first), limit)
	}
	t.Log(count)
}

// liveThrough compares the states of some clusters, one after the other, with one kube-proxy.
func liveThrough(t *testing.T, count *tally, command string, seed uint64, n int, limit conform.Constraint) {
	t.Helper()
	setting := conform.DrawSetting(seed, limit)
	var live *conform.Live
	for i := range n {
		random := sim.NewRandomCluster(sim.RandomOptions{Seed: seed + uint64(i), Families: setting.Families})
		count.begun()
		for step := range steps + 1 {
			what := fmt.Sprintf("seed %d, step %d", seed+uint64(i), step)
			var trace sim.Trace
			if step > 0 {
				trace = random.Next()
			}
			var err error
			switch {
			case live == nil:
				if live, err = conform.StartLive(t.Context(), command, setting, "node-0", random.Objects()); err == nil {
					defer live.Stop()
				}
			case step == 0:
				err = live.Become(t.Context(), random.Objects())
			default:
				err = live.Apply(t.Context(), trace)
			}
			if err != nil {
				t.Fatalf("%s (%s): %v", what, setting, err)
			}
			compareLive(t, count, live, setting, what, seed)
			if t.Failed() {
				return
			}
		}
	}
}

func compareLive(t *testing.T, count *tally, live *conform.Live, setting conform.Setting, what string, seed uint64) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s (%s): %v", what, setting, err)
		}
	}
	must(live.Sync(t.Context()))
	machine, err := live.Machine()
	must(err)
	s := &State{Setting: setting, Node: "node-0", Machine: machine, Objects: live.Objects()}
	k, err := readIptables(live, s)
	must(err)
	ours, err := Render(t.Context(), s, iptables.Classic)
	must(err)
	world, err := s.World()
	must(err)
	count.states++
	for _, family := range both {
		packets, err := s.Packets(family, seed)
		must(err)
		found, err := Compare(family, world, packets, k.Ruleset, ours)
		must(err)
		count.packets += len(packets)
		var unexplained []Difference
		for i := range found {
			entry, err := k.explain(t.Context(), &found[i])
			if errors.Is(err, errUnexplained) {
				unexplained = append(unexplained, found[i])
				continue
			}
			must(err)
			count.excused[entry]++
		}
		count.differences += len(unexplained)
		if len(unexplained) > 0 {
			t.Errorf("%s (%s): %d of %d packets differ:\n%s", what, setting, len(unexplained), len(packets), Describe(unexplained))
		}
	}
}
