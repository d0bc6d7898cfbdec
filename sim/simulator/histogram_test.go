package simulator

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"synclab/bench/seeds"
)

// Every duration is in a bin that contains it, and bins have no gaps.
func TestBins(t *testing.T) {
	for bin := range allBins {
		if from, to := lowerEdge(bin), upperEdge(bin); binOf(from) != bin || binOf(to-1) != bin || from >= to {
			t.Fatalf("bin %d is from %d to %d; these are in bins %d and %d", bin, from, to, binOf(from), binOf(to-1))
		}
	}
	if binOf(math.MaxInt64) != allBins-1 {
		t.Errorf("the longest duration is in bin %d of %d", binOf(math.MaxInt64), allBins)
	}
}

// Quantiles are within 1 % of the exact ones.
func TestQuantiles(t *testing.T) {
	seed := seeds.Of(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	var all, first, second Histogram
	var exact []time.Duration
	for i := range 20_000 {
		d := time.Duration(math.Exp(rng.NormFloat64()*6 + 16))
		exact = append(exact, d)
		all.Add(d)
		if i%3 == 0 {
			first.Add(d)
		} else {
			second.Add(d)
		}
	}
	slices.Sort(exact)
	for _, q := range []float64{0, 0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1} {
		want := exact[max(0, int(math.Ceil(q*float64(len(exact))))-1)]
		if got := all.Quantile(q); math.Abs(float64(got-want)) > 0.01*float64(want)+1 {
			t.Errorf("seed %d: quantile %g is %v, want %v", seed, q, got, want)
		}
	}
	first.Merge(&second)
	if !reflect.DeepEqual(first, all) {
		t.Error("two halves are not the whole")
	}
	limit := exact[len(exact)*95/100]
	if got := all.Above(limit); math.Abs(got-0.05) > 0.005 {
		t.Errorf("%g are above the 95th percentile", got)
	}
	if (&Histogram{}).Quantile(0.5) != 0 || (&Histogram{}).Mean() != 0 {
		t.Error("an empty histogram knows something")
	}
}
