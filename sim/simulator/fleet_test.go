package simulator

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"synclab/bench/seeds"
	"synclab/proxier/runner"
)

var longFlag = flag.Bool("long", false, "run TestFleetDay: 5,000 nodes, 24 hours")

// randomCost has kinds, sizes and noise; some costs are nearly 0, some longer than anything else.
func randomCost(rng *rand.Rand) Cost {
	scale := []time.Duration{time.Millisecond, 30 * time.Millisecond, 2 * time.Second}[rng.IntN(3)]
	return Linear{
		Full: scale * time.Duration(1+rng.IntN(30)), Partial: scale, PerService: scale / 10, PerChange: scale / 100,
		Spread: []float64{0, 0.1, 1}[rng.IntN(3)],
	}
}

func randomSettings(rng *rand.Rand) Settings {
	s := Settings{
		Cost: randomCost(rng), Seed: rng.Uint64(),
		CPU: func(kind SyncKind, services, changes int, took time.Duration) time.Duration {
			return took/2 + time.Duration(len(kind)*services+changes)*time.Microsecond
		}, FullAfterFailure: rng.IntN(2) == 0,
		FailProbability: []float64{0, 0.05, 0.6}[rng.IntN(3)],
		FullInterval:    []time.Duration{0, 90 * time.Second, time.Hour}[rng.IntN(3)],
		Factor:          []float64{0, 0.5, 3}[rng.IntN(3)],
		Runner: runner.Options{
			Policy: runner.Policies()[rng.IntN(2)], Burst: rng.IntN(4),
			MinInterval:   []time.Duration{0, 300 * time.Millisecond, time.Second, 17 * time.Second}[rng.IntN(4)],
			MaxInterval:   []time.Duration{0, 40 * time.Second, time.Hour}[rng.IntN(3)],
			RetryInterval: []time.Duration{0, time.Second, time.Minute}[rng.IntN(3)],
		},
	}
	if s.Runner.RetryInterval > 0 && rng.IntN(2) == 0 {
		s.Runner.FirstRetry = s.Runner.RetryInterval
	}
	return s
}

// randomSource mixes some of the sources; the same seed gives the same source.
func randomSource(t testing.TB, seed uint64) Source {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 99))
	p := Population{Services: 1 + rng.IntN(300), Skew: []float64{0, 1.2}[rng.IntN(2)]}
	must := func(s Source, err error) Source {
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	all := []Source{
		must(Poisson{p, Rate{PerSecond: []float64{0.02, 1, 60}[rng.IntN(3)]}, Endpoints, 0}.Source(seed)),
		must(Poisson{p, Rate{PerSecond: 0.5, Swing: 0.9, Period: 20 * time.Minute}, Services, 3}.Source(seed + 1)),
		must(Bursts{p, Causes{Rate: Rate{PerSecond: 0.01}}, 500, time.Duration(rng.IntN(3)) * time.Second}.Source(seed)),
		must(Rollouts{p, Causes{Rate: Rate{PerSecond: 0.02}}, 10, 0, 0, 1, 0}.Source(seed)),
		must(Rollouts{p, Causes{At: []time.Duration{time.Minute, 5 * time.Minute}}, 7, 0.3, 4 * time.Second, 40, 9 * time.Second}.Source(seed + 1)),
		must(NodeLosses{p, Causes{Rate: Rate{PerSecond: 0.005}}, 110, 0, time.Minute}.Source(seed)),
	}
	rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return Merge(all[:1+rng.IntN(len(all))]...)
}

// Every node of a fleet does exactly what the loop of one node does: the same syncs at the same times, and the same
// counts.
func TestFleetIsManyLoops(t *testing.T) {
	for _, seed := range seeds.Several(t, 30) {
		rng := rand.New(rand.NewPCG(seed, 7))
		span := Span{Length: time.Duration(3+rng.IntN(20)) * time.Minute, Settle: time.Duration(rng.IntN(2)) * 3 * time.Minute}
		span.Since = time.Duration(rng.IntN(2)) * time.Minute
		var classes []Class
		for i := range 3 {
			classes = append(classes, Class{
				Name: fmt.Sprint(i), Nodes: 1 + rng.IntN(3), Settings: randomSettings(rng),
				Phase: time.Duration(rng.IntN(2)) * 2 * time.Minute, Noise: float64(rng.IntN(2)) / 4,
			})
		}
		syncs := map[int][]Sync{}
		fleet, err := RunFleet(t.Context(), classes, randomSource(t, seed), FleetOptions{
			Span: span, Seed: seed, Workers: 1, Window: time.Duration(1+rng.IntN(300)) * time.Second,
			onSync: func(node int, s Sync) { syncs[node] = append(syncs[node], s) },
		})
		if err != nil {
			t.Fatal(err)
		}
		var pool Histogram
		number := 0
		for _, c := range classes {
			for range c.Nodes {
				var alone []Sync
				one, err := Run(c.Node(seed, number), randomSource(t, seed), Options{Span: span, OnSync: func(s Sync) { alone = append(alone, s) }})
				if err != nil {
					t.Fatal(err)
				}
				if i := firstDifference(alone, syncs[number]); i >= 0 {
					t.Fatalf("seed %d, node %d, sync %d of %d: alone %+v, in the fleet %+v", seed, number, i, len(alone), at(alone, i), at(syncs[number], i))
				}
				if got := fleet.Nodes[number].Result; !reflect.DeepEqual(&got, one) {
					t.Fatalf("seed %d, node %d:\nalone        %s\nin the fleet %s", seed, number, brief(one), brief(&got))
				}
				pool.Merge(&one.Latency)
				number++
			}
		}
		if !reflect.DeepEqual(pool, fleet.Latency) {
			t.Errorf("seed %d: the pool of latencies is another one", seed)
		}
		var inWindows int64
		for _, w := range fleet.Windows {
			inWindows += w.Count
		}
		if inWindows != pool.Count {
			t.Errorf("seed %d: %d latencies in windows, %d in all", seed, inWindows, pool.Count)
		}
	}
}

func firstDifference(a, b []Sync) int {
	for i := range max(len(a), len(b)) {
		if at(a, i) != at(b, i) {
			return i
		}
	}
	return -1
}

func at(s []Sync, i int) Sync {
	if i < len(s) {
		return s[i]
	}
	return Sync{}
}

func brief(r *Result) string {
	return fmt.Sprintf("%d latencies, max %v, p99 %v, waiting %d, syncs %d+%d-%d, lived %v busy %v cpu %v backlog %d max %d stale %v max %v age %v",
		r.Latency.Count, r.Latency.Max, r.Latency.Quantile(0.99), r.Waiting, r.FullSyncs, r.PartialSyncs, r.Failed, r.Lived, r.Busy, r.CPU, r.Backlog, r.MaxBacklog, r.Stale, r.MaxStale, r.StaleAge)
}

// The same seed gives the same result to the last bit, for any number of workers and CPUs. Windows do not change what
// nodes do.
func TestSameSeedSameFleet(t *testing.T) {
	seed := seeds.Of(t)
	run := func(workers, procs int, window time.Duration) *FleetResult {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		rng := rand.New(rand.NewPCG(seed, 3))
		classes := []Class{
			{Name: "a", Nodes: 40, Settings: randomSettings(rng), Phase: time.Minute, Noise: 0.2},
			{Name: "b", Nodes: 30, Settings: randomSettings(rng), Noise: 0.1},
		}
		r, err := RunFleet(t.Context(), classes, randomSource(t, seed), FleetOptions{
			Span: Span{Length: 20 * time.Minute}, Seed: seed, Workers: workers, Window: window,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	first := run(1, 1, 0)
	for _, other := range [][2]int{{1, 1}, {2, 2}, {7, 1}, {3, 4}} {
		if !reflect.DeepEqual(first, run(other[0], other[1], 0)) {
			t.Errorf("seed %d: another result with %d workers on %d CPUs", seed, other[0], other[1])
		}
	}
	finer := run(2, 2, 7*time.Second)
	if !reflect.DeepEqual(first.Nodes, finer.Nodes) || !reflect.DeepEqual(first.Latency, finer.Latency) {
		t.Errorf("seed %d: another result with smaller windows", seed)
	}
	if slices.Equal(first.Windows, finer.Windows) {
		t.Error("windows of 5 minutes and of 7 seconds are the same")
	}
}

func TestFleetEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := RunFleet(ctx, nil, List(nil), FleetOptions{Span: Span{Length: time.Hour}}); err == nil {
		t.Error("a fleet lived on when its context had ended")
	}
	r, err := RunFleet(t.Context(), []Class{{Nodes: 2, Settings: Synclab(Linear{Full: time.Second}, true)}}, List(nil), FleetOptions{Span: Span{Length: 3 * time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	// Without a change: one full sync at the start, one an hour after each.
	if n := r.Nodes[1]; n.FullSyncs != 3 || n.PartialSyncs != 0 || n.Latency.Count != 0 || n.Stale != 0 {
		t.Errorf("an idle node: %s", brief(&n.Result))
	}
}

// day returns nodes of three classes, in a cluster of 20,000 Services.
func day(length time.Duration, nodes int, perSecond float64) ([]Class, Source, FleetOptions, error) {
	cost := Linear{Full: 3 * time.Second, Partial: 80 * time.Millisecond, PerService: 400 * time.Microsecond, Spread: 0.15}
	classes := []Class{
		{Name: "8 cores", Nodes: nodes * 6 / 10, Settings: Synclab(cost, false), Phase: 10 * time.Second, Noise: 0.1},
		{Name: "2 cores", Nodes: nodes * 3 / 10, Settings: Synclab(cost, false), Phase: 10 * time.Second, Noise: 0.1},
		{Name: "kube-proxy", Nodes: nodes / 10, Settings: KubeProxy(cost, false), Phase: 10 * time.Second, Noise: 0.1},
	}
	classes[1].Settings.Factor = 3
	source, err := Poisson{Population: Population{Services: 20_000}, Rate: Rate{PerSecond: perSecond}}.Source(1)
	return classes, source, FleetOptions{Span: Span{Length: length, Settle: time.Minute, Since: time.Minute}, Seed: 1}, err
}

// A large cluster's day, with -long: it takes a minute or more.
func TestFleetDay(t *testing.T) {
	if !*longFlag {
		t.Skip("takes minutes: -long")
	}
	classes, source, opts, err := day(24*time.Hour, 5000, 50)
	if err != nil {
		t.Fatal(err)
	}
	began, used := time.Now(), cpuTime(t)
	r, err := RunFleet(t.Context(), classes, source, opts)
	if err != nil {
		t.Fatal(err)
	}
	took, cpu := time.Since(began), cpuTime(t)-used
	var syncs int64
	for i := range r.Nodes {
		syncs += r.Nodes[i].Syncs()
	}
	node, slowest := r.Slowest(0.99)
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	t.Logf("%d nodes, 24 h, %d events, %d syncs, %d latencies in %v: CPU time %v, %.0f ns a sync; %d MiB of memory",
		len(r.Nodes), r.Events, syncs, r.Latency.Count, took.Round(time.Millisecond), cpu.Round(time.Millisecond),
		float64(cpu)/float64(syncs), m.Sys>>20)
	t.Logf("p50 %v, p90 %v, p99 %v, objective %v; slowest node %d: p99 %v", r.Latency.Quantile(0.5), r.Latency.Quantile(0.9),
		r.Latency.Quantile(0.99), r.Objective(0.99), node, slowest)
	for i, c := range classes {
		sum := r.Class(i)
		t.Logf("%-10s p99 %v, %.3f CPUs, stale %.0f %% of the time", c.Name, sum.Latency.Quantile(0.99), sum.CPUShare(), 100*sum.StaleShare())
	}
	if r.Latency.Count < int64(len(r.Nodes))*r.Events*99/100 {
		t.Errorf("%d latencies of %d events on %d nodes", r.Latency.Count, r.Events, len(r.Nodes))
	}
}

// cpuTime is this process's CPU time, which is more precise than the clock on a shared machine.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFleet measures the cost of one sync of one node, also with twenty times as many changes in each.
func BenchmarkFleet(b *testing.B) {
	const nodes, length = 500, 5 * time.Minute
	for _, rate := range []float64{50, 1000} {
		b.Run(fmt.Sprintf("nodes=%d/rate=%g", nodes, rate), func(b *testing.B) {
			var syncs, latencies int64
			used := cpuTime(b)
			for b.Loop() {
				classes, source, opts, err := day(length, nodes, rate)
				if err != nil {
					b.Fatal(err)
				}
				opts.Workers, opts.Settle = 1, 0
				r, err := RunFleet(b.Context(), classes, source, opts)
				if err != nil {
					b.Fatal(err)
				}
				latencies += r.Latency.Count
				for i := range r.Nodes {
					syncs += r.Nodes[i].Syncs()
				}
			}
			b.ReportMetric(float64(cpuTime(b)-used)/float64(syncs), "cpu-ns/sync")
			b.ReportMetric(float64(latencies)/b.Elapsed().Seconds(), "latencies/s")
		})
	}
}
