package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestStepOf: the interval covers the real ratio in 95 % of cases, also with few values, and the p-value agrees with it.
func TestStepOf(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	series := func(middle float64, n int) []float64 { // of logarithms
		out := make([]float64, n)
		for i := range out {
			out[i] = math.Log(middle) + 0.05*random.NormFloat64()
		}
		return out
	}
	const times = 2000
	for _, last := range []int{1, 3} {
		covered := 0
		for range times {
			s, ok := StepOf([][]float64{series(1, 3), series(2, 4), series(2.3, last)}, 2, 1)
			if !ok {
				t.Fatal("no step")
			}
			low, high := s.Interval()
			if want := math.Log(2.3 / 2); low <= want && want <= high {
				covered++
			}
			if (s.P < 0.05) != (low > 0 || high < 0) {
				t.Fatalf("%+v", s)
			}
		}
		if share := float64(covered) / times; share < 0.935 || share > 0.965 {
			t.Errorf("%d new values: the interval covers the size in %.3f of cases", last, share)
		}
	}
	for _, before := range [][]float64{{1, 2, 3}, {4, 4, 4, 4}, {0, math.Inf(1), 2, 3}} {
		if s, ok := StepOf([][]float64{before, {4}}, 1, 1); ok {
			t.Errorf("a step after %v: %+v", before, s)
		}
	}
	// Of the 10 orders of three and two values, one is this.
	if s, ok := StepOf([][]float64{{0.1, 0.1, 0.1}, {0.3, 0.3}}, 1, 1); !ok || math.Abs(s.P-0.1) > 1e-9 || s.deviation != 0 {
		t.Errorf("a step without variance: %+v, %v", s, ok)
	}
}
