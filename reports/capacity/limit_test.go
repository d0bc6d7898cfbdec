package capacity_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"synclab/proxier/runner"
	"synclab/reports/capacity"
	"synclab/reports/capacity/capacitytest"
	"synclab/reports/model"
)

const legacy, nft, own = "kube-proxy/iptables-legacy", "kube-proxy/nftables", "synclab/iptables-legacy"

func limitOf(t *testing.T, m *model.Model, q capacity.Question, subject, quantity string) capacity.Limit {
	t.Helper()
	a, err := capacity.Asker(t.Context(), m, q, subject)
	if err != nil {
		t.Fatal(err)
	}
	l, err := a.Limit(quantity)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func outlookOf(t *testing.T, q capacity.Question, subject string) capacity.Evaluation {
	t.Helper()
	return outlookBy(t, capacitytest.Model(), q, subject)
}

func outlookBy(t *testing.T, m *model.Model, q capacity.Question, subject string) capacity.Evaluation {
	t.Helper()
	a, err := capacity.Asker(t.Context(), m, q, subject)
	if err != nil {
		t.Fatal(err)
	}
	o, err := a.Outlook(0)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// Syncs of twice the duration lower the limits of latency, CPU and start. The limit of memory stays.
func TestTwiceTheCostIsASmallerCluster(t *testing.T) {
	slower, err := capacitytest.Fit(map[string]capacitytest.Laws{legacy: capacitytest.Subjects()[legacy].Times(2)})
	if err != nil {
		t.Fatal(err)
	}
	q := capacitytest.Question()
	for _, name := range []string{capacity.ProgrammingP99, capacity.CPU, capacity.Start} {
		before, after := limitOf(t, capacitytest.Model(), q, legacy, name), limitOf(t, slower, q, legacy, name)
		if !(after.Size.Median < 0.8*before.Size.Median) || after.Size.Median == 0 {
			t.Errorf("%s: %g Services at twice the cost, %g before", name, after.Size.Median, before.Size.Median)
		}
		for _, l := range []capacity.Limit{before, after} {
			if l.Why == "" || !(l.Size.Low < l.Size.Median && l.Size.Median < l.Size.High) {
				t.Errorf("%s: %+v", name, l)
			}
		}
	}
	if before, after := limitOf(t, capacitytest.Model(), q, legacy, capacity.Memory), limitOf(t, slower, q, legacy, capacity.Memory); before.Size.Median != after.Size.Median {
		t.Errorf("memory: %g Services, was %g", after.Size.Median, before.Size.Median)
	}
}

// An SLO is met at its limit and violated slightly beyond, according to the outlooks there.
func TestLimitIsWhereItBreaks(t *testing.T) {
	q := capacitytest.Question()
	for _, name := range capacity.SLONames() {
		a, err := capacity.Asker(t.Context(), capacitytest.Model(), q, legacy)
		if err != nil {
			t.Fatal(err)
		}
		l, err := a.Limit(name)
		if err != nil {
			t.Fatal(err)
		}
		for scale, holds := range map[float64]bool{l.Scale: true, l.Scale + 0.05: false} {
			o, err := a.Outlook(scale)
			if err != nil {
				t.Fatal(err)
			}
			if v := o.Quantities[name].Median; v <= q.SLOs.Bound(name) != holds {
				t.Errorf("%s at scale %g, %d Services: %g, SLO %g", name, scale, o.Cluster.Services, v, q.SLOs.Bound(name))
			}
		}
	}
}

// An SLO equal to today's value is met. An SLO slightly below it is violated today.
func TestSLOExactlyAtTheValue(t *testing.T) {
	q := capacitytest.Question()
	today := outlookOf(t, q, legacy)
	for _, name := range []string{capacity.CPU} {
		e := today.Quantities[name]
		q.SLOs = capacity.SLOs{CPU: e.High}
		if o := outlookOf(t, q, legacy); len(o.Met) != 1 || len(o.Violated) != 0 {
			t.Errorf("SLO at the upper bound: met %v, violated %v", o.Met, o.Violated)
		}
		q.SLOs = capacity.SLOs{CPU: math.Nextafter(e.High, 0)}
		if o := outlookOf(t, q, legacy); len(o.Met) != 0 || len(o.Violated) != 0 {
			t.Errorf("SLO just below the upper bound: met %v, violated %v", o.Met, o.Violated)
		}
		q.SLOs = capacity.SLOs{CPU: math.Nextafter(e.Median, 0)}
		if o := outlookOf(t, q, legacy); len(o.Violated) != 1 {
			t.Errorf("SLO below the median: violated %v", o.Violated)
		}
		l := limitOf(t, capacitytest.Model(), q, legacy, name)
		if !l.Never || !l.Smaller || l.Size.Median > float64(q.Today.Services) || l.Size.Median < 0.95*float64(q.Today.Services) {
			t.Errorf("SLO below the median: %+v", l)
		}
		q.SLOs = capacity.SLOs{CPU: e.Median}
		if l := limitOf(t, capacitytest.Model(), q, legacy, name); l.Never || l.Scale < 0 || l.Scale > 0.05 {
			t.Errorf("SLO at the median: %+v", l)
		}
	}
}

// An SLO that is violated at every size has no cluster. An SLO that is met up to the end of the search is marked, with
// that size.
func TestNeverAndUnbounded(t *testing.T) {
	q := capacitytest.Question()
	q.SLOs = capacity.SLOs{Memory: 1 << 20, Start: 1000 * time.Hour}
	if l := limitOf(t, capacitytest.Model(), q, legacy, capacity.Memory); !l.Never || l.Smaller || l.Size.Median != 0 {
		t.Errorf("1 MiB: %+v", l)
	}
	l := limitOf(t, capacitytest.Model(), q, legacy, capacity.Start)
	if !l.Unbounded || l.Never || l.Size.Basis != model.Extrapolated || math.Abs(l.Size.Beyond-10) > 0.2 || math.Abs(l.Size.Median-40000) > 500 {
		t.Errorf("1000 h: %+v, want ten times the largest size measured", l)
	}
}

// Limits, bounds, sensitivities and curves are in the unit of growth. They differ from today's size.
func TestLimitsCountWhatGrows(t *testing.T) {
	for _, c := range []struct {
		growth   capacity.Growth
		quantity capacity.SLOs
		name     string
		unit     capacity.Unit
		of       func(capacity.Cluster) float64
		bounded  bool
	}{
		{capacity.Growth{Services: 2}, capacity.SLOs{Start: 30 * time.Second}, capacity.Start, capacity.InServices, func(c capacity.Cluster) float64 { return float64(c.Services) }, true},
		{capacity.Growth{Endpoints: 2}, capacity.SLOs{Start: 30 * time.Second}, capacity.Start, capacity.InEndpoints, func(c capacity.Cluster) float64 { return c.Endpoints }, true},
		{capacity.Growth{Churn: 2}, capacity.SLOs{CPU: 0.35}, capacity.CPU, capacity.InChanges, capacity.Cluster.Rate, true},
		{capacity.Growth{Nodes: 2}, capacity.SLOs{Start: 1000 * time.Hour}, capacity.Start, capacity.InNodes, func(c capacity.Cluster) float64 { return float64(c.Nodes) }, false},
	} {
		q := capacitytest.Question()
		q.Growth, q.SLOs, q.Subjects = c.growth, c.quantity, []string{legacy}
		answer, err := capacity.Ask(t.Context(), capacitytest.Model(), q, nil)
		if err != nil {
			t.Fatal(err)
		}
		s, today := answer.Subjects[0], c.of(q.Today)
		if answer.Unit != c.unit || c.growth.Unit() != c.unit || c.unit.Of(q.Today) != today {
			t.Errorf("%+v: unit %q, want %q", c.growth, answer.Unit, c.unit)
		}
		l := s.Limits[0]
		if l.SLO != c.name || l.Unbounded == c.bounded || l.Size.Median != c.of(l.Cluster) || l.Size.Median < 1.05*today || l.Size.Low > l.Size.Median || l.Size.Median > l.Size.High {
			t.Errorf("%s: %+v, today is %g", c.unit, l, today)
		}
		if c.bounded && !(l.Size.Low < 0.999*l.Size.Median && l.Size.High > 1.001*l.Size.Median) {
			t.Errorf("%s: bounds %+v", c.unit, l.Size)
		}
		for i, o := range s.Curve {
			if o.Size != c.of(o.Cluster) || i > 0 && o.Size <= s.Curve[i-1].Size {
				t.Errorf("%s: the curve is at %g, after %g", c.unit, o.Size, s.Curve[max(0, i-1)].Size)
			}
		}
		if s.Furthest.Size < 0.95*s.Largest.Size.Median || s.Target.Size != c.of(*answer.Target) || s.Today.Size != today {
			t.Errorf("%s: furthest %+v, target %g", c.unit, s.Furthest, s.Target.Size)
		}
		for _, one := range s.Sensitivity {
			if one.Input == "churn" && c.unit == capacity.InChanges {
				t.Error("churn is an input of its own limit")
			}
			if moves := one.AtLower != one.AtHigher; one.Input == "cost" && moves != c.bounded {
				t.Errorf("%s: %+v", c.unit, one)
			}
		}
	}
}

// A search finds a threshold within its tolerance, from any start.
func TestSearch(t *testing.T) {
	for _, threshold := range []float64{-4.9, -3, -0.001, 0, 0.5, 2, 6.99} {
		for _, start := range []float64{-5, -1, 0, 0.5, 3, 7} {
			scale, found, unbounded := capacity.Search(-5, 7, start, func(s float64) bool { return s <= threshold })
			if !found || unbounded || scale > threshold || threshold-scale > 0.0101 {
				t.Errorf("threshold %g from %g: %g, found %v, unbounded %v", threshold, start, scale, found, unbounded)
			}
		}
	}
	for _, start := range []float64{-5, 0, 7, 100} {
		if scale, found, unbounded := capacity.Search(-5, 7, start, func(float64) bool { return true }); !found || !unbounded || scale != 7 {
			t.Errorf("always, from %g: %g, %v, %v", start, scale, found, unbounded)
		}
		if _, found, unbounded := capacity.Search(-5, 7, start, func(float64) bool { return false }); found || unbounded {
			t.Errorf("never, from %g: found %v, unbounded %v", start, found, unbounded)
		}
	}
}

// A longer minSyncPeriod costs less CPU and gives a higher latency, with each policy.
func TestLongerPeriodCostsLessAndTakesLonger(t *testing.T) {
	a, err := capacity.Asker(t.Context(), capacitytest.Model(), capacitytest.Question(), own)
	if err != nil {
		t.Fatal(err)
	}
	all, err := a.Frontier()
	if err != nil {
		t.Fatal(err)
	}
	policies := map[runner.Policy]int{}
	for i, s := range all {
		policies[s.Policy.Runner]++
		if i == 0 || all[i-1].Policy.Runner != s.Policy.Runner {
			if s.Policy.MinSyncPeriod != 0 || s.Discouraged == "" {
				t.Errorf("%+v: want a period of 0 first, discouraged", s.Policy)
			}
			continue
		}
		before, now := all[i-1].Outlook, s.Outlook
		// A token bucket has no effect below the duration of a sync: such settings are equal.
		const chance = 1.01
		if now.P50 < time.Duration(float64(before.P50)/chance) || now.Quantities[capacity.CPU].Median > chance*before.Quantities[capacity.CPU].Median {
			t.Errorf("%v: p50 %v for %.4g CPUs; %v: %v for %.4g", all[i-1].Policy, before.P50, before.Quantities[capacity.CPU].Median,
				s.Policy, now.P50, now.Quantities[capacity.CPU].Median)
		}
	}
	if policies[runner.TokenBucket] != 9 || policies[runner.CompletionToStart] != 9 {
		t.Errorf("policies tried: %v", policies)
	}
	first, last := all[0].Outlook, all[8].Outlook
	if !(last.P99 > 5*first.P99 && last.Quantities[capacity.CPU].Median < first.Quantities[capacity.CPU].Median/5) {
		t.Errorf("from %v for %v to %v for %v", first.P99, first.Quantities[capacity.CPU], last.P99, last.Quantities[capacity.CPU])
	}
}

// A larger input with a cost lowers the limit.
func TestSensitivitySigns(t *testing.T) {
	q := capacitytest.Question()
	a, err := capacity.Asker(t.Context(), capacitytest.Model(), q, legacy)
	if err != nil {
		t.Fatal(err)
	}
	all, err := a.Sensitivity()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]capacity.Sensitivity{}
	for _, s := range all {
		seen[s.Input] = s
	}
	for _, input := range []string{"endpoints", "cost"} {
		if s := seen[input]; !(s.AtLower > 1.05*s.AtHigher && s.Lower < 1 && s.Higher > 1) {
			t.Errorf("%s: %+v", input, s)
		}
	}
	if s := seen["nodes"]; s.AtLower != s.AtHigher {
		t.Errorf("nodes without losses: %+v", s)
	}
	if s := seen["churn"]; s.AtHigher > s.AtLower {
		t.Errorf("churn: %+v", s)
	}
	if len(seen) != 5 {
		t.Errorf("inputs: %v", seen)
	}
}

// Syncs coalesce a churn that is too fast for them: the latency is high, but finite.
func TestSaturationIsFinite(t *testing.T) {
	q := capacitytest.Question()
	q.Today.Churn.Endpoints = 20000
	o := outlookOf(t, q, nft)
	if o.P99 < time.Second || o.P99 > time.Hour || o.BusyShare < 0.3 || o.Together < 1000 {
		t.Errorf("p99 %v, busy %.2f, %d Services a sync", o.P99, o.BusyShare, o.Together)
	}
}

// Without changes, there is no latency. Only small clusters use CPU, for hourly full syncs.
func TestNothingChanges(t *testing.T) {
	q := capacitytest.Question()
	q.Today.Churn = capacity.Churn{}
	if o := outlookOf(t, q, legacy); o.P99 != 0 || o.Quantities[capacity.CPU].Median != 0 || o.SyncsPerSecond != 0 {
		t.Errorf("large: %+v", o)
	}
	q.Today.Services = 90
	if o := outlookOf(t, q, legacy); o.Quantities[capacity.CPU].Median <= 0 || o.SyncsPerSecond != 1.0/3600 {
		t.Errorf("small: %+v", o)
	}
}

func TestWayIsAdded(t *testing.T) {
	q := capacitytest.Question()
	before := outlookOf(t, q, legacy)
	q.WatchDelay = 250 * time.Millisecond
	after := outlookOf(t, q, legacy)
	if d := after.P50 - before.P50 - q.WatchDelay; d.Abs() > time.Microsecond {
		t.Errorf("p50 %v with a watch delay of %v, %v without", after.P50, q.WatchDelay, before.P50)
	}
}

func TestEndedContextEndsTheAnswer(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := capacitytest.Question()
	q.Subjects = []string{legacy}
	_, err := capacity.Ask(ctx, capacitytest.Model(), q, func(done, of int, what string) { cancel() })
	if ctx.Err() == nil || err == nil || !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
}
