package atlas

import (
	"path/filepath"
	"strings"
	"testing"

	"synclab/reports/comparison"
	"synclab/reports/estimate"
	"synclab/reports/reportstest"
)

// Subjects are columns, kube-proxies first, and a size is a row, also of two runs. A stopped subject has a bound.
func TestAtlas(t *testing.T) {
	dir := t.TempDir()
	large, small := reportstest.FiveSizes(), reportstest.Five
	small.Sizes, small.Reps, small.ID = []int{100}, 3, "few"
	var dirs []string
	for name, y := range map[string]reportstest.Run{"large": large, "few": small} {
		y.Write(t, filepath.Join(dir, name))
	}
	for _, name := range []string{"few", "large"} {
		dirs = append(dirs, filepath.Join(dir, name))
	}
	d, err := Of(dirs)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := d.Markdown(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"### How long does a start take?",
		"| figure | services × endpoints | kube-proxy/iptables-legacy | kube-proxy/iptables-nft | kube-proxy/nftables | synclab/iptables-legacy | synclab/iptables-nft | run |",
		"| Cold start | 100 × 10 |", "| Cold start | 8,000 × 10, size-sweep |", "> 600 s", "±", "| few |", "| large |",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if few := line(text, "| Cold start | 100 × 10 |"); !strings.Contains(few, "–") || strings.Contains(few, "±") {
		t.Errorf("an interval of three repetitions: %s", few)
	}
	if strings.Contains(text, "connections?") {
		t.Error("a question that no run answers")
	}
}

// Ranges of three repetitions that overlap show no difference, whatever the pairs of repetitions say; ranges apart do.
func TestOverlap(t *testing.T) {
	const baseline = "kube-proxy/iptables-legacy"
	below := 0.9
	for _, test := range []struct {
		own, other [2]float64
		want       bool
	}{{[2]float64{3, 7}, [2]float64{4, 8}, true}, {[2]float64{1, 2}, [2]float64{4, 8}, false}} {
		side := func(name string, of [2]float64) comparison.Side {
			return comparison.Side{Series: name, Subject: name, Figures: []estimate.Estimate{{Name: comparison.FigureCold, RangeLow: &of[0], RangeHigh: &of[1]}}}
		}
		c := &comparison.CellComparison{Baseline: baseline, Sides: []comparison.Side{side("synclab/x", test.own), side(baseline, test.other)},
			Ratios: []comparison.Comparison{{A: baseline, B: "synclab/x", Metric: comparison.FigureCold, Observed: true, Ratio: below, RangeLow: &below, RangeHigh: &below}}}
		if got := alike(c, "synclab/x", comparison.FigureCold); got != test.want {
			t.Errorf("%v and %v: alike %t", test.own, test.other, got)
		}
	}
}

func line(text, prefix string) string {
	_, rest, _ := strings.Cut(text, prefix)
	line, _, _ := strings.Cut(rest, "\n")
	return line
}
