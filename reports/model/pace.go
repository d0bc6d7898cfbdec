package model

import (
	"fmt"
	"math"

	"synclab/bench"
)

// Today is how the machine's pace when a model is used differs from that of its calibration.
type Today struct {
	// Ratio is what the same work takes now over what it took then: times are multiplied by it.
	Ratio float64 `json:"ratio"`
	// Apart is the standard deviation, on logarithms, by which pieces of work differ in that.
	Apart float64 `json:"apart"`
}

// leastPace are differences that two paces of one machine at rest have.
const leastPace = 0.03

// compare two paces, piece by piece. ok is false when they have nothing in common.
func comparePaces(then, now bench.Pace) (t Today, ok bool) {
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
	if math.Abs(mean) < leastPace { // nothing that two paces a minute apart do not show
		mean = 0
	}
	return Today{Ratio: math.Exp(mean), Apart: math.Sqrt(squares)}, true
}

// At takes the machine's pace now: all times are multiplied by how much longer the same work takes than it did when the
// calibration was made, and intervals widen by how much pieces of work differ in that. It returns what is to be said of it; a
// model without a pace of its own stays as it is.
func (m *Model) At(now bench.Pace) (remark string) {
	if m.Pace == nil {
		return "the calibration kept no pace of the machine: its times are taken as they are"
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
		return fmt.Sprintf("the machine is as fast as when it was calibrated, to within %.0f %%", 100*max(leastPace, t.Apart))
	}
	how := "slower"
	if t.Ratio < 1 {
		how = "faster"
	}
	return fmt.Sprintf("the machine is %s than when it was calibrated: the same work takes %.2f times as long, and so do all times here (intervals are wider for it)", how, t.Ratio)
}

// timed says that a quantity is a time: it follows the machine's pace.
func (q Quantity) timed() bool { return !q.counted() && q != PeakRSS && q != ChildPeakRSS }

// paced is what a value of a quantity is at today's pace, and the variance that this adds.
func (s *Subject) paced(q Quantity, value float64) (float64, float64) {
	if s.today == nil || !q.timed() {
		return value, 0
	}
	return value * s.today.Ratio, s.today.Apart * s.today.Apart
}
