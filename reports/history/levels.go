package history

import (
	"math"
	"slices"

	"synclab/reports/estimate"
)

// Level is a part of a trend without a change.
type Level struct {
	From int `json:"from"` // index in Trend.Values
	// Estimate is the median of the points, with the interval of their median.
	estimate.Estimate
	// Ratio is to the level before, with its 95 % interval. P is the p-value of the change, Adjusted for all trends; both
	// are absent if the change is exact.
	Ratio    *float64 `json:"ratio,omitempty"`
	Low      *float64 `json:"ratio_ci_low,omitempty"`
	High     *float64 `json:"ratio_ci_high,omitempty"`
	P        *float64 `json:"p,omitempty"`
	Adjusted *float64 `json:"p_adjusted,omitempty"`
	Exact    bool     `json:"exact,omitempty"`
}

// level is the level of one kind of test.
const level = estimate.Level / 2

// series are the values of a trend up to some point, as tests see them: logarithms, if all are positive.
type series struct {
	values, logs []float64
	positive     bool
	repetitions  []int
}

// start is where a level starts, and what shows it.
type start struct {
	at          int
	p, adjusted float64
	exact       bool
	step        *estimate.Step // of the newest points
}

// judge divides all trends into levels, and marks those with a newly worse one.
func (h *History) judge() {
	all, before := make([]series, len(h.Trends)), make([]series, len(h.Trends))
	newest := len(h.Points) - 1
	for i, t := range h.Trends {
		all[i] = seriesOf(t.Values)
		before[i] = all[i]
		if t.Values[len(t.Values)-1].Point == newest {
			before[i] = seriesOf(t.Values[:len(t.Values)-1])
		}
	}
	starts, tests := h.starts(all)
	known, _ := h.starts(before)
	h.Tests = tests
	for i := range h.Trends {
		t := &h.Trends[i]
		t.Levels = t.levels(starts[i])
		if t.Values[len(t.Values)-1].Point != newest || !t.beyond(t.Levels) {
			continue
		}
		last, own := t.Levels[len(t.Levels)-1].From, t.levels(known[i])
		// One more run may move the start of a known level by one.
		alike := len(own) > 0 && t.beyond(own) && last != len(t.Values)-1 && last-own[len(own)-1].From <= 1
		t.Worse = !alike
	}
}

func seriesOf(values []Value) series {
	s := series{positive: true}
	for _, v := range values {
		s.values = append(s.values, v.Value)
		s.logs = append(s.logs, math.Log(v.Value))
		s.positive = s.positive && v.Value > 0
		s.repetitions = append(s.repetitions, len(v.ByRepetition))
	}
	if !s.positive {
		s.logs = s.values
	}
	return s
}

// starts returns the starts of the levels of each series but the first, and the number of tests.
func (h *History) starts(all []series) (out [][]start, tests int) {
	out = make([][]start, len(all))
	var p []float64
	var roots, of []int
	for i, s := range all {
		at, own := estimate.Split(s.logs, len(all))
		if at == 0 {
			continue // too few, or all the same
		}
		p, roots, of = append(p, own), append(roots, at), append(of, i)
	}
	for k, adjusted := range estimate.Adjust(p) {
		if adjusted > level {
			continue
		}
		s := all[of[k]]
		found := append(splits(s.logs[:roots[k]], 0), start{at: roots[k], p: p[k], adjusted: adjusted})
		out[of[k]] = append(found, splits(s.logs[roots[k]:], roots[k])...)
	}
	return out, len(p) + h.newest(all, out)
}

// splits divides a part of a series that has at least one change further. Its tests are of this series only.
func splits(logs []float64, offset int) []start {
	at, p := estimate.Split(logs, 1)
	if at == 0 || p > level {
		return nil
	}
	found := append(splits(logs[:at], offset), start{at: offset + at, p: p, adjusted: p})
	return append(found, splits(logs[at:], offset+at)...)
}

// mostNew is the most points of a level that newest looks for. Splits find longer ones.
const mostNew = 8

// newest adds levels that only the last values show. It returns the number of tests.
func (h *History) newest(all []series, starts [][]start) int {
	var p []float64
	var found []start
	var of []int
	for i, s := range all {
		last, from := len(s.values)-1, 0
		if n := len(starts[i]); n > 0 {
			from = starts[i][n-1].at
		}
		if last > from && h.Trends[i].exact(s.values[from:last], s.values[last]) {
			starts[i] = append(starts[i], start{at: last, exact: true})
		} else if best, ok := s.newest(starts[i], from); ok {
			p, found, of = append(p, best.p), append(found, best), append(of, i)
		}
	}
	for k, adjusted := range estimate.Adjust(p) {
		if adjusted <= level {
			found[k].adjusted = adjusted
			starts[of[k]] = append(starts[of[k]], found[k])
		}
	}
	return len(p)
}

// newest returns the likeliest start of a level of the last points, within the level that begins at from. Half of the
// probability of a wrong one is for the last point alone, since it is the one to be warned of.
func (s series) newest(starts []start, from int) (best start, ok bool) {
	if !s.positive {
		return best, false
	}
	var levels [][]float64
	at := 0
	for _, next := range starts {
		levels, at = append(levels, s.values[at:next.at]), next.at
	}
	first, last := max(from+estimate.LeastSegment, len(s.values)-mostNew), len(s.values)-1
	for at := first; at <= last; at++ {
		step, possible := estimate.StepOf(append(levels[:len(levels):len(levels)], s.values[from:at]), s.values[at:], s.wider(at))
		if !possible {
			continue
		}
		p := step.P
		switch {
		case first == last:
		case at == last:
			p *= 2
		default:
			p *= 2 * float64(last-first)
		}
		if p = min(1, p); !ok || p < best.p {
			best, ok = start{at: at, p: p, step: &step}, true
		}
	}
	return best, ok
}

// exact reports whether a value differs from those of a level without a test: counts that never vary, and events that
// must never happen.
func (t *Trend) exact(values []float64, next float64) bool {
	same := !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
	return same && next != values[0] && (t.of.Counted && len(values) > 1 || t.of.Never && values[0] == 0)
}

// wider is how much larger the variance of the values from an index on is than that before: they may have fewer
// repetitions.
func (s series) wider(at int) float64 {
	usual, last := slices.Sorted(slices.Values(s.repetitions[:at])), slices.Min(s.repetitions[at:])
	if last == 0 {
		return 1 // unknown
	}
	return max(1, float64(usual[len(usual)/2])/float64(last))
}

// levels describes the levels that begin at starts.
func (t *Trend) levels(starts []start) []Level {
	var out []Level
	end := len(t.Values)
	from := append([]start{{}}, starts...)
	for i, s := range from {
		to := end
		if i+1 < len(from) {
			to = from[i+1].at
		}
		var values []float64
		for _, v := range t.Values[s.at:to] {
			values = append(values, v.Value)
		}
		l := Level{From: s.at, Estimate: *estimate.Of(t.Figure, t.Unit, estimate.Single(values...), 50), Exact: s.exact}
		if i > 0 {
			l.compare(out[i-1], s)
		}
		out = append(out, l)
	}
	return out
}

func (l *Level) compare(before Level, s start) {
	if !s.exact {
		l.P, l.Adjusted = &s.p, &s.adjusted
	}
	if s.step != nil {
		l.Ratio, l.Low, l.High = &s.step.Ratio, &s.step.Low, &s.step.High
		return
	}
	if r, ok := estimate.Compare(&before.Estimate, &l.Estimate, estimate.Unpaired); ok {
		l.Ratio, l.Low, l.High = &r.Value, r.Low, r.High
	}
}

// beyond reports whether the last of several levels exceeds the one before by more than the threshold.
func (t *Trend) beyond(levels []Level) bool {
	if len(levels) < 2 || t.Threshold == nil {
		return false
	}
	last, before := levels[len(levels)-1], levels[len(levels)-2]
	if last.Ratio == nil {
		return last.Value > before.Value
	}
	return *last.Ratio > 1+*t.Threshold
}

// Worse returns the trends whose newest point shows a worse level.
func (h *History) Worse() []Trend {
	return slices.DeleteFunc(slices.Clone(h.Trends), func(t Trend) bool { return !t.Worse })
}
