package verdicts

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

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

// look is what one look at kube-proxy's rules showed.
type look struct {
	packets     int
	excused     map[string]int
	unexplained []Difference
}

// A node's zone reaches kube-proxy by a watch that the signal says nothing of: what differs is looked at again, after one
// more sync, before it counts.
const tries, between = 12, 150 * time.Millisecond

func compareLive(t *testing.T, count *tally, live *conform.Live, setting conform.Setting, what string, seed uint64) {
	t.Helper()
	pause := time.NewTimer(0)
	defer pause.Stop()
	var l *look
	for range tries {
		<-pause.C
		var err error
		if l, err = lookAt(t.Context(), live, setting, seed); err != nil {
			t.Fatalf("%s (%s): %v", what, setting, err)
		}
		if len(l.unexplained) == 0 {
			break
		}
		pause.Reset(between)
	}
	count.states++
	count.packets += l.packets
	count.differences += len(l.unexplained)
	for entry, n := range l.excused {
		count.excused[entry] += n
	}
	if len(l.unexplained) > 0 {
		t.Errorf("%s (%s): %d of %d packets differ:\n%s", what, setting, len(l.unexplained), l.packets, Describe(l.unexplained))
	}
}

func lookAt(ctx context.Context, live *conform.Live, setting conform.Setting, seed uint64) (*look, error) {
	if err := live.Sync(ctx); err != nil {
		return nil, err
	}
	machine, err := live.Machine()
	if err != nil {
		return nil, err
	}
	s := &State{Setting: setting, Node: "node-0", Machine: machine, Objects: live.Objects()}
	k, err := readIptables(live, s)
	if err != nil {
		return nil, err
	}
	ours, err := Render(ctx, s, iptables.Classic)
	if err != nil {
		return nil, err
	}
	world, err := s.World()
	if err != nil {
		return nil, err
	}
	l := &look{excused: map[string]int{}}
	for _, family := range both {
		packets, err := s.Packets(family, seed)
		if err != nil {
			return nil, err
		}
		found, err := Compare(family, world, packets, k.Ruleset, ours)
		if err != nil {
			return nil, err
		}
		l.packets += len(packets)
		for i := range found {
			entry, err := k.explain(ctx, &found[i])
			switch {
			case errors.Is(err, errUnexplained):
				l.unexplained = append(l.unexplained, found[i])
			case err != nil:
				return nil, err
			default:
				l.excused[entry]++
			}
		}
	}
	return l, nil
}
