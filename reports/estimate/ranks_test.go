package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestRatiosOutside: the rank of the ends is the tabulated critical value of U (two-sided, 5 %) plus one.
func TestRatiosOutside(t *testing.T) {
	for _, c := range []struct{ na, nb, want int }{
		{1, 1, 0}, {3, 3, 0}, {3, 4, 0}, {3, 5, 1}, {4, 4, 1}, {5, 5, 3}, {6, 6, 6}, {8, 8, 14}, {6, 10, 12}, {10, 10, 24}, {20, 20, 128},
	} {
		if got := ratiosOutside(c.na, c.nb); got != c.want {
			t.Errorf("%d and %d values: %d, want %d", c.na, c.nb, got, c.want)
		}
	}
	if exact, near := ratiosOutside(50, 50), ratiosOutside(51, 51); near < exact || near > exact+60 {
		t.Errorf("%d by the exact distribution, %d by the normal one", exact, near)
	}
}

func TestRatioInterval(t *testing.T) {
	low, high, ok := ratioInterval([]float64{1, 2, 4, 8}, []float64{2, 4, 8, 16})
	if !ok || low != 0.25 || high != 16 {
		t.Errorf("%v to %v, %v", low, high, ok)
	}
	if _, _, ok := ratioInterval([]float64{0, 1, 2, 3}, []float64{1, 2, 3, 4}); ok {
		t.Error("a ratio to zero has an interval")
	}
	random := rand.New(rand.NewPCG(3, 4))
	const trials = 2000
	for _, n := range []int{4, 6, 9} {
		covered, agreed := 0, 0
		for range trials {
			a, b := values(noisy(random, n, 1, 1, 0.2, 0).ByRepetition(50)), values(noisy(random, n, 1, 1.5, 0.2, 0).ByRepetition(50))
			low, high, ok := ratioInterval(a, b)
			if !ok {
				t.Fatal("no interval")
			}
			if low <= 1.5 && 1.5 <= high {
				covered++
			}
			if (RankP(a, b) <= 0.05) == (low > 1 || high < 1) {
				agreed++
			}
		}
		if covered < trials*94/100 {
			t.Errorf("%d repetitions: %d intervals of %d contain the ratio", n, covered, trials)
		}
		if agreed != trials {
			t.Errorf("%d repetitions: test and interval agree %d times in %d", n, agreed, trials)
		}
	}
}

func TestRankP(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5, 6}, 0.1},
		{[]float64{1, 2, 3, 4}, []float64{5, 6, 7, 8}, 2.0 / 70},
		{[]float64{1, 2, 3, 5}, []float64{4, 6, 7, 8}, 4.0 / 70},
		{[]float64{7, 7}, []float64{7, 7}, 1},
		{[]float64{1}, []float64{2}, 1},
	} {
		if got := RankP(c.a, c.b); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v and %v: p = %v, want %v", c.a, c.b, got, c.want)
		}
		if got := RankP(c.b, c.a); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("%v and %v: p = %v, want %v", c.b, c.a, got, c.want)
		}
	}
	if got := LeastP(6, 6); math.Abs(got-2.0/924) > 1e-12 {
		t.Errorf("the least p of 6 and 6 is %v", got)
	}
}

// TestAdjust uses the example of Benjamini and Hochberg (1995): of 15 p-values, four remain significant at 5 %.
func TestAdjust(t *testing.T) {
	p := []float64{0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240, 0.4262, 0.5719, 0.6528, 0.7590, 1.000}
	got := Adjust(p)
	stand := 0
	for i, v := range got {
		if v <= 0.05 {
			stand++
		}
		if v < p[i] || i > 0 && v < got[i-1] || v > 1 {
			t.Errorf("%v became %v", p[i], v)
		}
	}
	if stand != 4 || math.Abs(got[3]-0.0095*15/4) > 1e-12 {
		t.Errorf("%d are significant; the fourth is %v", stand, got[3])
	}
	if !Found(p, 14, 0.0001) || Found(p, 14, 0.9) {
		t.Error("wrong result with another last p-value")
	}
}
