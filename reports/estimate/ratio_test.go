package estimate

import (
	"math"
	"math/rand/v2"
	"testing"
)

// TestPaired: a slow machine in a repetition slows both subjects, and does not hide their ratio. Repetitions of two
// runs have no such relation.
func TestPaired(t *testing.T) {
	const trials = 3000
	random := rand.New(rand.NewPCG(1, 2))
	covered := map[Design]int{}
	narrower := 0
	for range trials {
		a, b := Sample{}, Sample{}
		for rep := range 8 {
			machine := math.Exp(0.2 * random.NormFloat64())
			of := Repetition{Rep: rep + 1}
			a[of] = []float64{machine * math.Exp(0.02*random.NormFloat64())}
			b[of] = []float64{1.5 * machine * math.Exp(0.02*random.NormFloat64())}
		}
		x, y := Of("x", "s", a, 50), Of("x", "s", b, 50)
		var widths []float64
		for _, d := range []Design{Paired, Unpaired} {
			r, ok := Compare(x, y, d)
			if !ok || r.Low == nil || *r.Low > r.Value || *r.High < r.Value {
				t.Fatalf("%+v", r)
			}
			if *r.Low <= 1.5 && 1.5 <= *r.High {
				covered[d]++
			}
			widths = append(widths, *r.High / *r.Low)
		}
		if widths[0] < widths[1] {
			narrower++
		}
	}
	if covered[Paired] < trials*95/100 || covered[Unpaired] < trials*95/100 || narrower < trials*95/100 {
		t.Errorf("of %d: paired %d, unpaired %d contain the ratio, paired is narrower in %d", trials, covered[Paired], covered[Unpaired], narrower)
	}
}

// TestDesign: repetitions of two runs are not paired, even with the same numbers.
func TestDesign(t *testing.T) {
	a := Of("x", "s", Single(1, 2, 3, 4, 5, 6), 50)
	s := Sample{}
	for i := range 6 {
		s[Repetition{Run: 1, Rep: i + 1}] = []float64{2 * float64(i+1)}
	}
	b := Of("x", "s", s, 50)
	if DesignOf(a, b) != Unpaired || DesignOf(a, a) != Paired {
		t.Error("wrong design")
	}
	paired, _ := Compare(a, Of("x", "s", Single(2, 4, 6, 8, 10, 12), 50), Paired)
	unpaired, _ := Compare(a, b, Unpaired)
	if *paired.Low != 2 || *paired.High != 2 || !paired.Differs() || *unpaired.Low > 1 || unpaired.Differs() || unpaired.Pairs != 0 || paired.Pairs != 6 {
		t.Errorf("paired %+v, unpaired %+v", paired, unpaired)
	}
	if math.Abs(*paired.P-2.0/64) > 1e-12 {
		t.Errorf("p = %v", *paired.P)
	}
	if !paired.Precise(0.05) || unpaired.Precise(0.05) {
		t.Error("wrong precision")
	}
}

func TestCompareBounds(t *testing.T) {
	a, b := Of("x", "s", Single(1, 1, 1), 50), Of("x", "s", Single(5, 5, 5), 50)
	if r, ok := Compare(a, b, Paired); !ok || r.Low != nil || r.Differs() || *r.RangeLow != 5 || *r.RangeHigh != 5 || r.Precise(1) {
		t.Errorf("few: %+v", r)
	}
	b.AtLeast, b.Stopped = true, true
	if r, _ := Compare(a, b, Paired); r.Bound != "lower" || !r.Differs() || r.P != nil {
		t.Errorf("stopped: %+v", r)
	}
	if r, _ := Compare(b, a, Paired); r.Bound != "upper" || !r.Differs() {
		t.Errorf("versus a stopped one: %+v", r)
	}
	a.AtLeast = true
	if _, ok := Compare(a, b, Paired); ok {
		t.Error("two bounds have a ratio")
	}
	a.AtLeast, b.AtLeast, b.Stopped, a.Mixed = false, false, false, true
	if _, ok := Compare(a, b, Unpaired); ok {
		t.Error("several machines have a ratio without pairs")
	}
	if _, ok := Compare(nil, b, Paired); ok {
		t.Error("a missing estimate has a ratio")
	}
}

func TestBeyondP(t *testing.T) {
	a, b := []float64{1, 1.01, 1.02, 1.03}, []float64{1.05, 1.06, 1.07, 1.08}
	if p := BeyondP(a, b, 0); p > 0.03 {
		t.Errorf("p = %v", p)
	}
	if p := BeyondP(a, b, 0.1); p != 1 {
		t.Errorf("p = %v", p)
	}
}

// TestRatioCoverage: with 2, 3, 4, 6 and 12 repetitions, an interval of a ratio contains the real one in 95 % of cases or
// more, and there is none where it could not. Repetitions are one distribution, and heavy on one side.
func TestRatioCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	const tries, real = 4000, 1.3
	value := func(repetition float64) float64 {
		noise := 0.05 * random.NormFloat64()
		if random.Float64() < 0.1 { // a repetition is disturbed
			noise += 0.5 * random.ExpFloat64()
		}
		return math.Exp(repetition + noise)
	}
	for _, design := range []Design{Paired, Unpaired} {
		for _, n := range []int{2, 3, 4, 6, 12} {
			var a, b [12]float64
			covered, intervals := 0, 0
			for range tries {
				for i := range n {
					machineA := 0.3 * random.NormFloat64()
					machineB := machineA
					if design == Unpaired {
						machineB = 0.3 * random.NormFloat64()
					}
					a[i], b[i] = value(machineA), real*value(machineB)
				}
				r, ok := Compare(Of("x", "s", Single(a[:n]...), 50), Of("x", "s", Single(b[:n]...), 50), design)
				if !ok || r.Low == nil {
					continue
				}
				if intervals++; *r.Low <= real && real <= *r.High {
					covered++
				}
			}
			least := map[Design]int{Paired: 6, Unpaired: 4}[design]
			if (intervals == tries) != (n >= least) || intervals > 0 && intervals < tries {
				t.Errorf("design %d, %d repetitions: %d intervals of %d", design, n, intervals, tries)
			}
			if intervals == 0 {
				continue
			}
			share := float64(covered) / float64(intervals)
			t.Logf("design %d, %d repetitions: coverage %.3f", design, n, share)
			if share < 0.94 { // 95 %, less three standard errors of the simulation
				t.Errorf("design %d, %d repetitions: the interval covers the ratio in %.3f of cases", design, n, share)
			}
		}
	}
}
