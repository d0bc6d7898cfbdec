package reports

import (
	"math"

	"github.com/montanaflynn/stats"
	"golang.org/x/perf/benchmath"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

// confidence of every interval in the reports.
const confidence = 0.95

// Distribution describes the values of one group, in the unit of its metric.
type Distribution struct {
	N      int     `json:"n"`
	Median float64 `json:"median"`
	// Low and High bound the median's 95 % confidence interval by order statistics: no assumption about the
	// distribution. Absent when there are too few values for one (fewer than 6).
	Low  *float64 `json:"ci_low,omitempty"`
	High *float64 `json:"ci_high,omitempty"`
	P90  float64  `json:"p90"`
	P99  float64  `json:"p99"`
	Min  float64  `json:"min"`
	Max  float64  `json:"max"`
}

// describe summarizes values. It must not be empty.
func describe(values []float64) Distribution {
	sample := benchmath.NewSample(values, &benchmath.DefaultThresholds)
	center := benchmath.AssumeNothing.Summary(sample, confidence)
	d := Distribution{
		N: len(values), Median: percentile(values, 50), P90: percentile(values, 90), P99: percentile(values, 99),
		Min: sample.Values[0], Max: sample.Values[len(sample.Values)-1],
	}
	if !math.IsInf(center.Lo, 0) && !math.IsInf(center.Hi, 0) {
		d.Low, d.High = &center.Lo, &center.Hi
	}
	return d
}

// spread is the wider half of the confidence interval as a share of the median; ok is false without an interval.
func (d Distribution) spread() (share float64, ok bool) {
	if d.Low == nil || d.Median == 0 {
		return 0, false
	}
	return max(d.Median-*d.Low, *d.High-d.Median) / d.Median, true
}

// percentile interpolates between the closest ranks (Hyndman & Fan type 7).
func percentile(values []float64, percent float64) float64 {
	p, err := stats.Percentile(values, percent)
	if err != nil {
		return math.NaN() // no values: the callers never ask
	}
	return p
}

func median(values []float64) float64 { return percentile(values, 50) }

// Fit is a straight line through points, by least squares.
type Fit struct {
	N         int     `json:"points"`
	Slope     float64 `json:"slope"`
	Intercept float64 `json:"intercept"`
	// SlopeLow and SlopeHigh bound the slope's 95 % confidence interval (Student's t). Absent below 3 points.
	SlopeLow  *float64 `json:"slope_ci_low,omitempty"`
	SlopeHigh *float64 `json:"slope_ci_high,omitempty"`
	R2        float64  `json:"r2"`
}

// fitLine fits y = Intercept + Slope·x. ok is false when fewer than two different x exist.
func fitLine(x, y []float64) (fit Fit, ok bool) {
	n := len(x)
	if n < 2 || n != len(y) {
		return Fit{}, false
	}
	var sxx float64
	mean := stat.Mean(x, nil)
	for _, v := range x {
		sxx += (v - mean) * (v - mean)
	}
	if sxx == 0 {
		return Fit{}, false
	}
	fit.N = n
	fit.Intercept, fit.Slope = stat.LinearRegression(x, y, nil, false)
	if fit.R2 = stat.RSquared(x, y, nil, fit.Intercept, fit.Slope); math.IsNaN(fit.R2) || math.IsInf(fit.R2, 0) {
		fit.R2 = 1 // every y is the same: a flat line explains all there is
	}
	if n < 3 {
		return fit, true
	}
	var residuals float64
	for i := range x {
		r := y[i] - fit.Intercept - fit.Slope*x[i]
		residuals += r * r
	}
	freedom := float64(n - 2)
	t := distuv.StudentsT{Sigma: 1, Nu: freedom}.Quantile(1 - (1-confidence)/2)
	half := t * math.Sqrt(residuals/freedom/sxx)
	low, high := fit.Slope-half, fit.Slope+half
	fit.SlopeLow, fit.SlopeHigh = &low, &high
	return fit, true
}

// fitPower fits y = c·x^Slope on logarithms. Intercept is ln c. Points that are not positive are left out.
func fitPower(x, y []float64) (Fit, bool) {
	var lx, ly []float64
	for i := range x {
		if x[i] > 0 && y[i] > 0 {
			lx, ly = append(lx, math.Log(x[i])), append(ly, math.Log(y[i]))
		}
	}
	return fitLine(lx, ly)
}

// powerAt is the fitted power law's value at x.
func (f Fit) powerAt(x float64) float64 { return math.Exp(f.Intercept + f.Slope*math.Log(x)) }

// holdsZero says that the slope is not told from none: its interval holds 0.
func (f Fit) holdsZero() bool { return f.SlopeLow != nil && *f.SlopeLow <= 0 && *f.SlopeHigh >= 0 }

// lineAt is the fitted line's value at x.
func (f Fit) lineAt(x float64) float64 { return f.Intercept + f.Slope*x }
