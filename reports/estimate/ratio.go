package estimate

import "slices"

// Design is the relation between the repetitions of two estimates.
type Design int

const (
	// Unpaired estimates are of two runs: the k-th repetitions of both are unrelated.
	Unpaired Design = iota
	// Paired estimates are of one run whose subjects take turns: the same repetition of both had the same machine
	// state.
	Paired
)

// DesignOf returns the design of two estimates of one collection of runs: Paired if they share repetitions.
func DesignOf(a, b *Estimate) Design {
	for _, v := range a.ByRepetition {
		if slices.ContainsFunc(b.ByRepetition, func(o Value) bool { return o.Repetition == v.Repetition }) {
			return Paired
		}
	}
	return Unpaired
}

// Ratio is one estimate over another.
type Ratio struct {
	Value  float64 // ratio of the two values as shown; for several machines, the median of the repetitions' ratios
	Design Design
	// Low and High bound the 95 % interval, widened to contain Value. Paired: order statistics of the repetitions'
	// ratios, from Enough pairs. Unpaired: by ranks, from 4 and 4 repetitions. nil: too few repetitions, or some were
	// stopped.
	Low, High *float64
	// RangeLow and RangeHigh are the least and the largest ratio of repetitions, if there is no interval.
	RangeLow, RangeHigh *float64
	// P is the p-value of a sign test (Paired) or a Mann-Whitney test (Unpaired) on the repetitions. It matches the
	// interval. nil: repetitions were stopped.
	P *float64
	// Pairs is the number of pairs of repetitions. NA and NB are the numbers of repetitions of a and b.
	Pairs, NA, NB int
	// Bound is "lower" if b was stopped before its real value was known (the real ratio is larger), and "upper" if a
	// was.
	Bound string
}

// Compare divides b by a. ok is false if there is no ratio.
func Compare(a, b *Estimate, d Design) (r Ratio, ok bool) {
	if a == nil || b == nil || a.Value <= 0 || b.Value <= 0 || a.AtLeast && b.AtLeast {
		return Ratio{}, false
	}
	r = Ratio{Value: b.Value / a.Value, Design: d, NA: a.Repetitions(), NB: b.Repetitions()}
	ratios := a.ratios(b, d)
	if d == Paired {
		r.Pairs = len(ratios)
	}
	if a.Mixed || b.Mixed {
		if d == Unpaired || len(ratios) == 0 {
			return Ratio{}, false // the values are of different machines
		}
		r.Value = Median(ratios)
	}
	switch {
	case b.AtLeast:
		r.Bound = "lower"
	case a.AtLeast:
		r.Bound = "upper"
	case a.Stopped || b.Stopped:
	case len(ratios) > 0:
		r.bound(a.Values(), b.Values(), ratios)
	}
	return r, true
}

// ratios returns the ratios of the same repetitions, or of each repetition to each if unpaired.
func (e *Estimate) ratios(other *Estimate, d Design) []float64 {
	var out []float64
	for _, a := range e.ByRepetition {
		for _, b := range other.ByRepetition {
			if a.Value > 0 && b.Value > 0 && (d == Unpaired || a.Repetition == b.Repetition) {
				out = append(out, b.Value/a.Value)
			}
		}
	}
	return out
}

func (r *Ratio) bound(a, b, ratios []float64) {
	var p, low, high float64
	var ok bool
	if r.Design == Paired {
		p = signP(ratios)
		low, high, ok = MedianInterval(ratios)
	} else {
		p = RankP(a, b)
		low, high, ok = ratioInterval(a, b)
	}
	r.P = &p
	switch {
	case ok:
		low, high = min(low, r.Value), max(high, r.Value)
		r.Low, r.High = &low, &high
	case len(ratios) > 1:
		r.RangeLow, r.RangeHigh = extremes(append(ratios, r.Value))
	}
}

// Differs reports whether the interval excludes 1, or the bound is beyond 1.
func (r Ratio) Differs() bool {
	switch r.Bound {
	case "lower":
		return r.Value > 1
	case "upper":
		return r.Value < 1
	}
	return r.Low != nil && (*r.Low > 1 || *r.High < 1)
}

// Precise reports whether the interval is within a share of the value, on either side. A bound is always precise, and
// so is a ratio of values that are the same in every repetition.
func (r Ratio) Precise(share float64) bool {
	if r.Bound != "" {
		return true
	}
	return r.Low != nil && *r.Low > 0 && max(*r.High/r.Value, r.Value / *r.Low) <= 1+share
}

// BeyondP returns the p-value for b exceeding a by more than a share; 1 if b does not even tend to.
func BeyondP(a, b []float64, share float64) float64 {
	allowed := slices.Clone(a)
	for i := range allowed {
		allowed[i] *= 1 + share
	}
	if Above(allowed, b) <= 0 {
		return 1
	}
	return RankP(allowed, b)
}
