package model

import (
	"fmt"
	"math"

	"synclab/bench/raw"
)

// Today compares the machine's pace at use with its pace at the calibration.
type Today struct {
	// Ratio is the duration of the same work now over its duration at the calibration. Predicted times are multiplied
	// by it.
	Ratio float64 `json:"ratio"`
	// Apart is the standard deviation of that ratio between kinds of work, on logarithms.
	Apart float64 `json:"apart"`
}

// leastPace is the difference that two measurements of the pace have on one idle machine.
const leastPace = 0.03

// comparePaces compares two paces by kind of work. ok is false if they have no kind of work in common.
func comparePaces(then, now raw.Pace) (t Today, ok bool) {
	var logs []float64
	add := func(a, b float64) {
		if a > 0 && b > 0 {
			logs = append(logs, math.Log(b/a))
		}
	}
	add(then.CPU, now.CPU)
	add(then.Memory, now.Memory)
	if then.Tool == now.Tool {
		add(then.Restore, now.Restore)
	}
	if len(logs) == 0 {
		return t, false
	}
	mean, squares := 0.0, 0.0
	for _, l := range logs {
		mean += l / float64(len(logs))
	}
	for _, l := range logs {
		squares += (l - mean) * (l - mean) / float64(len(logs))
	}
	if math.Abs(mean) < leastPace { // no more than between two measurements a minute apart
		mean = 0
	}
	return Today{Ratio: math.Exp(mean), Apart: math.Sqrt(squares)}, true
}

// At scales the model to the machine's current pace. It multiplies all times by the change of the pace, and widens
// intervals if kinds of work differ in that change. It returns a remark. A model without a pace stays as it is.
func (m *Model) At(now raw.Pace) (remark string) {
	if m.Pace == nil {
		return "the calibration did not record the pace of the machine: predicted times are not scaled"
	}
	t, ok := comparePaces(*m.Pace, now)
	if !ok {
		return ""
	}
	m.Today = &t
	for _, s := range m.Subjects {
		s.today = &t
	}
	if t.Ratio == 1 {
		return fmt.Sprintf("the machine is as fast as during the calibration, within %.0f %%", 100*max(leastPace, t.Apart))
	}
	how := "slower"
	if t.Ratio < 1 {
		how = "faster"
	}
	return fmt.Sprintf("the machine is %s than during the calibration: the same work takes %.2f times as long; all predicted times are scaled by this factor, and their intervals are wider", how, t.Ratio)
}

// timed reports whether a quantity is a time, which depends on the pace of the machine.
func (q Quantity) timed() bool { return !q.counted() && q != PeakRSS && q != ChildPeakRSS }

// paced returns a value scaled to the current pace, and the variance that the scaling adds.
func (s *Subject) paced(q Quantity, value float64) (float64, float64) {
	if s.today == nil || !q.timed() {
		return value, 0
	}
	return value * s.today.Ratio, s.today.Apart * s.today.Apart
}
