package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// Of pairs that do not differ, at most one in twenty shows a difference, whatever the noise. A difference that is large
// beside the noise shows in few pairs.
func TestPairedP(t *testing.T) {
	const trials = 4000
	noises := map[string]func(*rand.Rand) float64{
		"log-normal": func(r *rand.Rand) float64 { return math.Exp(0.05 * r.NormFloat64()) },
		"skewed":     func(r *rand.Rand) float64 { return math.Exp(0.1 * (r.ExpFloat64() - r.ExpFloat64())) },
		"outliers": func(r *rand.Rand) float64 {
			x := math.Exp(0.03 * r.NormFloat64())
			if r.IntN(10) == 0 {
				x *= math.Exp(r.NormFloat64())
			}
			return x
		},
		"rounded": func(r *rand.Rand) float64 { return 1 + 0.02*float64(r.IntN(3)-1) },
	}
	for name, noise := range noises {
		for _, n := range []int{3, 4, 5, 6, 8, 12} {
			random := rand.New(rand.NewPCG(1, uint64(n)))
			wrong, found, missed := 0, 0, 0
			for range trials {
				ratios := make([]float64, n)
				for i := range ratios {
					ratios[i] = noise(random)
				}
				if pairedP(ratios, 1, LeastSpread) <= Level {
					wrong++
				}
				for i := range ratios {
					ratios[i] *= 10
				}
				if pairedP(ratios, 1, LeastSpread) <= Level {
					found++
				}
				a, b := ones(n), make([]float64, n)
				copy(b, ratios)
				if low, high, _ := pairedInterval(Of("x", "", Single(a...), 50), Of("x", "", Single(b...), 50), LeastSpread); low > 10 || high < 10 {
					missed++
				}
			}
			t.Logf("%s, %d pairs: %.1f %% of equal ones differ, %.1f %% of tenfold ones, and %.1f %% of intervals miss the ratio", name, n,
				100*float64(wrong)/trials, 100*float64(found)/trials, 100*float64(missed)/trials)
			if wrong > trials*55/1000 || missed > trials*8/100 {
				t.Errorf("%s, %d pairs: %d of %d equal ones differ, %d intervals miss the ratio", name, n, wrong, trials, missed)
			}
			if found < trials*95/100 && name != "outliers" {
				t.Errorf("%s, %d pairs: %d of %d tenfold ones differ", name, n, found, trials)
			}
		}
	}
}

func ones(n int) []float64 {
	all := make([]float64, n)
	for i := range all {
		all[i] = 1
	}
	return all
}

// A cost that one side does not have at all has no ratio, and differs. Equal ones do not.
func TestChangedP(t *testing.T) {
	of := func(values ...float64) *Estimate { return Of("x", "s", Single(values...), 50) }
	if p := ChangedP(of(3.6, 3.9, 3.7), of(0, 0, 0), LeastSpread); p > 0.01 {
		t.Errorf("from 3.7 to 0: p = %g", p)
	}
	if p := ChangedP(of(0, 0, 0), of(0, 0.1, 0), LeastSpread); p <= Level {
		t.Errorf("from 0 to 0.1 in one repetition of three: p = %g", p)
	}
	if p := ChangedP(of(3, 3, 3), of(3, 3, 3), 0); p != 1 {
		t.Errorf("equal counts: p = %g", p)
	}
}
