package reports

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchmath"

	"synclab/bench"
)

// Comparison is a ratio: one figure of side B over that of its baseline A.
//
// The ratio is that of the two figures as shown. Its interval comes from the repetitions: the k-th of A and the k-th of B
// ran one after the other, so whatever slowed the machine then slowed both. Their ratio is one observation; the interval
// is that of the median of these ratios by order statistics, without an assumption about their distribution, and widened
// to hold the ratio itself. It takes 6 repetitions to have one at 95 %.
//
// Of a cell that several machines measured, the ratio is the median of those of the repetitions: each is of one machine,
// which the figures are not.
type Comparison struct {
	Cell   Cell   `json:"cell"`
	Metric string `json:"metric"` // name of a figure: "full_sync", "network_programming_latency_p99"
	A      string `json:"a"`      // the baseline
	B      string `json:"b"`
	// Against says what A is: "variant" (kube-proxy of the same backend), "overall" (the cell's baseline), or both.
	Against []string `json:"against"`
	Ratio   float64  `json:"ratio"` // B over A
	Low     *float64 `json:"ratio_ci_low,omitempty"`
	High    *float64 `json:"ratio_ci_high,omitempty"`
	// Bound is "lower" when B was stopped (the real ratio is larger), "upper" when A was.
	Bound string `json:"bound,omitempty"`
	Pairs int    `json:"pairs"` // of repetitions
	// P is the p-value of a two-sided Mann-Whitney U test on the repetitions.
	P  *float64 `json:"p,omitempty"`
	NA int      `json:"n_a"` // repetitions
	NB int      `json:"n_b"`
	// Differs: the interval leaves 1 out; without an interval: the repetitions are far apart.
	Differs bool   `json:"differs"`
	Words   string `json:"words"` // "2.3× faster", "no difference shown"
	Warning string `json:"warning,omitempty"`
}

// compareFigures sets b beside the baseline a. ok is false where there is nothing to divide.
func compareFigures(a, b *Figure) (c Comparison, ok bool) {
	if a == nil || b == nil || a.Value <= 0 || b.Value <= 0 || (a.AtLeast && b.AtLeast) {
		return Comparison{}, false
	}
	c = Comparison{Metric: a.Name, Ratio: b.Value / a.Value, NA: len(a.repetitions), NB: len(b.repetitions)}
	if a.mixed || b.mixed {
		ratios := sameRepetitions(*a, *b)
		if len(ratios) == 0 {
			return Comparison{}, false
		}
		c.Ratio = median(ratios)
	}
	text := figureTextOf(a.Name)
	switch {
	case b.AtLeast:
		c.Bound, c.Differs = "lower", c.Ratio > 1
	case a.AtLeast:
		c.Bound, c.Differs = "upper", c.Ratio < 1
	default:
		c.interval(*a, *b)
	}
	c.Words = c.words(text)
	return c, true
}

func (c *Comparison) interval(a, b Figure) {
	ratios := pairedRatios(a, b)
	c.Pairs = len(ratios)
	if len(ratios) > 0 && !a.stopped && !b.stopped {
		if d := describe(ratios); d.Low != nil {
			low, high := min(*d.Low, c.Ratio), max(*d.High, c.Ratio)
			c.Low, c.High = &low, &high
		}
	}
	va, vb := a.values(), b.values()
	if len(va) > 0 && len(vb) > 0 {
		test := benchmath.AssumeNothing.Compare(benchmath.NewSample(va, &benchmath.DefaultThresholds), benchmath.NewSample(vb, &benchmath.DefaultThresholds))
		c.P = &test.P
		c.Warning = warningText(test.Warnings)
	}
	switch {
	case c.Low != nil:
		c.Differs = *c.Low > 1 || *c.High < 1
	case len(va) > 0 && len(vb) > 0:
		c.Differs = farApart(va, vb)
	}
	switch {
	case a.stopped || b.stopped:
		c.Warning = "some repetitions were stopped: no interval"
	case c.Low == nil:
		c.Warning = tooFew(c.Pairs)
	}
}

func tooFew(pairs int) string { return plural(pairs, "repetition") + ": no interval at 95 %" }

// farApart is what stands in for an interval: every value of one group is larger than every one of the other. Fewer than
// 4 and 4 values may be so by chance (p > 0.05): there, the gap must be wider than either group, too. A single value
// does not tell how far it might have been off: that is taken to be aloneSpread.
func farApart(a, b []float64) bool {
	if slices.Min(a) > slices.Max(b) {
		a, b = b, a
	}
	gap := slices.Min(b) / slices.Max(a)
	if gap <= 1 {
		return false
	}
	spread := func(values []float64) float64 {
		if len(values) == 1 {
			return aloneSpread
		}
		return slices.Max(values) / slices.Min(values)
	}
	return min(len(a), len(b)) >= 4 || gap > max(spread(a), spread(b))
}

const aloneSpread = 1.25

func warningText(warnings []error) string {
	if len(warnings) == 0 {
		return ""
	}
	return errors.Join(warnings...).Error()
}

// pairedRatios divides repetition by repetition: of one run by their numbers, else in their order.
func pairedRatios(a, b Figure) []float64 {
	out := sameRepetitions(a, b)
	if len(out) > 0 || a.mixed || b.mixed {
		return out
	}
	for i := range min(len(a.repetitions), len(b.repetitions)) {
		if x, y := a.repetitions[i].value, b.repetitions[i].value; x > 0 && y > 0 {
			out = append(out, y/x)
		}
	}
	return out
}

// sameRepetitions divides what two figures have of the same repetitions of one run.
func sameRepetitions(a, b Figure) []float64 {
	var out []float64
	for _, one := range a.repetitions {
		i := slices.IndexFunc(b.repetitions, func(r repetitionValue) bool { return r.repetition == one.repetition })
		if i >= 0 && one.value > 0 && b.repetitions[i].value > 0 {
			out = append(out, b.repetitions[i].value/one.value)
		}
	}
	return out
}

// words says the ratio: "2.3× faster", "> 120× slower", "no difference shown".
func (c Comparison) words(t figureText) string {
	switch {
	case c.Bound != "" && !c.Differs:
		return "unknown" // stopped before it had used as much as the other needed
	case c.Ratio == 1 && !c.Differs && (c.Low == nil || *c.Low == *c.High):
		return "the same"
	case !c.Differs:
		return "no difference shown"
	}
	word, ratio := t.more, c.Ratio
	if ratio < 1 {
		word, ratio = t.less, 1/ratio
	}
	if c.Bound == "" {
		return times(ratio) + "× " + word
	}
	digits := 10.0 // a bound is rounded down
	if ratio >= 10 {
		digits = 1
	} else if ratio < 1.2 {
		digits = 100
	}
	return "> " + times(math.Floor(ratio*digits)/digits) + "× " + word
}

// intervalText is the interval in the direction of the words: "28–33×".
func (c Comparison) intervalText() string {
	if c.Low == nil || *c.Low == *c.High && c.Ratio == 1 {
		return ""
	}
	low, high := *c.Low, *c.High
	if c.Differs && c.Ratio < 1 {
		low, high = 1/high, 1/low
	}
	from, to := times(low), times(high)
	if from == to {
		from, to = strconv.FormatFloat(low, 'f', 2, 64), strconv.FormatFloat(high, 'f', 2, 64)
	}
	if from == to {
		return from + "×"
	}
	return from + "–" + to + "×"
}

// times writes a ratio with two significant digits, three near 1.
func times(v float64) string {
	switch {
	case v >= 9.95:
		return Grouped(int64(math.Round(v)))
	case v > 1 && v < 1.005:
		return strconv.FormatFloat(v, 'f', 3, 64)
	case v >= 1.195:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 0.1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

const kubeProxy = "kube-proxy/"

// overallBaseline is kube-proxy/iptables-legacy, else the first kube-proxy, else the first side.
func overallBaseline(sides []Side) int {
	if i := slices.IndexFunc(sides, func(s Side) bool { return s.Subject == kubeProxy+"iptables-legacy" }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(sides, func(s Side) bool { return strings.HasPrefix(s.Subject, kubeProxy) }))
}

// kubeProxyLike names the kube-proxy with the tables that a subject of another proxier writes, whichever way and in
// whichever layout; empty: not known.
func kubeProxyLike(subject string) string {
	s, err := bench.ParseSubject(subject)
	switch {
	case err != nil:
		return ""
	case s.Variant != "":
		return kubeProxy + "iptables-" + string(s.Variant)
	case s.Backend != "":
		return kubeProxy + string(s.Backend)
	}
	return ""
}

// variantBaseline is kube-proxy with the backend of another proxier's side, of the same run where there are several.
func variantBaseline(sides []Side, of Side) (int, bool) {
	if strings.HasPrefix(of.Subject, kubeProxy) {
		return 0, false
	}
	like := kubeProxyLike(of.Subject)
	if like == "" {
		return 0, false
	}
	found := -1
	for i, s := range sides {
		if s.Subject != like {
			continue
		}
		if s.Series == strings.Replace(of.Series, of.Subject, s.Subject, 1) {
			return i, true
		}
		if found < 0 {
			found = i
		}
	}
	return found, found >= 0
}

// cellComparisons sets the sides of every cell with two or more beside their baselines.
func cellComparisons(c *collection) []CellComparison {
	var out []CellComparison
	for _, cell := range c.cells {
		sides := sidesOf(c, cell)
		if c.mixes(cell) {
			for _, side := range sides {
				for i := range side.Figures {
					side.Figures[i].mixed = true
				}
			}
		}
		if len(sides) < 2 || !slices.ContainsFunc(sides, func(s Side) bool { return len(s.Figures)+len(s.Exceeded) > 0 }) {
			continue
		}
		overall := overallBaseline(sides)
		one := CellComparison{Cell: cell, Baseline: sides[overall].Series, Sides: sides, Floors: floorsOf(sides)}
		for i, side := range sides {
			variant, ok := variantBaseline(sides, side)
			if ok {
				against := []string{"variant"}
				if variant == overall {
					against = append(against, "overall")
				}
				one.add(sides[variant], side, against)
			}
			if i != overall && !(ok && variant == overall) {
				one.add(sides[overall], side, []string{"overall"})
			}
		}
		out = append(out, one)
	}
	return out
}

func (c *CellComparison) add(a, b Side, against []string) {
	for _, text := range figureTexts {
		if one, ok := compareFigures(a.figure(text.name), b.figure(text.name)); ok {
			one.Cell, one.A, one.B, one.Against = c.Cell, a.Series, b.Series, against
			c.Ratios = append(c.Ratios, one)
		}
	}
}

// nearest is the baseline that a side is first set beside: kube-proxy of its own backend, else the cell's. Empty for the
// cell's baseline itself.
func (c CellComparison) nearest(side Side) string {
	if i, ok := variantBaseline(c.Sides, side); ok {
		return c.Sides[i].Series
	}
	if side.Series == c.Baseline {
		return ""
	}
	return c.Baseline
}

// ratio of a side to a baseline; nil where there is none.
func (c CellComparison) ratio(b, a, metric string) *Comparison {
	i := slices.IndexFunc(c.Ratios, func(r Comparison) bool { return r.A == a && r.B == b && r.Metric == metric })
	if i < 0 {
		return nil
	}
	return &c.Ratios[i]
}

func (c Comparison) pText() string {
	if c.P == nil {
		return "–"
	}
	text := fmt.Sprintf("%.3f", *c.P)
	if *c.P < 0.001 {
		text = "< 0.001"
	}
	return fmt.Sprintf("%s (n = %d, %d)", text, c.NA, c.NB)
}

// limitText is what a stopped subject's figure is larger than: "> 600 s".
func limitText(v float64, unit string) string {
	if unit == "s" && v >= 1 {
		return "> " + trimTick(significant(v)+" s")
	}
	return "> " + trimTick(Format(v, unit))
}
