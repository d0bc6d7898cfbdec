package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

func lawPoints(random *rand.Rand, repetitions int, sizes []float64, noise float64, law func(float64) float64) []Point {
	var out []Point
	for _, n := range sizes {
		out = append(out, Point{n, noisy(random, repetitions, 3, law(n), noise, noise/4)})
	}
	return out
}

var fitSizes = []float64{100, 400, 1600, 6400}

// TestFitCoverage: the interval of the slope contains the true slope, even if each repetition is off as a whole.
func TestFitCoverage(t *testing.T) {
	const trials = 2000
	for _, n := range []int{6, 9, 12} {
		random := rand.New(rand.NewPCG(7, uint64(n)))
		covered := 0
		for range trials {
			law, ok := FitPower(lawPoints(random, n, fitSizes, 0.1, func(n float64) float64 { return 1e-4 * math.Pow(n, 1.2) }))
			if !ok || law.SlopeLow == nil || law.N != 4 || law.Repetitions != n || len(law.Local) != 3 {
				t.Fatalf("%+v", law)
			}
			if *law.SlopeLow <= 1.2 && 1.2 <= *law.SlopeHigh {
				covered++
			}
		}
		if covered < trials*94/100 {
			t.Errorf("%d repetitions: %d of %d intervals contain the exponent", n, covered, trials)
		}
	}
}

// TestBends: linear growth that becomes quadratic is no power law, as the local exponents show.
func TestBends(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	bent, straight := 0, 0
	const trials = 200
	for range trials {
		law, _ := FitPower(lawPoints(random, 6, fitSizes, 0.03, func(n float64) float64 { return 1e-3*n + 1e-6*n*n }))
		if law.Bends && law.Local[0].Exponent < 1.3 && law.Local[2].Exponent > 1.6 {
			bent++
		}
		if law, _ = FitPower(lawPoints(random, 6, fitSizes, 0.03, func(n float64) float64 { return 1e-3 * n })); law.Bends {
			straight++
		}
	}
	if bent < trials*95/100 || straight > trials*2/100 {
		t.Errorf("of %d: %d bent ones are found to bend, and %d straight ones", trials, bent, straight)
	}
}

func TestFitLine(t *testing.T) {
	if _, ok := FitLine([]Point{{5, Single(1, 2)}, {5, Single(3)}}); ok {
		t.Error("a line through one x")
	}
	if _, ok := FitLine(nil); ok {
		t.Error("a line without points")
	}
	f, ok := FitLine([]Point{{2, Single(5)}, {1, Single(3)}})
	if !ok || math.Abs(f.Slope-2) > 1e-12 || math.Abs(f.Intercept-1) > 1e-12 || f.SlopeLow != nil || f.SlopeRangeLow != nil {
		t.Errorf("%+v", f)
	}
	f, _ = FitLine([]Point{{1, Single(3, 3, 3)}, {2, Single(5, 4, 6)}})
	if f.Slope != 2 || *f.SlopeRangeLow != 1 || *f.SlopeRangeHigh != 3 || f.SlopeLow != nil || f.HoldsZero() {
		t.Errorf("%+v", f)
	}
	f, _ = FitLine([]Point{{1, Single(3, 3, 3, 3, 3, 3)}, {2, Single(3, 2, 4, 3, 3, 3)}})
	if !f.HoldsZero() {
		t.Errorf("%+v", f)
	}
	// Two runs, one for each size: their repetitions have different keys.
	other := Sample{}
	for i := range 6 {
		other[Repetition{Run: 1, Rep: i + 1}] = []float64{7}
	}
	if f, _ = FitLine([]Point{{1, Single(5, 5, 5, 5, 5, 5)}, {2, other}}); f.Repetitions != 6 || *f.SlopeLow != 2 {
		t.Errorf("%+v", f)
	}
	law, ok := FitPower([]Point{{0, Single(5)}, {10, Single(0, 1)}, {100, Single(10, 10)}})
	if !ok || math.Abs(law.Slope-1) > 1e-12 || law.N != 2 || math.Abs(law.At(1000)-100) > 1e-9 {
		t.Errorf("%+v", law)
	}
}
