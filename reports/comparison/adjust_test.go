package comparison

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"synclab/reports/estimate"
)

// compared has four subjects against a baseline in all primary figures. All but the first are times as slow.
func compared(random *rand.Rand, repetitions int, times float64) *CellComparison {
	c := &CellComparison{}
	for _, metric := range Primary {
		values := func(times float64) *estimate.Estimate {
			s := estimate.Sample{}
			for rep := range repetitions {
				s[estimate.Repetition{Rep: rep + 1}] = []float64{times * math.Exp(0.03*random.NormFloat64())}
			}
			return estimate.Of(metric, "s", s, 50)
		}
		baseline := values(1)
		for range 4 {
			one, ok := Compare(baseline, values(times))
			if !ok {
				panic("no ratio")
			}
			c.Ratios = append(c.Ratios, one)
		}
	}
	return c
}

// Equal subjects rarely differ in any primary figure of a cell, and unequal ones do.
func TestFamilyOfVerdicts(t *testing.T) {
	const cells = 300
	differs := func(r Comparison) bool { return r.Differs }
	for _, repetitions := range []int{6, 8, 12} {
		random := rand.New(rand.NewPCG(1, uint64(repetitions)))
		before, after, missed := 0, 0, 0
		for range cells {
			c := compared(random, repetitions, 1)
			if slices.ContainsFunc(c.Ratios, differs) {
				before++
			}
			if c.adjust(); slices.ContainsFunc(c.Ratios, differs) {
				after++
			}
			c = compared(random, repetitions, 1.3)
			if c.adjust(); slices.ContainsFunc(c.Ratios, func(r Comparison) bool { return !r.Differs }) {
				missed++
			}
		}
		if share := float64(before) / cells; share < 0.1 {
			t.Errorf("%d repetitions: without the correction, %.0f %% of the cells have a difference; the test shows nothing", repetitions, 100*share)
		}
		if share := float64(after) / cells; share > 0.06 {
			t.Errorf("%d repetitions: %.1f %% of the cells of equal subjects have a difference", repetitions, 100*share)
		}
		if missed > cells/100 {
			t.Errorf("%d repetitions: a difference is missed in %d of %d cells", repetitions, missed, cells)
		}
		t.Logf("%d repetitions: a difference in %.1f %% of the cells, before the correction %.1f %%", repetitions, 100*float64(after)/cells, 100*float64(before)/cells)
	}
}
