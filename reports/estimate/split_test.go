package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestSplit: a change is found where it is, and series without a change have small p-values as rarely as these say.
func TestSplit(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	series := func(step float64) []float64 {
		var out []float64
		for i := range 20 {
			v := random.ExpFloat64() // no normal distribution
			if i >= 12 {
				v += step
			}
			out = append(out, v)
		}
		return out
	}
	const times = 400
	small, found := 0, 0
	for range times {
		if _, p := Split(series(0), 1); p <= 0.05 {
			small++
		}
		if at, p := Split(series(4), 1); p <= 0.01 && at >= 11 && at <= 13 {
			found++
		}
	}
	if small < times*2/100 || small > times*8/100 {
		t.Errorf("p-values up to 0.05 in %d of %d series without a change", small, times)
	}
	if found < times*95/100 {
		t.Errorf("%d of %d changes found", found, times)
	}
	for _, values := range [][]float64{nil, {1}, {1, 2, 3}, {5, 5, 5, 5, 5, 5}} {
		if at, p := Split(values, 1); at != 0 || p != 1 {
			t.Errorf("%v: %d, p %g", values, at, p)
		}
	}
}

// TestStepOf: the interval covers the real ratio in 95 % of cases, also with few values, and the p-value agrees with it.
func TestStepOf(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	series := func(middle float64, n int) []float64 {
		out := make([]float64, n)
		for i := range out {
			out[i] = middle * math.Exp(0.05*random.NormFloat64())
		}
		return out
	}
	const times = 2000
	for _, last := range []int{1, 3} {
		covered := 0
		for range times {
			s, ok := StepOf([][]float64{series(1, 3), series(2, 4)}, series(2.3, last), 1)
			if !ok {
				t.Fatal("no step")
			}
			if s.Low <= 2.3/2 && 2.3/2 <= s.High {
				covered++
			}
			if (s.P < 0.05) != (s.Low > 1 || s.High < 1) {
				t.Fatalf("%+v", s)
			}
		}
		if share := float64(covered) / times; share < 0.935 || share > 0.965 {
			t.Errorf("%d new values: the interval covers the ratio in %.3f of cases", last, share)
		}
	}
	for _, c := range [][]float64{{1, 2, 3}, {2, 2, 2, 2}, {0, 1, 2, 3}} {
		if _, ok := StepOf([][]float64{c}, []float64{4}, 1); ok {
			t.Errorf("a step after %v", c)
		}
	}
}
