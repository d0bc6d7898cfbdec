package reports

import (
	"math"
	"testing"

	"synclab/reports/figure"
	"synclab/reports/plots"
	"synclab/reports/records"
	"synclab/reports/sections"
)

func TestJudge(t *testing.T) {
	observed := func(values ...float64) []sections.MeasuredSize {
		var out []sections.MeasuredSize
		for i, v := range values {
			out = append(out, sections.MeasuredSize{Services: (i + 1) * 1000, Value: v})
		}
		return out
	}
	within := func(half float64, values ...float64) []sections.MeasuredSize { // half of the interval's width
		out := observed(values...)
		for i := range out {
			low, high := out[i].Value-half, out[i].Value+half
			out[i].Low, out[i].High = &low, &high
		}
		return out
	}
	for _, test := range []struct {
		name          string
		sizes         []sections.MeasuredSize
		holds, breaks int
		verdict       string
	}{
		{"violated at the third size", within(0.05, 0.2, 0.9, 1.1, 4), 2000, 3000, "met up to 2,000, violated at 3,000"},
		{"exactly the limit is met", within(0, 1), 1000, 0, "met at all measured sizes, up to 1,000"},
		{"all", within(0.1, 0.1, 0.2), 2000, 0, "met at all measured sizes, up to 2,000"},
		{"none", within(0.1, 1.5, 2), 0, 1000, "met at none of the measured sizes, 1,000 and up"},
		{"a lucky larger size does not count", within(0.1, 0.5, 2, 0.5), 1000, 2000, "met up to 1,000, violated at 2,000"},
		{"the limit lies within an interval", within(0.2, 0.5, 0.9, 1.1, 2), 1000, 4000, "met up to 1,000, unclear at 2,000 and 3,000, violated at 4,000"},
		{"nothing is clear", within(1, 0.9), 0, 0, "unclear at 1,000"},
		{"too few repetitions", observed(0.2, 1.1), 1000, 2000, "observed: met up to 1,000, violated at 2,000"},
	} {
		if c := sections.Judge(test.sizes, 1); c.MetUpTo != test.holds || c.ViolatedAt != test.breaks || c.Verdict != test.verdict {
			t.Errorf("%s: %+v", test.name, c)
		}
	}
}

// TestJudgeStopped: a stopped subject violates the SLO, even if the time that it had used is within the limit.
func TestJudgeStopped(t *testing.T) {
	c := sections.Judge([]sections.MeasuredSize{{Services: 1000, Value: 0.2}, {Services: 2000, Value: 0.5, Stopped: true}}, 1)
	if c.MetUpTo != 1000 || c.ViolatedAt != 2000 || !c.Stopped || *c.ValueAtViolated != 0.5 {
		t.Errorf("%+v", c)
	}
}

func TestNaturalCompare(t *testing.T) {
	order := []string{"", "p=500ms", "p=1s", "p=1s q=a", "p=1s q=b", "p=10s", "p=never"}
	for i := range order {
		for j := range order {
			want := i - j
			if got := records.NaturalCompare(order[i], order[j]); (got < 0) != (want < 0) || (got > 0) != (want > 0) {
				t.Errorf("%q against %q: %d", order[i], order[j], got)
			}
		}
	}
}

func TestUnderWay(t *testing.T) {
	points := plots.UnderWay([]plots.Passage{{Due: 1, Visible: 4}, {Due: 2, Visible: 4}, {Due: 3, Visible: 4}, {Due: 4, Visible: 6}})
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
		if got := figure.RoundStep(v); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("roundStep(%v) = %v, want %v", v, got, want)
		}
	}
}
