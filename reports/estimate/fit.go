package estimate

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
)

// Point has the values measured at one x.
type Point struct {
	X float64
	Y Sample
}

// Fit is a straight line through the medians of points, by least squares. The interval of its slope comes from the
// slopes of separate lines, one for each repetition.
type Fit struct {
	N           int     `json:"points"` // different x
	Repetitions int     `json:"repetitions"`
	Slope       float64 `json:"slope"`
	Intercept   float64 `json:"intercept"`
	// SlopeLow and SlopeHigh bound the slope's 95 % interval. Absent with fewer than Enough repetitions of every point.
	// Then the range is that of the repetitions' slopes.
	SlopeLow       *float64 `json:"slope_ci_low,omitempty"`
	SlopeHigh      *float64 `json:"slope_ci_high,omitempty"`
	SlopeRangeLow  *float64 `json:"slope_range_low,omitempty"`
	SlopeRangeHigh *float64 `json:"slope_range_high,omitempty"`
}

// At returns the value of the line at x.
func (f Fit) At(x float64) float64 { return f.Intercept + f.Slope*x }

// HoldsZero reports whether the interval of the slope contains 0, so that no slope is shown.
func (f Fit) HoldsZero() bool { return f.SlopeLow != nil && *f.SlopeLow <= 0 && *f.SlopeHigh >= 0 }

// FitLine fits y = Intercept + Slope·x. ok is false if fewer than two different x have values.
func FitLine(points []Point) (Fit, bool) {
	points = merged(points)
	var x, y []float64
	for _, p := range points {
		x, y = append(x, p.X), append(y, p.Y.Median())
	}
	if len(x) < 2 {
		return Fit{}, false
	}
	f := Fit{N: len(x)}
	f.Intercept, f.Slope = stat.LinearRegression(x, y, nil, false)
	var slopes []float64
	for _, own := range repetitionsOf(points) {
		_, slope := stat.LinearRegression(x, own, nil, false)
		slopes = append(slopes, slope)
	}
	f.Repetitions = len(slopes)
	e := Estimate{Value: f.Slope, ByRepetition: numbered(slopes)}
	e.bound(MedianInterval(slopes))
	f.SlopeLow, f.SlopeHigh, f.SlopeRangeLow, f.SlopeRangeHigh = e.Low, e.High, e.RangeLow, e.RangeHigh
	return f, true
}

func numbered(values []float64) []Value {
	var out []Value
	for i, v := range values {
		out = append(out, Value{Repetition{Rep: i + 1}, v})
	}
	return out
}

// merged returns each x once, sorted, without those that have no value.
func merged(points []Point) []Point {
	var out []Point
	for _, p := range points {
		if len(p.Y.Repetitions()) == 0 {
			continue
		}
		i := slices.IndexFunc(out, func(o Point) bool { return o.X == p.X })
		if i < 0 {
			out = append(out, Point{p.X, Sample{}})
			i = len(out) - 1
		}
		out[i].Y.Add(p.Y)
	}
	slices.SortFunc(out, func(a, b Point) int { return int(math.Copysign(1, a.X-b.X)) })
	return out
}

// repetitionsOf returns the medians of each repetition at all points. Points of several runs share no repetition. Then
// the k-th repetitions of all points are combined, since any other matching is equally independent.
func repetitionsOf(points []Point) [][]float64 {
	var out [][]float64
	for _, of := range points[0].Y.Repetitions() {
		if own, ok := repetitionOf(points, of); ok {
			out = append(out, own)
		}
	}
	if out != nil {
		return out
	}
	least := math.MaxInt
	for _, p := range points {
		least = min(least, len(p.Y.Repetitions()))
	}
	for i := range least {
		var own []float64
		for _, p := range points {
			own = append(own, Median(p.Y[p.Y.Repetitions()[i]]))
		}
		out = append(out, own)
	}
	return out
}

func repetitionOf(points []Point, of Repetition) (own []float64, ok bool) {
	for _, p := range points {
		values := p.Y[of]
		if len(values) == 0 {
			return nil, false
		}
		own = append(own, Median(values))
	}
	return own, true
}

// Power is a power law c·x^Slope through the medians of points; its Intercept is ln c.
type Power struct {
	Fit
	// Local are the exponents between neighbouring x. They are all equal only if a power law fits.
	Local []Local `json:"local,omitempty"`
	// Bends: no power law fits. A median is off the fit by more than MisfitShare, and all repetitions there are off to
	// the same side. Misfit is the largest such share, signed, and MisfitAt is its x.
	Bends    bool    `json:"bends,omitempty"`
	Misfit   float64 `json:"misfit,omitempty"`
	MisfitAt float64 `json:"misfit_at,omitempty"`
}

// Local is the exponent between two neighbouring x, with its 95 % interval, or the range of the repetitions.
type Local struct {
	From      float64  `json:"from"`
	To        float64  `json:"to"`
	Exponent  float64  `json:"exponent"`
	Low       *float64 `json:"ci_low,omitempty"`
	High      *float64 `json:"ci_high,omitempty"`
	RangeLow  *float64 `json:"range_low,omitempty"`
	RangeHigh *float64 `json:"range_high,omitempty"`
}

// MisfitShare is the maximum relative distance of a median from a power law that fits.
const MisfitShare = 0.10

// At returns the value of the power law at x.
func (p Power) At(x float64) float64 { return math.Exp(p.Fit.At(math.Log(x))) }

// FitPower fits a power law on logarithms. It omits values that are not positive.
func FitPower(points []Point) (Power, bool) {
	var logs []Point
	var xs []float64
	for _, p := range merged(points) {
		if own := logarithms(p.Y); p.X > 0 && len(own) > 0 {
			logs, xs = append(logs, Point{math.Log(p.X), own}), append(xs, p.X)
		}
	}
	fit, ok := FitLine(logs)
	if !ok {
		return Power{}, false
	}
	law := Power{Fit: fit}
	for i := range logs[1:] {
		f, _ := FitLine(logs[i : i+2])
		law.Local = append(law.Local, Local{xs[i], xs[i+1], f.Slope, f.SlopeLow, f.SlopeHigh, f.SlopeRangeLow, f.SlopeRangeHigh})
	}
	for i, p := range logs {
		own := values(p.Y.ByRepetition(50))
		at := fit.At(p.X)
		off := math.Exp(p.Y.Median()-at) - 1
		oneSided := len(own) > 1 && (slices.Min(own) > at || slices.Max(own) < at)
		if oneSided && math.Abs(off) > max(MisfitShare, math.Abs(law.Misfit)) {
			law.Bends, law.Misfit, law.MisfitAt = true, off, xs[i]
		}
	}
	return law, true
}

// logarithms returns the logarithms of the repetitions' medians.
func logarithms(s Sample) Sample {
	out := Sample{}
	for _, v := range s.ByRepetition(50) {
		if v.Value > 0 {
			out[v.Repetition] = []float64{math.Log(v.Value)}
		}
	}
	return out
}
