package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat/distuv"
)

// Scatter is how much runs of the same program differ besides what their repetitions show: other places in memory,
// other neighbours on the machine. It has a part in every comparison of two runs that were not measured in turn.
type Scatter struct {
	// Share is the standard deviation of the logarithm of a figure's value in a run.
	Share float64 `json:"share"`
	// Runs that it was computed from; 0: UsualScatter.
	Runs int `json:"runs,omitempty"`
}

// UsualScatter is assumed where no earlier runs are known: on a quiet machine, runs differ by some 2 %.
var UsualScatter = Scatter{Share: 0.02}

// quantile returns how many standard deviations p of all values are below.
func (s Scatter) quantile(p float64) float64 {
	if s.Runs > 1 {
		return distuv.StudentsT{Sigma: 1, Nu: float64(s.Runs - 1)}.Quantile(p)
	}
	return distuv.UnitNormal.Quantile(p)
}

// reach is half the width of the 95 % interval of the logarithm of the ratio of two runs, by their scatter alone.
func (s Scatter) reach() float64 { return s.quantile(1-tail) * math.Sqrt2 * s.Share }

// Least returns the smallest increase, as a share, that may mean anything where one of so many figures would be enough.
func (s Scatter) Least(figures int) float64 {
	return math.Expm1(s.quantile(1-Level/2/float64(max(1, figures))) * math.Sqrt2 * s.Share)
}

// Widen adds the scatter of two runs to the interval of their ratio.
func (s Scatter) Widen(r *Ratio) {
	if r.Low == nil || r.Value <= 0 || *r.Low <= 0 {
		return
	}
	low := r.Value * math.Exp(-math.Hypot(math.Log(r.Value / *r.Low), s.reach()))
	high := r.Value * math.Exp(math.Hypot(math.Log(*r.High/r.Value), s.reach()))
	r.Low, r.High = &low, &high
}

// P returns the p-value for a ratio, with its widened interval, being above or below times.
func (s Scatter) P(r Ratio, times float64) float64 {
	end := r.Low
	if r.Value < times {
		end = r.High
	}
	if end == nil || *end <= 0 {
		return 1
	}
	half := math.Abs(math.Log(r.Value / *end)) // 1 - tail of all values are within
	if half == 0 {
		return 1
	}
	z := math.Abs(math.Log(r.Value/times)) / half * s.quantile(1-tail)
	if s.Runs > 1 {
		return 2 * distuv.StudentsT{Sigma: 1, Nu: float64(s.Runs - 1)}.Survival(z)
	}
	return 2 * distuv.UnitNormal.Survival(z)
}
