package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// noisy draws a sample whose repetitions differ more than the values within one. Both effects are log-normal around a
// median.
func noisy(random *rand.Rand, repetitions, values int, median, between, within float64) Sample {
	s := Sample{}
	for rep := range repetitions {
		center := median * math.Exp(between*random.NormFloat64())
		for range values {
			of := Repetition{Rep: rep + 1}
			s[of] = append(s[of], center*math.Exp(within*random.NormFloat64()))
		}
	}
	return s
}

// skewed is like noisy with an exponential repetition effect: some repetitions are much slower, none is much faster.
func skewed(random *rand.Rand, repetitions, values int, median, between, within float64) Sample {
	s := Sample{}
	for rep := range repetitions {
		center := median * (1 + between*(random.ExpFloat64()-math.Ln2))
		for range values {
			of := Repetition{Rep: rep + 1}
			s[of] = append(s[of], center*math.Exp(within*random.NormFloat64()))
		}
	}
	return s
}

// TestCoverage: with a strong repetition effect, the interval contains the median as often as its confidence. The
// interval of the pooled values, which assumes independence, contains it far less often.
func TestCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const trials = 2000
	for name, draw := range map[string]func(*rand.Rand, int, int, float64, float64, float64) Sample{"log-normal": noisy, "skewed": skewed} {
		for _, n := range []int{6, 7, 8, 9, 12, 20} {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			covered, pooled := 0, 0
			for range trials {
				s := draw(random, n, 40, 5, 0.2, 0.05)
				e := Of("x", "s", s, 50)
				if e.Low == nil || e.RangeLow != nil || *e.Low > e.Value || *e.High < e.Value {
					t.Fatalf("%d repetitions: %+v", n, e)
				}
				if *e.Low <= 5 && 5 <= *e.High {
					covered++
				}
				if low, high, _ := MedianInterval(s.Pooled()); low <= 5 && 5 <= high {
					pooled++
				}
			}
			if share := float64(covered) / trials; share < 0.94 {
				t.Errorf("%s, %d repetitions: %.1f %% of the intervals contain the median", name, n, 100*share)
			}
			if share := float64(pooled) / trials; share > 0.6 {
				t.Errorf("%s, %d repetitions: the repetition effect is weak, pooled intervals contain the median in %.1f %%", name, n, 100*share)
			}
		}
	}
}

// TestCoverageWhenPrecise: repeating until an interval is narrow selects narrow intervals. They still cover often
// enough.
func TestCoverageWhenPrecise(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const trials = 1500
	for _, between := range []float64{0.02, 0.05, 0.1} {
		random := rand.New(rand.NewPCG(5, 6))
		covered := 0
		for range trials {
			a, b := noisy(random, 30, 1, 1, between, 0), noisy(random, 30, 1, 2, between, 0)
			var r Ratio
			for n := Enough; n <= 30; n++ {
				r, _ = Compare(Of("x", "s", firstOf(a, n), 50), Of("x", "s", firstOf(b, n), 50), Paired)
				if r.Precise(0.05) {
					break
				}
			}
			if *r.Low <= 2 && 2 <= *r.High {
				covered++
			}
		}
		if share := float64(covered) / trials; share < 0.92 {
			t.Errorf("noise %v: %.1f %% of the narrow intervals contain the ratio", between, 100*share)
		}
	}
}

func firstOf(s Sample, n int) Sample {
	out := Sample{}
	for of, values := range s {
		if of.Rep <= n {
			out[of] = values
		}
	}
	return out
}

// TestQuantileCoverage: p99 of few values, with and without a repetition effect.
func TestQuantileCoverage(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	const trials = 500
	z99 := 2.3263478740408408
	for _, c := range []struct {
		repetitions, values int
		between             float64
		bounded             bool
	}{{6, 90, 0.2, false}, {6, 500, 0.2, true}, {6, 500, 0, true}, {12, 90, 0.2, true}, {12, 90, 0.02, true}, {9, 200, 0.2, true}, {3, 500, 0.2, false}} {
		random := rand.New(rand.NewPCG(3, uint64(c.values)))
		truth := 5 * math.Exp(0.1*z99) // of the median repetition
		covered, bounded := 0, 0
		for range trials {
			s := noisy(random, c.repetitions, c.values, 5, c.between, 0.1)
			e := Of("x", "s", s, 99)
			if e.Low == nil {
				continue
			}
			bounded++
			if *e.Low <= truth && truth <= *e.High {
				covered++
			}
		}
		if (bounded == trials) != c.bounded || bounded != 0 && bounded != trials {
			t.Errorf("%+v: %d of %d have an interval", c, bounded, trials)
		}
		if share := float64(covered) / float64(bounded); bounded > 0 && share < 0.95 {
			t.Errorf("%+v: %.1f %% of the intervals contain p99", c, 100*share)
		}
	}
}

// TestRange: two to five repetitions have a range. A single repetition has no range.
func TestRange(t *testing.T) {
	// The repetitions of a run of scenario size-sweep, in µs. The pooled packets had the interval 35.7 … 36.0.
	e := Of("first_packet_last", "s", Single(35.05, 34.48, 38.36), 50)
	if e.Value != 35.05 || e.Low != nil || e.High != nil || *e.RangeLow != 34.48 || *e.RangeHigh != 38.36 || e.N != 3 || e.Repetitions() != 3 {
		t.Errorf("%+v", e)
	}
	if _, ok := e.Spread(); ok {
		t.Error("a range has a spread")
	}
	if e = Of("x", "s", Single(1, 2, 3, 4, 5, 6), 50); *e.Low != 1 || *e.High != 6 || e.RangeLow != nil {
		t.Errorf("%+v", e)
	}
	if share, ok := e.Spread(); !ok || math.Abs(share-2.5/3.5) > 1e-12 {
		t.Errorf("spread %v", share)
	}
	if e = Of("x", "s", Single(1, 2, 3, 4, 5, 6, 7, 8, 9), 50); *e.Low != 2 || *e.High != 8 {
		t.Errorf("%+v", e)
	}
	if e = Of("x", "s", Single(7), 50); e.RangeLow != nil || e.Low != nil || e.Value != 7 {
		t.Errorf("%+v", e)
	}
	if Of("x", "s", Sample{}, 50) != nil || Of("x", "s", Sample{{}: nil}, 50) != nil {
		t.Error("an empty sample has an estimate")
	}
}

// TestDescribe: the median is over the repetitions' medians, however many values a repetition has.
func TestDescribe(t *testing.T) {
	s := Sample{{Rep: 1}: {1, 1, 1, 1, 1, 1, 1, 1, 1}, {Rep: 2}: {5}, {Rep: 3}: {9, 9, 2}}
	if d := Describe(s); d.Median != 5 || d.N != 13 || d.Repetitions != 3 || d.Min != 1 || d.Max != 9 || *d.RangeLow != 1 || *d.RangeHigh != 9 || !d.FewForP99 {
		t.Errorf("%+v", d)
	}
	// One value per repetition: the percentiles are over the repetitions.
	if d := Describe(Single(1, 2, 3, 4, 5)); d.P99 != 4.96 || d.P90 != 4.6 || d.P99Low != nil {
		t.Errorf("%+v", d)
	}
}

func TestShareAtMost(t *testing.T) {
	for _, c := range []struct {
		k, n int
		want float64
	}{{0, 0, 1}, {3, 3, 1}, {0, 1000, 0.002991}, {0, 20, 0.1391}, {1, 20, 0.2161}} {
		if got := ShareAtMost(c.k, c.n); math.Abs(got-c.want) > 1e-4 {
			t.Errorf("%d of %d: at most %v, want %v", c.k, c.n, got, c.want)
		}
	}
}
