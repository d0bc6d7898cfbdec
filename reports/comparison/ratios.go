package comparison

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"synclab/bench/subject"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/records"
)

// Comparison is a ratio: one figure of side B divided by that of its baseline A, from estimate.Compare. Sides of one
// run take turns, so their repetitions are paired. Sides of two runs are not paired.
type Comparison struct {
	Cell   records.Cell `json:"cell"`
	Metric string       `json:"metric"` // name of a figure: "full_sync", "network_programming_latency_p99"
	A      string       `json:"a"`      // the baseline
	B      string       `json:"b"`
	// Against is the role of A: "variant" (kube-proxy on the same backend), "overall" (the cell's baseline), or both.
	Against []string `json:"against"`
	Ratio   float64  `json:"ratio"` // B over A
	Low     *float64 `json:"ratio_ci_low,omitempty"`
	High    *float64 `json:"ratio_ci_high,omitempty"`
	// RangeLow and RangeHigh are the smallest and the largest ratio of repetitions, if there is no interval.
	RangeLow  *float64 `json:"ratio_range_low,omitempty"`
	RangeHigh *float64 `json:"ratio_range_high,omitempty"`
	// Bound is "lower" if B was stopped (the real ratio is larger), "upper" if A was stopped.
	Bound  string `json:"bound,omitempty"`
	Paired bool   `json:"paired"`
	Pairs  int    `json:"pairs"` // of repetitions
	// P belongs to the interval: from a sign test if Paired, else from a two-sided Mann-Whitney U test. Adjusted is
	// corrected for all ratios of the cell that are of Primary figures, or for all others.
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"p_adjusted,omitempty"`
	NA       int      `json:"n_a"` // repetitions
	NB       int      `json:"n_b"`
	// Differs: the interval, or the bound, excludes 1, for a Primary figure also after the correction. Observed: there is no
	// interval, or it does not suffice for so many ratios, and so no verdict. Exploratory: the figure is not Primary.
	Differs     bool   `json:"differs"`
	Observed    bool   `json:"observed,omitempty"`
	Exploratory bool   `json:"exploratory,omitempty"`
	Words       string `json:"words"` // "2.3× faster", "observed 2.3× faster", "no difference shown"
	Warning     string `json:"warning,omitempty"`
	// WithinNoise: sides that must be equal differ as much in this cell.
	WithinNoise bool `json:"within_noise,omitempty"`

	// Counted: each side has the same count in all of its repetitions.
	Counted bool `json:"-"`
}

// Compare divides b by the baseline a. ok is false if there is nothing to divide.
func Compare(a, b *estimate.Estimate) (c Comparison, ok bool) {
	if a == nil || b == nil {
		return Comparison{}, false
	}
	r, ok := estimate.Compare(a, b, estimate.DesignOf(a, b))
	if !ok {
		return Comparison{}, false
	}
	c = Comparison{Metric: a.Name, Ratio: r.Value, Low: r.Low, High: r.High, RangeLow: r.RangeLow, RangeHigh: r.RangeHigh, Bound: r.Bound,
		Paired: r.Design == estimate.Paired, Pairs: r.Pairs, P: r.P, NA: r.NA, NB: r.NB, Differs: r.Differs()}
	c.Counted = a.Unit == "count" && a.Constant() && b.Constant()
	c.Exploratory = !slices.Contains(Primary, FigureName(a.Name))
	switch {
	case c.Counted && r.Bound == "":
		c.Differs = a.Value != b.Value
	case r.Bound != "" || r.Low != nil:
	case a.Stopped || b.Stopped:
		c.Observed, c.Warning = true, "some repetitions were stopped: no interval"
	default:
		c.Observed, c.Warning = true, TooFew(c.Repetitions())
	}
	c.Words = c.words(FigureOf(a.Name))
	return c, true
}

// Repetitions returns how many repetitions the ratio is based on.
func (c Comparison) Repetitions() int {
	if c.Paired {
		return c.Pairs
	}
	return min(c.NA, c.NB)
}

func TooFew(repetitions int) string {
	return "observed in " + doc.Plural(repetitions, "repetition") + ", too few for an interval at 95 %"
}

// Within reports whether the interval is within a share of the ratio.
func (c Comparison) Within(share float64) bool {
	return estimate.Ratio{Value: c.Ratio, Low: c.Low, High: c.High, Bound: c.Bound}.Precise(share)
}

// Apart reports whether the ratio differs from 1, or whether all observed repetitions differ in the same direction.
func (c Comparison) Apart() bool {
	return c.Differs || c.Observed && c.Ratio != 1 && (c.RangeLow == nil || *c.RangeLow > 1 || *c.RangeHigh < 1)
}

// words formats the ratio: "2.3× faster", "> 120× slower", "no difference shown".
func (c Comparison) words(t Figure) string {
	switch {
	case c.Bound != "" && !c.Differs:
		return "unknown" // stopped before it had used as much as the other side
	case c.Ratio == 1 && !c.Differs && (c.Low == nil || *c.Low == *c.High):
		return "the same"
	case !c.Differs && !c.Observed:
		return "no difference shown"
	}
	word, ratio := t.Words.More, c.Ratio
	if ratio < 1 {
		word, ratio = t.Words.Less, 1/ratio
	}
	switch {
	case Times(ratio) == "1.000":
		return "the same within 0.1 %"
	case c.Observed:
		return "observed " + Times(ratio) + "× " + word
	case c.Bound == "":
		return Times(ratio) + "× " + word
	}
	digits := 10.0 // a bound is rounded down
	if ratio >= 10 {
		digits = 1
	} else if ratio < 1.2 {
		digits = 100
	}
	return "> " + Times(math.Floor(ratio*digits)/digits) + "× " + word
}

// IntervalText is the interval in the direction of the words, or the observed range: "28–33×", "range 28–33×".
func (c Comparison) IntervalText() string {
	switch {
	case c.Low != nil:
		return c.between(*c.Low, *c.High)
	case c.Observed && c.RangeLow != nil:
		return "range " + c.between(*c.RangeLow, *c.RangeHigh)
	}
	return ""
}

func (c Comparison) between(low, high float64) string {
	if low == high && c.Ratio == 1 {
		return ""
	}
	if (c.Differs || c.Observed) && c.Ratio < 1 {
		low, high = 1/high, 1/low
	}
	from, to := Times(low), Times(high)
	if from == to {
		from, to = strconv.FormatFloat(low, 'f', 2, 64), strconv.FormatFloat(high, 'f', 2, 64)
	}
	if from == to {
		return from + "×"
	}
	return from + "–" + to + "×"
}

// Times formats a ratio with two significant digits, three near 1.
func Times(v float64) string {
	switch {
	case v >= 9.95:
		return doc.Grouped(int64(math.Round(v)))
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

// OverallBaseline is kube-proxy/iptables-legacy, else the first kube-proxy, else the first side.
func OverallBaseline(sides []Side) int {
	if i := slices.IndexFunc(sides, func(s Side) bool { return s.Subject == subject.KubeProxy+"/iptables-legacy" }); i >= 0 {
		return i
	}
	return max(0, slices.IndexFunc(sides, func(s Side) bool { return subject.IsKubeProxy(s.Subject) }))
}

// variantBaseline is kube-proxy with a side's backend and default settings, preferably of the same run.
func variantBaseline(sides []Side, of Side) (int, bool) {
	like := subject.Named(of.Subject).Baseline()
	if like == "" || like == of.Subject {
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

// OfCells compares the sides of every cell with their baselines, if it has at least two.
func OfCells(c *records.Collection) []CellComparison {
	var out []CellComparison
	for _, cell := range c.Cells {
		sides := SidesOf(c, cell)
		if c.Mixes(cell) {
			for _, side := range sides {
				for i := range side.Figures {
					side.Figures[i].Mixed = true
				}
			}
		}
		if len(sides) < 2 || !slices.ContainsFunc(sides, func(s Side) bool { return len(s.Figures)+len(s.Exceeded) > 0 }) {
			continue
		}
		overall := OverallBaseline(sides)
		one := CellComparison{Cell: cell, Baseline: sides[overall].Series, Sides: sides, Floors: FloorsOf(sides)}
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
		one.adjust()
		one.findNoise()
		out = append(out, one)
	}
	return out
}

// adjust corrects the p-values for their number, and the words of Primary figures by them.
func (c *CellComparison) adjust() {
	for _, exploratory := range []bool{false, true} {
		var p []float64
		var of []*Comparison
		for i := range c.Ratios {
			if r := &c.Ratios[i]; r.P != nil && r.Exploratory == exploratory {
				p, of = append(p, *r.P), append(of, r)
			}
		}
		for i, adjusted := range estimate.Adjust(p) {
			of[i].Adjusted = &adjusted
			if r := of[i]; !exploratory && r.Differs && r.Bound == "" && !r.Counted && adjusted > estimate.Level {
				r.Differs, r.Observed = false, true
				r.Warning = fmt.Sprintf("the interval excludes 1, but of %d ratios one may do so by chance", len(p))
				r.Words = r.words(FigureOf(r.Metric))
			}
		}
	}
}

func (c *CellComparison) add(a, b Side, against []string) {
	for _, text := range Compared {
		if one, ok := Compare(a.Figure(text.Name), b.Figure(text.Name)); ok {
			one.Cell, one.A, one.B, one.Against = c.Cell, a.Series, b.Series, against
			c.Ratios = append(c.Ratios, one)
		}
	}
}

// Nearest is the first baseline of a side: kube-proxy on the same backend, else the cell's baseline. It is empty for
// the cell's baseline itself.
func (c CellComparison) Nearest(side Side) string {
	if i, ok := variantBaseline(c.Sides, side); ok {
		return c.Sides[i].Series
	}
	if side.Series == c.Baseline {
		return ""
	}
	return c.Baseline
}

// SideOf returns the side of a series, which must be in the cell.
func (c CellComparison) SideOf(series string) Side {
	return c.Sides[slices.IndexFunc(c.Sides, func(s Side) bool { return s.Series == series })]
}

// Ratio returns the ratio of a side to a baseline, or nil.
func (c CellComparison) Ratio(b, a, metric string) *Comparison {
	return records.Find(c.Ratios, func(r Comparison) bool { return r.A == a && r.B == b && r.Metric == metric })
}

func (c Comparison) PText() string {
	if c.P == nil {
		return "–"
	}
	text := fmt.Sprintf("%.3f", *c.P)
	if *c.P < 0.001 {
		text = "< 0.001"
	}
	return fmt.Sprintf("%s (n = %d, %d)", text, c.NA, c.NB)
}

// LimitText is the lower bound of a stopped subject's figure: "> 600 s".
func LimitText(v float64, unit string) string {
	if unit == "s" && v >= 1 {
		return "> " + doc.TrimTick(doc.Significant(v)+" s")
	}
	return "> " + doc.TrimTick(doc.Format(v, unit))
}

// Pairs lists the side and the baseline of each ratio. Ratios to kube-proxy on the same backend come first.
func (c *CellComparison) Pairs() [][2]string {
	var variant, overall [][2]string
	for _, r := range c.Ratios {
		pair := [2]string{r.B, r.A}
		if r.Against[0] == "variant" {
			variant = append(variant, pair)
		} else {
			overall = append(overall, pair)
		}
	}
	return records.Distinct(append(variant, overall...))
}

// Short is the ratio in a narrow column: "31× faster", "31× faster?" without an interval, "~".
func (c *Comparison) Short() string {
	switch {
	case c == nil || c.Words == "unknown":
		return "–"
	case !c.Apart():
		return "~"
	case c.Observed:
		return strings.TrimPrefix(c.Words, "observed ") + "?"
	}
	return c.Words
}

// FigureValue is an estimate for tables: "1.52 s ± 3 %", "> 600 s".
func FigureValue(f *estimate.Estimate, spread bool) string {
	switch {
	case f == nil:
		return "–"
	case f.AtLeast:
		return LimitText(f.Value, f.Unit)
	}
	text := doc.Format(f.Value, f.Unit)
	if share, ok := f.Spread(); ok && spread && f.Unit != "count" {
		text += SpreadText(share)
	}
	return text
}

// SpreadText is the wider half of an interval as a share, rounded up so that the interval does not look narrower.
func SpreadText(share float64) string {
	return fmt.Sprintf(" ± %.0f %%", max(math.Ceil(100*share-1e-9), 0))
}
