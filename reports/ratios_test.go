package reports

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// figureOf makes a full sync figure from one value for each repetition.
func figureOf(values ...float64) *estimate.Estimate {
	by := estimate.Sample{}
	for i, v := range values {
		by[records.Repetition{Rep: i + 1}] = []float64{v}
	}
	return comparison.FigureOf(comparison.FigureFull).Estimate(by, nil)
}

func TestRatioWords(t *testing.T) {
	six := func(v float64) *estimate.Estimate { return figureOf(v, v*1.02, v*0.98, v*1.01, v*0.99, v*1.03) }
	stoppedFigure := &estimate.Estimate{Name: comparison.FigureFull, Unit: "s", Value: 600, AtLeast: true}
	for _, test := range []struct {
		name    string
		a, b    *estimate.Estimate
		words   string
		warning string
	}{
		{"faster", six(46.5), six(1.5), "31× faster", ""},
		{"slower", six(1), six(1.4), "1.4× slower", ""},
		{"the interval contains 1", figureOf(1, 1.1, 0.9, 1.05, 0.95, 1), figureOf(1.05, 0.9, 1.1, 1, 0.96, 1.01), "no difference shown", ""},
		{"three repetitions", figureOf(47, 46, 48), figureOf(1.5, 1.6, 1.4), "observed 31× faster", "observed in 3 repetitions, too few for an interval at 95 %"},
		{"one repetition", figureOf(10), figureOf(5), "observed 2.0× faster", "observed in 1 repetition, too few for an interval at 95 %"},
		{"baseline stopped", stoppedFigure, figureOf(5, 5, 5), "> 120× faster", ""},
		{"subject stopped", figureOf(5.01, 4.99, 5), stoppedFigure, "> 120× slower", ""},
		{"stopped too early to tell", six(900), stoppedFigure, "unknown", ""},
	} {
		c, ok := comparison.Compare(test.a, test.b)
		if !ok || c.Words != test.words || c.Warning != test.warning {
			t.Errorf("%s: %q %q, want %q %q", test.name, c.Words, c.Warning, test.words, test.warning)
		}
	}
	for name, pair := range map[string][2]*estimate.Estimate{"none": {six(1), nil}, "zero": {figureOf(0), six(1)}, "both stopped": {stoppedFigure, stoppedFigure}} {
		if c, ok := comparison.Compare(pair[0], pair[1]); ok {
			t.Errorf("%s: a ratio %v", name, c.Ratio)
		}
	}
	if c, _ := comparison.Compare(six(46.5), figureOf(1.5, 1.4, 1.6, 1.55, 1.45, 1.5)); !strings.Contains(c.IntervalText(), "–") || *c.High > 0.05 || c.P == nil || *c.P > 0.04 || !c.Paired {
		t.Errorf("interval %s, %+v", c.IntervalText(), c)
	}
}

// TestRatioCoverage: a machine that slows down and speeds up affects both subjects of a pair. The interval must
// contain the true ratio 95 times in 100. Pairs must make it narrow although the values spread widely.
func TestRatioCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	held, narrow := 0, 0
	for range 500 {
		var a, b []float64
		for range 8 {
			weather := math.Exp(0.5 * random.NormFloat64())
			a = append(a, weather*math.Exp(0.02*random.NormFloat64()))
			b = append(b, 3*weather*math.Exp(0.02*random.NormFloat64()))
		}
		c, _ := comparison.Compare(figureOf(a...), figureOf(b...))
		// The interval is widened to contain the ratio of the medians. Its nearer bound tests the coverage.
		if *c.Low <= 3 && 3 <= *c.High {
			held++
		}
		if *c.High / *c.Low < 1.25 {
			narrow++
		}
	}
	if held < 465 || narrow < 400 {
		t.Errorf("of 500 intervals, %d contain the ratio and %d are narrow", held, narrow)
	}
}

// TestPairsOfRuns: repetitions of one run are paired by their numbers, those of two runs are not.
func TestPairsOfRuns(t *testing.T) {
	a, b := figureOf(1, 2, 4, 1, 2, 4), figureOf(2, 4, 8, 2, 4, 8)
	if c, _ := comparison.Compare(a, b); !c.Paired || c.Pairs != 6 || *c.Low != 2 || *c.High != 2 || !c.Differs {
		t.Errorf("of one run: %+v", c)
	}
	for i := range b.ByRepetition {
		b.ByRepetition[i].Run = 1
	}
	if c, _ := comparison.Compare(a, b); c.Paired || c.Pairs != 0 || c.Differs || *c.Low > 1 || *c.High < 4 {
		t.Errorf("of two runs: %+v", c)
	}
	b = figureOf(2, 4, 8, 2, 4, 8)
	a.ByRepetition = append(a.ByRepetition[:1:1], a.ByRepetition[2:]...) // repetition 2 is missing
	if c, _ := comparison.Compare(a, b); c.Pairs != 5 || !c.Observed || *c.RangeLow != 2 {
		t.Errorf("with a missing repetition: %+v", c)
	}
}

func TestBaselines(t *testing.T) {
	side := func(names ...string) (sides []comparison.Side) {
		for _, name := range names {
			subject, _, _ := strings.Cut(name, " · ")
			sides = append(sides, comparison.Side{Series: name, Subject: subject})
		}
		return sides
	}
	for _, test := range []struct {
		sides   []comparison.Side
		overall string
		nearest []string
	}{
		{side("synclab/iptables-nft", "kube-proxy/nftables", "kube-proxy/iptables-legacy", "kube-proxy/iptables-nft"), "kube-proxy/iptables-legacy",
			[]string{"kube-proxy/iptables-nft", "kube-proxy/iptables-legacy", "", "kube-proxy/iptables-legacy"}},
		{side("synclab/iptables-nft", "exec:mine", "kube-proxy/nftables"), "kube-proxy/nftables", []string{"kube-proxy/nftables", "kube-proxy/nftables", ""}},
		{side("synclab/iptables-nft", "synclab/nftables"), "synclab/iptables-nft", []string{"", "synclab/iptables-nft"}},
		{side("synclab/iptables-nft-tree", "synclab/iptables-legacy-tree", "synclab/nftables", "kube-proxy/nftables", "kube-proxy/iptables-legacy", "kube-proxy/iptables-nft"),
			"kube-proxy/iptables-legacy", []string{"kube-proxy/iptables-nft", "kube-proxy/iptables-legacy", "kube-proxy/nftables",
				"kube-proxy/iptables-legacy", "", "kube-proxy/iptables-legacy"}},
		{side("exec:nftables", "kube-proxy/nftables"), "kube-proxy/nftables", []string{"kube-proxy/nftables", ""}},
		{side("kube-proxy/nftables · a", "kube-proxy/nftables · b", "synclab/nftables · b"), "kube-proxy/nftables · a",
			[]string{"", "kube-proxy/nftables · a", "kube-proxy/nftables · b"}},
	} {
		c := comparison.CellComparison{Sides: test.sides, Baseline: test.sides[comparison.OverallBaseline(test.sides)].Series}
		if c.Baseline != test.overall {
			t.Errorf("%v: baseline %s, want %s", test.sides, c.Baseline, test.overall)
		}
		for i, side := range test.sides {
			if got := c.Nearest(side); got != test.nearest[i] {
				t.Errorf("%s: baseline %q, want %q", side.Series, got, test.nearest[i])
			}
		}
	}
}

func TestTogether(t *testing.T) {
	for _, test := range []struct {
		texts []string
		want  string
	}{
		{[]string{"stopped after 10m0s: 4,120 of 10,000 Services visible"}, "stopped after 10m0s: 4,120 of 10,000 Services visible"},
		{[]string{"stopped after 10m0s: 1 of 9 visible", "stopped after 10m0s: 2 of 9 visible", "stopped after 10m0s: 3 of 9 visible"}, "stopped after 10m0s: 1, 2 and 3 of 9 visible"},
		{[]string{"time", "memory"}, "time and memory"},
		{[]string{"a a b", "a b"}, "a a b and a b"},
	} {
		if got := comparison.Together(test.texts); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestLimitText(t *testing.T) {
	for _, test := range []struct {
		value      float64
		unit, want string
	}{{600, "s", "> 600 s"}, {600.013, "s", "> 600 s"}, {2 << 30, "B", "> 2 GiB"}, {1234, "s", "> 1,234 s"}, {0.5, "s", "> 500 ms"}} {
		if got := comparison.LimitText(test.value, test.unit); got != test.want {
			t.Errorf("%s, want %s", got, test.want)
		}
	}
}
