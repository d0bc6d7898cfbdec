package estimate

import (
	"math"
	"slices"
	"sort"

	"gonum.org/v1/gonum/stat/distuv"
)

const (
	// Confidence of every interval.
	Confidence = 0.95
	// Enough is the number of repetitions for the interval of a median: the fewest whose range contains the median with
	// 95 % confidence.
	Enough = 6

	tail = (1 - Confidence) / 2
)

// Estimate is one number with its uncertainty. Every output is made from it.
type Estimate struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit"`
	Value float64 `json:"value"` // median of the repetitions
	// Low and High bound the 95 % interval. Absent with fewer than Enough repetitions, or if a repetition was stopped.
	Low  *float64 `json:"ci_low,omitempty"`
	High *float64 `json:"ci_high,omitempty"`
	// RangeLow and RangeHigh are the least and the largest repetition, if there is no interval. They have no
	// confidence.
	RangeLow  *float64 `json:"range_low,omitempty"`
	RangeHigh *float64 `json:"range_high,omitempty"`
	N         int      `json:"n"` // values of all repetitions
	// AtLeast: repetitions were stopped before the real value was known. The real value is larger.
	AtLeast      bool    `json:"at_least,omitempty"`
	ByRepetition []Value `json:"by_repetition,omitempty"`
	// Stopped: a repetition was stopped, so Value is a bound.
	Stopped bool `json:"-"`
	// Mixed: the repetitions are of several machines, so Value belongs to none of them.
	Mixed bool `json:"-"`
}

// Of returns the estimate of a quantile of a sample, such as percent 50 for the median; nil for an empty sample.
func Of(name, unit string, s Sample, percent float64) *Estimate {
	e := &Estimate{Name: name, Unit: unit, N: len(s.Pooled()), ByRepetition: s.ByRepetition(percent)}
	if e.N == 0 {
		return nil
	}
	e.Value = s.Quantile(percent)
	e.bound(s.interval(percent))
	return e
}

// bound sets the interval, or the range if there is no interval.
func (e *Estimate) bound(low, high float64, ok bool) {
	all := e.Values()
	switch {
	case ok:
		low, high = min(low, e.Value), max(high, e.Value)
		e.Low, e.High = &low, &high
	case len(all) > 1:
		e.RangeLow, e.RangeHigh = extremes(all)
	}
}

// Unbounded removes the interval and the range.
func (e *Estimate) Unbounded() { e.Low, e.High, e.RangeLow, e.RangeHigh = nil, nil, nil, nil }

func extremes(values []float64) (least, most *float64) {
	a, b := slices.Min(values), slices.Max(values)
	return &a, &b
}

// Values returns the values of the repetitions, in order.
func (e *Estimate) Values() []float64 { return values(e.ByRepetition) }

// Constant reports whether every repetition has the same value.
func (e *Estimate) Constant() bool {
	return !slices.ContainsFunc(e.ByRepetition, func(v Value) bool { return v.Value != e.Value })
}

// Repetitions returns the number of repetitions with a value.
func (e *Estimate) Repetitions() int { return len(e.ByRepetition) }

// Spread returns the wider half of the interval as a share of the value; ok is false without an interval.
func (e *Estimate) Spread() (share float64, ok bool) { return spread(e.Value, e.Low, e.High) }

func spread(value float64, low, high *float64) (share float64, ok bool) {
	if low == nil || high == nil || value == 0 {
		return 0, false
	}
	return max(value-*low, *high-value) / value, true
}

// MedianInterval returns the 95 % interval of the median by order statistics. It assumes no distribution. ok is false
// with fewer than Enough values.
func MedianInterval(values []float64) (low, high float64, ok bool) {
	rank := signRank(len(values), 0.5)
	if rank == 0 {
		return 0, 0, false
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[rank-1], sorted[len(sorted)-rank], true
}

// signRank returns the largest k such that at least k of n trials succeed with a probability of 1 − tail or more; 0: no
// k.
func signRank(n int, success float64) int {
	b := distuv.Binomial{N: float64(n), P: success}
	return sort.Search(n, func(k int) bool { return b.CDF(float64(k)) > tail })
}

// interval returns the interval of a quantile over the repetitions.
func (s Sample) interval(percent float64) (low, high float64, ok bool) {
	switch {
	case percent == 50:
		return MedianInterval(values(s.ByRepetition(percent)))
	case !s.several():
		return 0, 0, false
	}
	return s.quantileInterval(percent / 100)
}

// quantileInterval bounds the median of the repetitions' q-quantiles. ok is false if the values cannot bound it from
// both sides.
func (s Sample) quantileInterval(q float64) (low, high float64, ok bool) {
	// In each repetition, an order statistic lies below that repetition's quantile with a known probability (binomial).
	// Half of the repetitions' quantiles lie below their median. So each of these order statistics lies below that
	// median with half that probability, independently of the others.
	var lows, highs []float64
	surelyLow, surelyHigh := 1.0, 1.0
	for _, of := range s.Repetitions() {
		sorted := slices.Sorted(slices.Values(s[of]))
		below := distuv.Binomial{N: float64(len(sorted)), P: q} // how many values lie below the quantile
		from := 1 + sort.Search(len(sorted)-1, func(k int) bool { return below.CDF(float64(k+1)) > tail })
		to := 1 + sort.Search(len(sorted)-1, func(k int) bool { return below.CDF(float64(k)) >= 1-tail })
		surelyLow, surelyHigh = min(surelyLow, 1-below.CDF(float64(from-1))), min(surelyHigh, below.CDF(float64(to-1)))
		lows, highs = append(lows, sorted[from-1]), append(highs, sorted[to-1])
	}
	first, last := signRank(len(lows), surelyLow/2), signRank(len(highs), surelyHigh/2)
	if first == 0 || last == 0 {
		return 0, 0, false
	}
	slices.Sort(lows)
	slices.Sort(highs)
	low, high = lows[first-1], highs[len(highs)-last]
	return low, high, !math.IsNaN(low) && low <= high
}

// Distribution describes a sample, in the unit of its metric. Median, P90 and P99 are medians of the repetitions'
// quantiles.
type Distribution struct {
	N           int     `json:"n"` // values of all repetitions
	Repetitions int     `json:"repetitions"`
	Median      float64 `json:"median"`
	// Low and High bound the median's 95 % interval. Absent with fewer than Enough repetitions. Then RangeLow and
	// RangeHigh are the least and the largest median of a repetition.
	Low       *float64 `json:"ci_low,omitempty"`
	High      *float64 `json:"ci_high,omitempty"`
	RangeLow  *float64 `json:"range_low,omitempty"`
	RangeHigh *float64 `json:"range_high,omitempty"`
	P90       float64  `json:"p90"`
	P99       float64  `json:"p99"`
	// P99Low and P99High bound the 95 % interval of P99. Absent with too few values or repetitions.
	P99Low  *float64 `json:"p99_ci_low,omitempty"`
	P99High *float64 `json:"p99_ci_high,omitempty"`
	Min     float64  `json:"min"` // of all values
	Max     float64  `json:"max"`
	// FewForP99: a repetition has fewer than 100 values, so its P99 is near its largest value.
	FewForP99 bool `json:"few_for_p99,omitempty"`
}

// Describe describes a sample, which must not be empty.
func Describe(s Sample) Distribution {
	middle, far := Of("", "", s, 50), Of("", "", s, 99)
	least, most := extremes(s.Pooled())
	d := Distribution{N: middle.N, Repetitions: middle.Repetitions(), Median: middle.Value, Low: middle.Low, High: middle.High,
		RangeLow: middle.RangeLow, RangeHigh: middle.RangeHigh, P90: s.Quantile(90), P99: far.Value, P99Low: far.Low, P99High: far.High,
		Min: *least, Max: *most}
	for _, values := range s {
		d.FewForP99 = d.FewForP99 || len(values) < 100 && d.Min != d.Max
	}
	return d
}

// Spread returns the wider half of the median's interval as a share of the median; ok is false without an interval.
func (d Distribution) Spread() (share float64, ok bool) { return spread(d.Median, d.Low, d.High) }
