package model

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// A hiccup of 0.2 s in a sync of 2 ms also takes 0.2 s in a sync of 20 ms, not 2 s. Scatter by a fifth stays a fifth in
// syncs of any length. A hiccup does not get longer in a shorter sync.
func TestHiccupsDoNotGrowWithSyncs(t *testing.T) {
	for _, c := range []struct{ median, factor, of, want float64 }{
		{0.002, 101, 0.002, 0.202},
		{0.020, 101, 0.002, 0.229}, // 1.5 times the median, plus the rest of the hiccup
		{2, 1.2, 0.002, 2.4},
		{2, 0.8, 0.002, 1.6},
		{0.001, 101, 0.002, 0.101},
		{0.020, 101, 0, 2.02}, // an older model has no medians
	} {
		if got := scaled(c.median, math.Log(c.factor), c.of); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%g times %g s, for a median of %g s: %g s, want %g", c.factor, c.of, c.median, got, c.want)
		}
	}

	short := Point{Value: 0.002, N: 40}
	for i := range 40 {
		short.logs = append(short.logs, 0.01*float64(i-20))
	}
	short.logs[39] = math.Log(101)
	y := &Syncs{noise: map[string][]float64{}, noiseOf: map[string][]float64{}, partial: []float64{0.02, 0.02}}
	y.noise[Partial], y.noiseOf[Partial] = noise([]Point{short})
	rng := rand.New(rand.NewPCG(1, 1))
	var drawn []float64
	for range 4000 {
		drawn = append(drawn, y.Sync(Partial, 1, 1, rng).Seconds())
	}
	slices.Sort(drawn)
	if longest, middle := drawn[len(drawn)-1], drawn[len(drawn)/2]; longest > 0.23 || longest < 0.1 || middle < 0.019 || middle > 0.021 {
		t.Errorf("syncs of 20 ms take %g s, the longest %g s", middle, longest)
	}
}

// Of two values, no distance is widened. Of more, only distances of values near the median are.
func TestWidened(t *testing.T) {
	for _, c := range []struct {
		log  float64
		n    int
		want float64
	}{{2.3, 2, 2.3}, {2.3, 3, 2.3}, {-0.1, 2, -0.1}, {0.1, 4, 0.1 * math.Sqrt(4.0/3)}, {-0.1, 4, -0.1 * math.Sqrt(4.0/3)}, {0, 3, 0}} {
		if got := widened(c.log, c.n); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%g of %d values: %g, want %g", c.log, c.n, got, c.want)
		}
	}
}
