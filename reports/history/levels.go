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

// series are the values of a trend up to some point, as tests see them: logarithms, if all are positive.
type series struct {
	values      []float64
	logs        bool
	repetitions []int
}

// start is where a level starts, and what shows it.
type start struct {
	at          int
	p, adjusted float64
	exact       bool
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
		t.Levels = t.levels(all[i], starts[i])
		if t.Values[len(t.Values)-1].Point != newest || !t.beyond(t.Levels) {
			continue
		}
		last, own := t.Levels[len(t.Levels)-1].From, t.levels(before[i], known[i])
		// One more run may move the start of a known level by one.
		alike := len(own) > 0 && t.beyond(own) && last != len(t.Values)-1 && last-own[len(own)-1].From <= 1
		t.Worse = !alike
	}
}

func seriesOf(values []Value) series {
	s := series{logs: !slices.ContainsFunc(values, func(v Value) bool { return v.Value <= 0 })}
	for _, v := range values {
		s.repetitions = append(s.repetitions, len(v.ByRepetition))
		if s.logs {
			s.values = append(s.values, math.Log(v.Value))
		} else {
			s.values = append(s.values, v.Value)
		}
	}
	return s
}

// starts returns the starts of the levels of each series but the first, and the number of tests of a round. A round tests the
// likeliest next start of each series. The last round shows none.
func (h *History) starts(all []series) (out [][]start, tests int) {
	out = make([][]start, len(all))
	exact := make([]bool, len(all))
	for i := range all {
		out[i], exact[i] = h.Trends[i].exact(len(all[i].values))
	}
	for more := true; more; {
		more = false
		var p []float64
		var found []start
		var of []int
		for i, s := range all {
			if best, ok := s.next(out[i]); ok && !exact[i] {
				p, found, of = append(p, best.p), append(found, best), append(of, i)
			}
		}
		tests = max(tests, len(p))
		for k, adjusted := range estimate.Adjust(p) {
			if adjusted > estimate.Level {
				continue
			}
			more = true
			found[k].adjusted = adjusted
			starts := append(out[of[k]], found[k])
			slices.SortFunc(starts, func(a, b start) int { return a.at - b.at })
			out[of[k]] = starts
		}
	}
	return out, tests
}

// leastSegment is the fewest values on each side of a start. The newest value may be alone.
const leastSegment = 2

// next returns the likeliest further start of a level. Half of the probability of a wrong one is for the newest value alone,
// since it is the one to be warned of. The other starts share the other half.
func (s series) next(starts []start) (best start, ok bool) {
	levels := s.levels(starts)
	places := 0 // besides the newest value
	for _, level := range levels {
		places += max(0, len(level)-2*leastSegment+1)
	}
	from := 0
	for i, level := range levels {
		split := slices.Insert(slices.Clone(levels), i, nil)
		for n := leastSegment; n < len(level); n++ {
			newest := from+n == len(s.values)-1
			if len(level)-n < leastSegment && !(newest && s.logs) { // with zeros, a single value is no level
				continue
			}
			split[i], split[i+1] = level[:n], level[n:]
			step, possible := estimate.StepOf(split, i+1, s.wider(from, from+n, from+len(level)))
			p := 2 * step.P
			if !newest {
				p *= float64(places)
			}
			if p = min(1, p); possible && (!ok || p < best.p) {
				best, ok = start{at: from + n, p: p}, true
			}
		}
		from += len(level)
	}
	return best, ok
}

// levels divides the values.
func (s series) levels(starts []start) [][]float64 {
	var out [][]float64
	at := 0
	for _, next := range starts {
		out, at = append(out, s.values[at:next.at]), next.at
	}
	return append(out, s.values[at:])
}

// exact returns the starts of levels that need no test, and whether all values belong to such levels: counts that do not vary
// within a level, and events that must never happen.
func (t *Trend) exact(points int) (out []start, all bool) {
	from := 0
	for i, v := range t.Values[:points] {
		before := t.Values[from].Value
		if v.Value == before {
			continue
		}
		if !(t.of.Counted && i-from > 1 || t.of.Never && before == 0) {
			return nil, false
		}
		out, from = append(out, start{at: i, exact: true}), i
	}
	return out, true
}

// wider is how much larger the variance of the values at and to is than that of the values before, which begin at from: they
// may have fewer repetitions.
func (s series) wider(from, at, to int) float64 {
	usual, last := slices.Sorted(slices.Values(s.repetitions[from:at])), slices.Min(s.repetitions[at:to])
	if last == 0 {
		return 1 // unknown
	}
	return max(1, float64(usual[len(usual)/2])/float64(last))
}

// levels describes the levels that begin at starts.
func (t *Trend) levels(s series, starts []start) []Level {
	var out []Level
	from := 0
	parts := s.levels(starts)
	for i, part := range parts {
		to := from + len(part)
		var values []float64
		for _, v := range t.Values[from:to] {
			values = append(values, v.Value)
		}
		l := Level{From: from, Estimate: *estimate.Of(t.Figure, t.Unit, estimate.Single(values...), 50)}
		if i > 0 {
			shows := starts[i-1]
			if l.Exact = shows.exact; !l.Exact {
				l.P, l.Adjusted = &shows.p, &shows.adjusted
			}
			if step, ok := estimate.StepOf(parts, i, s.wider(out[i-1].From, from, to)); ok && s.logs {
				low, high := step.Interval()
				ratio, low, high := math.Exp(step.Size), math.Exp(low), math.Exp(high)
				l.Ratio, l.Low, l.High = &ratio, &low, &high
			}
		}
		out, from = append(out, l), to
	}
	return out
}

// beyond reports whether the last of several levels exceeds the one before by more than the threshold.
func (t *Trend) beyond(levels []Level) bool {
	if len(levels) < 2 || t.Threshold == nil {
		return false
	}
	last, before := levels[len(levels)-1], levels[len(levels)-2]
	if last.Ratio == nil {
		return last.Value > before.Value*(1+*t.Threshold)
	}
	return *last.Ratio > 1+*t.Threshold
}

// Worse returns the trends whose newest point shows a worse level.
func (h *History) Worse() []Trend {
	return slices.DeleteFunc(slices.Clone(h.Trends), func(t Trend) bool { return !t.Worse })
}
