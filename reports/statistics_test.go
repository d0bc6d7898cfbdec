package reports

import (
	"math"
	"math/rand/v2"
	"testing"
)

func upTo(n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = float64((i*7)%n + 1) // 1…n, shuffled when 7 does not divide n
	}
	return values
}

func TestDescribe(t *testing.T) {
	// The interval is the narrowest pair of order statistics that holds the median with 95 % or more: from binomial
	// tables, e.g. n = 11: 1 − P(X ≤ 1) − P(X ≥ 9) = 96.1 %.
	for _, test := range []struct {
		n                 int
		median, low, high float64 // low 0: no interval
	}{
		{1, 1, 0, 0}, {5, 3, 0, 0}, {6, 3.5, 1, 6}, {9, 5, 2, 8}, {11, 6, 2, 9}, {25, 13, 8, 18},
	} {
		d := describe(upTo(test.n))
		if d.N != test.n || d.Median != test.median || d.Min != 1 || d.Max != float64(test.n) {
			t.Errorf("n=%d: %+v", test.n, d)
		}
		switch {
		case test.low == 0 && d.Low != nil:
			t.Errorf("n=%d: an interval %v … %v from too few values", test.n, *d.Low, *d.High)
		case test.low != 0 && (d.Low == nil || *d.Low != test.low || *d.High != test.high):
			t.Errorf("n=%d: interval %v %v, want %v … %v", test.n, d.Low, d.High, test.low, test.high)
		}
	}
	if d := describe(upTo(101)); d.P90 != 91 || d.P99 != 100 {
		t.Errorf("p90 %v p99 %v of 1…101, want 91 and 100", d.P90, d.P99)
	}
}

// TestMedianCoverage draws from a skewed distribution of median 1: the interval must hold it about 95 times in 100.
func TestMedianCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	held := 0
	for range 1000 {
		values := make([]float64, 25)
		for i := range values {
			values[i] = math.Exp(random.NormFloat64())
		}
		if d := describe(values); *d.Low <= 1 && 1 <= *d.High {
			held++
		}
	}
	if held < 930 || held > 995 {
		t.Errorf("the interval held the median %d times in 1000", held)
	}
}

func TestFitLine(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	held := 0
	for range 500 {
		var x, y []float64
		for position := 1.0; position <= 10000; position += 999.9 {
			x = append(x, position)
			y = append(y, 3e-6+3e-9*position+2e-7*random.NormFloat64())
		}
		fit, ok := fitLine(x, y)
		if !ok || math.Abs(fit.Intercept-3e-6) > 1e-6 || fit.R2 < 0.99 {
			t.Fatalf("fit %+v %v", fit, ok)
		}
		if *fit.SlopeLow <= 3e-9 && 3e-9 <= *fit.SlopeHigh {
			held++
		}
	}
	if held < 455 || held > 495 {
		t.Errorf("the 95 %% interval held the slope %d times in 500", held)
	}
}

func TestFitLineOfFewPoints(t *testing.T) {
	if _, ok := fitLine([]float64{5, 5}, []float64{1, 2}); ok {
		t.Error("a line through one x")
	}
	fit, ok := fitLine([]float64{1, 2}, []float64{3, 5})
	if !ok || math.Abs(fit.Slope-2) > 1e-12 || fit.SlopeLow != nil {
		t.Errorf("two points: %+v %v", fit, ok)
	}
	if flat, _ := fitLine([]float64{1, 2, 3}, []float64{4, 4, 4}); flat.Slope != 0 || flat.R2 != 1 {
		t.Errorf("flat: %+v", flat)
	}
}

func TestFitPower(t *testing.T) {
	var x, y []float64
	for _, n := range []float64{100, 1000, 10000} {
		x, y = append(x, n), append(y, 2e-6*math.Pow(n, 1.9))
	}
	fit, ok := fitPower(append(x, 0), append(y, 5)) // a point that has no logarithm is left out
	if !ok || math.Abs(fit.Slope-1.9) > 1e-9 || math.Abs(fit.powerAt(500)/(2e-6*math.Pow(500, 1.9))-1) > 1e-9 {
		t.Errorf("%+v", fit)
	}
}

func TestJudge(t *testing.T) {
	sizes := func(values ...float64) []measuredSize {
		var out []measuredSize
		for i, v := range values {
			out = append(out, measuredSize{services: (i + 1) * 1000, value: v})
		}
		return out
	}
	for _, test := range []struct {
		name          string
		sizes         []measuredSize
		holds, breaks int
		verdict       string
	}{
		{"breaks on the way", sizes(0.2, 0.9, 1.1, 4), 2000, 3000, "holds up to 2,000, breaks at 3,000"},
		{"exactly the limit holds", sizes(1), 1000, 0, "holds at all measured sizes, up to 1,000"},
		{"all", sizes(0.1, 0.2), 2000, 0, "holds at all measured sizes, up to 2,000"},
		{"none", sizes(1.5, 2), 0, 1000, "holds at none of the measured sizes, 1,000 and up"},
		{"a lucky larger size does not count", sizes(0.5, 2, 0.5), 1000, 2000, "holds up to 1,000, breaks at 2,000"},
	} {
		if c := judge(test.sizes, 1); c.Holds != test.holds || c.Breaks != test.breaks || c.Verdict != test.verdict {
			t.Errorf("%s: %+v", test.name, c)
		}
	}
}

// TestJudgeStopped: where the subject was stopped the promise is broken, even if what it had used is within the limit.
func TestJudgeStopped(t *testing.T) {
	c := judge([]measuredSize{{services: 1000, value: 0.2}, {services: 2000, value: 0.5, stopped: true}}, 1)
	if c.Holds != 1000 || c.Breaks != 2000 || !c.Stopped || *c.AtBreaks != 0.5 {
		t.Errorf("%+v", c)
	}
}

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{3.3123, "s", "3.31 s"}, {0.7016, "s", "702 ms"}, {12.34e-6, "s", "12.3 µs"}, {3e-9, "s", "3.00 ns"}, {0, "s", "0 s"},
		{0.99999, "s", "1.00 s"}, {9.9951e-4, "s", "1.00 ms"}, {1004, "s", "16m44s"}, {230020, "count", "230,020"}, {4.5, "count", "4.50"},
		{0.251, "ratio", "25.1 %"}, {1536, "B", "1.50 KiB"}, {300 << 20, "B", "300 MiB"}, {-1234567, "count", "-1,234,567"},
	} {
		if got := Format(test.value, test.unit); got != test.want {
			t.Errorf("Format(%v, %q) = %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

func TestNaturalCompare(t *testing.T) {
	order := []string{"", "p=500ms", "p=1s", "p=1s q=a", "p=1s q=b", "p=10s", "p=never"}
	for i := range order {
		for j := range order {
			want := i - j
			if got := naturalCompare(order[i], order[j]); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("%q against %q: %d", order[i], order[j], got)
			}
		}
	}
}

func TestUnderWay(t *testing.T) {
	points := underWay([]passage{{1, 4}, {2, 4}, {3, 4}, {4, 6}})
	want := [][2]float64{{1, 1}, {2, 2}, {3, 3}, {4, 1}, {6, 0}}
	if len(points) != len(want) {
		t.Fatalf("%v", points)
	}
	for i, p := range points {
		if p.X != want[i][0] || p.Y != want[i][1] {
			t.Errorf("%v, want %v", p, want[i])
		}
	}
}

func TestRoundStep(t *testing.T) {
	for v, want := range map[float64]float64{0.9: 1, 1: 1, 1.01: 2, 3: 5, 7: 10, 0.03: 0.05} {
		if got := roundStep(v); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("roundStep(%v) = %v, want %v", v, got, want)
		}
	}
}
