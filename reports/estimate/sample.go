package estimate

import (
	"cmp"
	"math"
	"slices"

	"github.com/montanaflynn/stats"
)

// Repetition identifies a repetition by its run and its number in that run.
type Repetition struct {
	Run int `json:"run"`
	Rep int `json:"rep"`
}

// Compare orders repetitions by run and number.
func (r Repetition) Compare(o Repetition) int { return cmp.Or(r.Run-o.Run, r.Rep-o.Rep) }

// Sample has the values of one quantity, by repetition.
type Sample map[Repetition][]float64

// Single returns a sample with one value per repetition, in order.
func Single(values ...float64) Sample {
	s := Sample{}
	for i, v := range values {
		s[Repetition{Rep: i + 1}] = []float64{v}
	}
	return s
}

// Repetitions returns the repetitions that have values, in order.
func (s Sample) Repetitions() []Repetition {
	out := make([]Repetition, 0, len(s))
	for of, values := range s {
		if len(values) > 0 {
			out = append(out, of)
		}
	}
	slices.SortFunc(out, Repetition.Compare)
	return out
}

// Pooled returns all values, repetition after repetition: for plots of raw values, not for statistics.
func (s Sample) Pooled() []float64 {
	var out []float64
	for _, of := range s.Repetitions() {
		out = append(out, s[of]...)
	}
	return out
}

// Add adds the values of another sample.
func (s Sample) Add(other Sample) {
	for of, values := range other {
		s[of] = append(s[of], values...)
	}
}

// Value is the value of one repetition.
type Value struct {
	Repetition
	Value float64 `json:"value"`
}

// ByRepetition reduces each repetition to a quantile of its values.
func (s Sample) ByRepetition(percent float64) []Value {
	var out []Value
	for _, of := range s.Repetitions() {
		out = append(out, Value{of, Percentile(s[of], percent)})
	}
	return out
}

// Quantile returns the median of the repetitions' quantiles. If no repetition has more than one value, it returns the
// quantile of these values. NaN: the sample is empty.
func (s Sample) Quantile(percent float64) float64 {
	if !s.several() {
		return Percentile(s.Pooled(), percent)
	}
	return Median(values(s.ByRepetition(percent)))
}

// several reports whether a repetition has more than one value.
func (s Sample) several() bool {
	for _, values := range s {
		if len(values) > 1 {
			return true
		}
	}
	return false
}

// Median returns the median of the repetitions' medians. NaN: the sample is empty.
func (s Sample) Median() float64 { return s.Quantile(50) }

func values(of []Value) []float64 {
	out := make([]float64, len(of))
	for i, v := range of {
		out[i] = v.Value
	}
	return out
}

// Percentile interpolates between the closest ranks (Hyndman and Fan's type 7). NaN: there are no values.
func Percentile(values []float64, percent float64) float64 {
	p, err := stats.Percentile(values, percent)
	if err != nil {
		return math.NaN()
	}
	return p
}

// Median returns the median of values.
func Median(values []float64) float64 { return Percentile(values, 50) }
