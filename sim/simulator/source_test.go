package simulator

import (
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/seeds"
	"synclab/scenarios"
	"synclab/sim/world"
)

func take(s Source, until time.Duration) []Event {
	var all []Event
	for e, ok := s.Next(); ok && e.Due < until; e, ok = s.Next() {
		all = append(all, e)
	}
	return all
}

func must(t *testing.T) func(Source, error) Source {
	return func(s Source, err error) Source {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// All sources are sorted, and equal for the same seed.
func TestSourcesAreOrderedAndSeeded(t *testing.T) {
	different := false
	for seed := uint64(0); seed < 20; seed++ {
		first, again, other := take(randomSource(t, seed), 20*time.Minute), take(randomSource(t, seed), 20*time.Minute), take(randomSource(t, seed+1), 20*time.Minute)
		if !slices.Equal(first, again) {
			t.Errorf("seed %d gives other events the second time", seed)
		}
		different = different || !slices.Equal(first, other)
		if !slices.IsSortedFunc(first, func(a, b Event) int { return int(a.Due - b.Due) }) {
			t.Errorf("seed %d: events are out of order", seed)
		}
	}
	if !different {
		t.Error("all seeds give the same events")
	}
}

func TestPoissonRates(t *testing.T) {
	const services, perSecond = 100, 20.0
	steady := take(must(t)(Poisson{Population: Population{Services: services}, Rate: Rate{PerSecond: perSecond}}.Source(1)), time.Hour)
	if n, want := float64(len(steady)), perSecond*3600; math.Abs(n-want) > 5*math.Sqrt(want) {
		t.Errorf("%g events in an hour, want about %g", n, want)
	}
	gaps := 0.0 // squared: the mean square of an exponential is twice its squared mean, that of even gaps once
	for i := 1; i < len(steady); i++ {
		gap := (steady[i].Due - steady[i-1].Due).Seconds() * perSecond
		gaps += gap * gap
	}
	if mean := gaps / float64(len(steady)-1); math.Abs(mean-2) > 0.1 {
		t.Errorf("gaps have a mean square of %.2f of their squared mean, want 2", mean)
	}
	count := make([]int, services)
	for _, e := range steady {
		count[e.Service]++
	}
	if slices.Min(count) < 500 || slices.Max(count) > 950 {
		t.Errorf("Services change %d to %d times, want about 720 each", slices.Min(count), slices.Max(count))
	}

	daily := take(must(t)(Poisson{
		Population: Population{Services: services, Skew: 1.5}, Rate: Rate{PerSecond: 2, Swing: 0.8, Busiest: 14 * time.Hour},
	}.Source(1)), Day)
	byHour := make([]float64, 24)
	first := 0
	for _, e := range daily {
		byHour[e.Due/time.Hour]++
		if e.Service == 0 {
			first++
		}
	}
	if n, want := float64(len(daily)), 2*86400.0; math.Abs(n-want) > 5*math.Sqrt(want) {
		t.Errorf("%g events in a day, want about %g", n, want)
	}
	for hour, want := range map[int]float64{13: 1.8, 14: 1.8, 1: 0.2, 2: 0.2, 8: 1.1} {
		if got := byHour[hour] / 3600 / 2; math.Abs(got-want) > 0.15 {
			t.Errorf("in hour %d the rate is %.2f of the mean, want about %.2f", hour, got, want)
		}
	}
	if share := float64(first) / float64(len(daily)); share < 0.3 {
		t.Errorf("the first Service of a skewed population has a share of %.2f", share)
	}
}

// Trains: each cause has its events, at their times.
func TestTrains(t *testing.T) {
	p := Population{Services: 1000}
	moments := Causes{At: []time.Duration{time.Second, 10 * time.Second}}
	bursts := take(must(t)(Bursts{p, moments, 10, time.Second}.Source(1)), time.Hour)
	if len(bursts) != 20 || bursts[0].Due != time.Second || bursts[9].Due != 1900*time.Millisecond || bursts[10].Due != 10*time.Second {
		t.Errorf("two bursts: %+v", bursts)
	}
	// 10 endpoints in waves of 3, 3, 3 and 1, each up, draining, gone.
	rollout := take(must(t)(Rollouts{Population: p, Causes: Causes{At: []time.Duration{0}}, Endpoints: 10, Interval: 3 * time.Second}.Source(1)), time.Hour)
	var weights []int32
	for i, e := range rollout {
		weights = append(weights, e.Weight)
		if e.Due != time.Duration(i)*time.Second || e.Service != rollout[0].Service {
			t.Errorf("event %d of a rollout: %+v", i, e)
		}
	}
	if !slices.Equal(weights, []int32{3, 3, 3, 3, 3, 3, 3, 3, 3, 1, 1, 1}) {
		t.Errorf("a rollout of 10 endpoints has weights %v", weights)
	}
	loss := take(must(t)(NodeLosses{Population: p, Causes: Causes{At: []time.Duration{0}}, Pods: 100}.Source(1)), time.Hour)
	if len(loss) != 200 || loss[99].Due != 99*time.Millisecond || loss[100].Due != 5*time.Minute || loss[0].Service != loss[100].Service {
		t.Errorf("a lost node has %d events", len(loss))
	}
	storm := take(must(t)(Rollouts{Population: p, Causes: Causes{At: []time.Duration{time.Minute}}, Endpoints: 4, Together: 500, Within: time.Minute}.Source(1)), time.Hour)
	if len(storm) != 500*4*3 || storm[0].Due < time.Minute || storm[0].Due > 62*time.Second {
		t.Errorf("a storm of 500 rollouts has %d events, from %v on", len(storm), storm[0].Due)
	}
}

func TestBetween(t *testing.T) {
	all := []Event{{Due: 1}, {Due: 2}, {Due: 2, Service: 1}, {Due: 3}, {Due: 4}}
	if got := take(Between(List(all), 2, 4), time.Hour); !slices.Equal(got, all[1:4]) {
		t.Errorf("between 2 and 4: %+v", got)
	}
	if got := take(Merge(List(all[:3]), List(nil), List(all[1:])), time.Hour); len(got) != 7 || got[1] != all[1] || got[2] != all[2] || got[3] != all[1] {
		t.Errorf("merged: %+v", got)
	}
}

func TestSourcesAreChecked(t *testing.T) {
	p, c := Population{Services: 10}, Causes{Rate: Rate{PerSecond: 1}}
	for name, make := range map[string]func() (Source, error){
		"no services": func() (Source, error) { return Poisson{Rate: c.Rate}.Source(1) },
		"flat skew":   func() (Source, error) { return Poisson{Population: Population{10, 0.5}, Rate: c.Rate}.Source(1) },
		"no rate":     func() (Source, error) { return Poisson{Population: p}.Source(1) },
		"swing":       func() (Source, error) { return Poisson{Population: p, Rate: Rate{PerSecond: 1, Swing: 2}}.Source(1) },
		"no cause":    func() (Source, error) { return Bursts{Population: p, Changes: 1}.Source(1) },
		"no changes":  func() (Source, error) { return Bursts{Population: p, Causes: c}.Source(1) },
		"moments out of order": func() (Source, error) {
			return Bursts{Population: p, Causes: Causes{At: []time.Duration{2, 1}}, Changes: 1}.Source(1)
		},
		"no endpoints": func() (Source, error) { return Rollouts{Population: p, Causes: c}.Source(1) },
		"no pods":      func() (Source, error) { return NodeLosses{Population: p, Causes: c}.Source(1) },
	} {
		if _, err := make(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The memory of a source and a loop does not grow with the number of events.
func TestMemoryDoesNotGrow(t *testing.T) {
	run := func(length time.Duration) uint64 {
		s := Merge(must(t)(Poisson{Population: Population{Services: 1000}, Rate: Rate{PerSecond: 50}}.Source(1)),
			must(t)(Rollouts{Population: Population{Services: 1000}, Causes: Causes{Rate: Rate{PerSecond: 0.1}}, Endpoints: 20}.Source(1)))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Run(Synclab(Linear{Partial: 50 * time.Millisecond}, false), s, Options{Span: Span{Length: length}}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	run(time.Minute)
	// Only the trains allocate: about 100 bytes for each of their 60 events; a Poisson change allocates nothing.
	if short, long := run(10*time.Minute), run(100*time.Minute); long > 3<<20 || long < short {
		t.Errorf("%d KiB were allocated for 300,000 changes, %d KiB for 30,000", long>>10, short>>10)
	}
}

// A trace of the simulated cluster becomes events of its Services.
func TestRecorded(t *testing.T) {
	w, err := world.NewWorld(scenarios.Shape{Services: 20}, seeds.Of(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Create(scenarios.Create{}); err != nil {
		t.Fatal(err)
	}
	trace, err := w.Churn(scenarios.Churn{Events: 200, Rate: 10, Kind: "mixed"})
	if err != nil {
		t.Fatal(err)
	}
	lost, err := w.NodeLoss(scenarios.NodeLoss{Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	events, names := Recorded(append(trace, lost...))
	nodes := 0
	for _, c := range lost {
		if _, ok := c.Object.(*corev1.Node); ok {
			nodes++
		}
	}
	if nodes == 0 || len(events) != len(trace)+len(lost)-nodes {
		t.Errorf("%d events of %d changes, %d of them of Nodes", len(events), len(trace)+len(lost), nodes)
	}
	kinds := map[Kind]int{}
	for _, e := range events {
		kinds[e.Kind]++
		if int(e.Service) >= len(names) || names[e.Service].Name == "" {
			t.Fatalf("event of Service %d of %d", e.Service, len(names))
		}
	}
	if kinds[Services] == 0 || kinds[Endpoints] == 0 {
		t.Errorf("events by kind: %v", kinds)
	}
	if events[0].Due != trace[0].Due {
		t.Errorf("the first is due at %v, want %v", events[0].Due, trace[0].Due)
	}
}
