package simulator

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"synclab/proxier/runner"
)

// A day of a node, computed by hand.
func TestLoopByHand(t *testing.T) {
	const ms = time.Millisecond
	s := Settings{
		Cost:   Linear{Full: 1000 * ms, Partial: 100 * ms, PerService: 10 * ms, PerChange: ms},
		Runner: runner.Options{Policy: runner.CompletionToStart, MinInterval: 500 * ms, MaxInterval: 10 * time.Second},
		CPU:    func(_ SyncKind, _, _ int, took time.Duration) time.Duration { return took / 2 },
	}
	events := []Event{
		{Due: 400 * ms, Service: 1, Weight: 1},
		{Due: 1200 * ms, Service: 1, Weight: 4},
		{Due: 1500 * ms, Service: 2, Weight: 1, Kind: Services}, // due when the sync starts: the sync takes it
		{Due: 1550 * ms, Service: 1, Weight: 1},
		{Due: 13000 * ms, Service: 3, Weight: 1},
	}
	var syncs []Sync
	r, err := Run(s, List(events), Options{Span: Span{Length: 13050 * ms}, OnSync: func(s Sync) { syncs = append(syncs, s) }})
	if err != nil {
		t.Fatal(err)
	}
	want := []Sync{
		{Full, 0, 1000 * ms, 0, 0, runner.Requested, false},
		{Partial, 1500 * ms, 1626 * ms, 2, 6, runner.Requested, false},
		{Partial, 2126 * ms, 2237 * ms, 1, 1, runner.Requested, false},
		{Partial, 12237 * ms, 12337 * ms, 0, 0, runner.Interval, false},
		{Partial, 13000 * ms, 13111 * ms, 1, 1, runner.Requested, false},
	}
	if !slices.Equal(syncs, want) {
		t.Errorf("syncs\n%+v, want\n%+v", syncs, want)
	}
	var latencies Histogram
	for _, l := range []time.Duration{1226, 426, 126, 687, 111} {
		latencies.Add(l * ms)
	}
	if got, want := fmt.Sprint(slices.Collect(r.Latency.Bins())), fmt.Sprint(slices.Collect(latencies.Bins())); got != want {
		t.Errorf("latencies %s, want %s", got, want)
	}
	// A change is missing from 0.4 s to 2.237 s, and from 13 s on.
	busy := (1000 + 126 + 111 + 100 + 111) * ms
	if r.Stale != (1837+111)*ms || r.MaxStale != 1226*ms || r.Busy != busy || r.CPU != busy/2 || r.Lived != 13111*ms ||
		r.FullSyncs != 1 || r.PartialSyncs != 4 || r.Backlog != 8 || r.MaxBacklog != 6 || r.Waiting != 0 {
		t.Errorf("result: %s", brief(r))
	}
	// The age of the oldest: from 0.4 s to 1.626 s that of the first, then that of the change of 1.55 s.
	sq := func(s float64) float64 { return s * s / 2 }
	if want := sq(1.226) + sq(0.687) - sq(0.076) + sq(0.111); r.StaleAge < want-1e-9 || r.StaleAge > want+1e-9 {
		t.Errorf("stale age %v s², want %v", r.StaleAge, want)
	}
}

// Changes that are not installed at the end wait, and were missing until then.
func TestWaitingAtTheEnd(t *testing.T) {
	s := Synclab(Linear{Full: time.Second, Partial: time.Second}, true)
	s.FailProbability = 1
	events := []Event{{Due: time.Second, Weight: 1}, {Due: 40 * time.Second, Service: 1, Weight: 1}, {Due: time.Minute, Weight: 1}}
	r, err := Run(s, List(events), Options{Span: Span{Length: time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	if r.Waiting != 2 || r.Latency.Count != 0 || r.Stale < 59*time.Second || r.Failed != r.Syncs() || r.Failed < 5 {
		t.Errorf("nothing is ever installed: %s", brief(r))
	}
}

func TestSettingsAreChecked(t *testing.T) {
	fine := Synclab(Linear{}, true)
	for name, change := range map[string]func(*Settings, *Span){
		"no cost":     func(s *Settings, _ *Span) { s.Cost = nil },
		"factor":      func(s *Settings, _ *Span) { s.Factor = -1 },
		"probability": func(s *Settings, _ *Span) { s.FailProbability = 1.1 },
		"policy":      func(s *Settings, _ *Span) { s.Runner.Policy = "whenever" },
		"length":      func(_ *Settings, span *Span) { span.Length = 0 },
		"settle":      func(_ *Settings, span *Span) { span.Settle = -1 },
	} {
		s, span := fine, Span{Length: time.Hour}
		change(&s, &span)
		if _, err := Run(s, List(nil), Options{Span: span}); err == nil {
			t.Errorf("%s: accepted by Run", name)
		}
		if _, err := RunFleet(t.Context(), []Class{{Nodes: 1, Settings: s}}, List(nil), FleetOptions{Span: span}); err == nil {
			t.Errorf("%s: accepted by RunFleet", name)
		}
	}
	if _, err := RunFleet(t.Context(), []Class{{Nodes: 1, Settings: fine, Noise: -1}}, List(nil), FleetOptions{Span: Span{Length: 1}}); err == nil {
		t.Error("noise below 0: accepted")
	}
}

// A node in a cluster of 20,000 Services with 50 changes a second, for an hour.
func ExampleRun() {
	changes, err := Poisson{Population: Population{Services: 20_000}, Rate: Rate{PerSecond: 50}}.Source(1)
	if err != nil {
		fmt.Println(err)
		return
	}
	cost := Linear{Full: 3 * time.Second, Partial: 80 * time.Millisecond, PerService: 400 * time.Microsecond}
	r, err := Run(Synclab(cost, false), changes, Options{Span: Span{Length: time.Hour, Settle: time.Minute, Since: time.Minute}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("p50 %v, p99 %v, %.2f CPUs\n", r.Latency.Quantile(0.5).Round(10*time.Millisecond),
		r.Latency.Quantile(0.99).Round(10*time.Millisecond), r.CPUShare())
	// Output: p50 600ms, p99 1.08s, 0.10 CPUs
}

// BenchmarkLoop measures how many changes a second of real time the loop of one node takes.
func BenchmarkLoop(b *testing.B) {
	cost := Linear{Full: 3 * time.Second, Partial: 80 * time.Millisecond, PerService: 400 * time.Microsecond, Spread: 0.15}
	b.ReportAllocs()
	var changes int64
	used := cpuTime(b)
	for b.Loop() {
		source, err := Poisson{Population: Population{Services: 20_000}, Rate: Rate{PerSecond: 50}}.Source(1)
		if err != nil {
			b.Fatal(err)
		}
		r, err := Run(Synclab(cost, false), source, Options{Span: Span{Length: time.Hour, Settle: time.Minute}})
		if err != nil {
			b.Fatal(err)
		}
		changes += r.Latency.Count
	}
	b.ReportMetric(float64(changes)/b.Elapsed().Seconds(), "changes/s")
	b.ReportMetric(float64(cpuTime(b)-used)/float64(changes), "cpu-ns/change")
}
