package estimate

import (
	"math"

	"gonum.org/v1/gonum/stat/combin"
	"gonum.org/v1/gonum/stat/distuv"
)

// Step is how much a level of a series is above the one before.
type Step struct {
	Size, P   float64
	deviation float64 // standard error of the size
	free      int     // degrees of freedom
}

// Interval is the 95 % interval of the size.
func (s Step) Interval() (low, high float64) {
	half := s.deviation * distuv.StudentsT{Sigma: 1, Nu: float64(s.free)}.Quantile(1-tail)
	return s.Size - half, s.Size + half
}

// StepOf compares a level, by its index, with the one before it: Student's t with the variance within all levels. wider is how
// much larger the variance of its values is. ok is false with fewer than three degrees of freedom, or if the two are equal.
//
// Values that do not vary within levels have no t. Their p-value is the chance of this order of the values of both levels.
func StepOf(levels [][]float64, at int, wider float64) (s Step, ok bool) {
	var squares float64
	free := 0
	var means []float64
	for _, level := range levels {
		mean := 0.0
		for _, v := range level {
			mean += v / float64(len(level))
		}
		for _, v := range level {
			squares += (v - mean) * (v - mean)
		}
		free += len(level) - 1
		means = append(means, mean)
	}
	size := means[at] - means[at-1]
	if free < 3 || size == 0 || math.IsNaN(squares) || math.IsInf(squares, 0) {
		return Step{}, false
	}
	before, after := float64(len(levels[at-1])), float64(len(levels[at]))
	s = Step{Size: size, deviation: math.Sqrt(squares / float64(free) * (wider/after + 1/before)), free: free}
	s.P = 2 * distuv.StudentsT{Sigma: 1, Nu: float64(free)}.Survival(math.Abs(size)/s.deviation)
	if s.deviation < math.Abs(size)*1e-12 { // of rounding
		s.P, s.deviation = 1/combin.GeneralizedBinomial(before+after, after), 0
	}
	return s, true
}
