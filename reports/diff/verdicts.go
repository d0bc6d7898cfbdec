package diff

import (
	"math"
	"slices"

	"synclab/reports/comparison"
	"synclab/reports/estimate"
)

// judge gives every row its verdict, after all tests.
func (d *Diff) judge() {
	var tested []*Delta
	for i := range d.Rows {
		r := &d.Rows[i]
		r.divide()
		switch {
		case r.Before == nil:
			r.Verdict = OnlyAfter
		case r.After == nil:
			r.Verdict = OnlyBefore
		case r.beyondStatistics():
		default:
			tested = append(tested, r)
		}
	}
	d.Tests, d.Least = len(tested), estimate.UsualScatter.Least(len(tested))
	families := [][]*Delta{tested}
	if d.Pairs != nil {
		primary := d.primary
		if primary == nil {
			primary = func(r *Delta) bool { return slices.Contains(comparison.Primary, comparison.FigureName(r.Figure)) }
		}
		families = [][]*Delta{
			slices.DeleteFunc(slices.Clone(tested), func(r *Delta) bool { return !primary(r) }), slices.DeleteFunc(slices.Clone(tested), primary),
		}
	}
	for i, family := range families {
		if needed := judgeFamily(family); i == 0 {
			d.RepetitionsNeeded = needed
		}
	}
}

// judgeFamily gives verdicts to rows whose p-values are adjusted for each other. It returns how many repetitions would
// suffice for all; 0: none had too few.
func judgeFamily(tested []*Delta) (needed int) {
	var p, beyond []float64
	for _, r := range tested {
		r.test()
		p = append(p, *r.P)
		if r.beyondP != nil {
			beyond = append(beyond, *r.beyondP)
		}
	}
	all, allBeyond := estimate.Adjust(p), estimate.Adjust(beyond)
	next := 0
	for i, r := range tested {
		r.Adjusted = &all[i]
		r.Verdict = r.verdict(estimate.Found(p, i, r.leastP(len(r.va), len(r.vb))))
		if r.Verdict == TooFew {
			needed = max(needed, estimate.RepetitionsNeeded(p, i, func(n int) float64 { return r.leastP(n, n) }))
		}
		if r.beyondP != nil {
			r.Beyond = r.Verdict == Slower && allBeyond[next] <= estimate.Level
			next++
		}
	}
	return needed
}

// leastP is the smallest p-value that so many repetitions can have.
func (r *Delta) leastP(before, after int) float64 {
	if r.design == estimate.Paired {
		if min(before, after) < estimate.LeastPairs {
			return 1
		}
		return 0
	}
	return estimate.LeastP(before, after)
}

// divide sets the ratio and, with enough repetitions, its interval. Two runs are never paired, and have their scatter.
func (r *Delta) divide() {
	ratio, ok := estimate.Compare(r.Before, r.After, r.design)
	if !ok {
		return
	}
	if r.design == estimate.Paired && ratio.P != nil {
		p := estimate.PairedP(r.Before, r.After, 0, r.leastSpread())
		ratio.P = &p
		ratio.BoundFew(r.Before, r.After, r.leastSpread())
	} else if !r.steady() && r.design == estimate.Unpaired {
		r.scatter().Widen(&ratio)
	}
	r.Ratio, r.Low, r.High, r.P, r.ratio = &ratio.Value, ratio.Low, ratio.High, ratio.P, &ratio
}

// scatter is that of runs in this figure.
func (r *Delta) scatter() estimate.Scatter {
	if r.Scatter != nil {
		return *r.Scatter
	}
	return estimate.UsualScatter
}

// leastSpread is the least scatter of the repetitions that is believed.
func (r *Delta) leastSpread() float64 {
	if r.of.Counted {
		return 0
	}
	return estimate.LeastSpread
}

// steady reports whether runs have no scatter besides that of their repetitions: they count what the code decides.
func (r *Delta) steady() bool { return r.of.Counted && constant(r.va) && constant(r.vb) }

// beyondStatistics judges rows that need no test: counts that are equal in all repetitions, events that must never
// happen, and subjects that always finish in one run and never in the other.
func (r *Delta) beyondStatistics() bool {
	a, b := r.Before, r.After
	switch {
	case r.of.Never && zero(a) && !zero(b):
		r.Verdict, r.Beyond = Slower, r.Threshold != nil
	case r.of.Never && zero(a) && zero(b):
		r.Verdict = Same
	case r.steady():
		r.Verdict = Same
		if b.Value > a.Value {
			r.Verdict, r.Beyond = Slower, r.Threshold != nil && b.Value > a.Value*(1+*r.Threshold)
		} else if b.Value < a.Value {
			r.Verdict = Faster
		}
	case r.endlessB && !a.Stopped && b.Value > a.Value:
		r.Verdict, r.Beyond = Slower, r.Threshold != nil && b.Value > a.Value*(1+*r.Threshold)
		return true // a bound is not exact
	case r.endlessA && !b.Stopped && a.Value > b.Value:
		r.Verdict = Faster
		return true
	case a.AtLeast && b.AtLeast:
		r.Verdict = Unclear
		return true
	default:
		return false
	}
	r.Exact, r.P = true, nil
	return true
}

func constant(values []float64) bool {
	return !slices.ContainsFunc(values, func(v float64) bool { return v != values[0] })
}

// test computes the p-values of a difference, and of a difference beyond the threshold.
func (r *Delta) test() {
	if r.P == nil { // no ratio, or bounds: values can still be compared
		p := estimate.RankP(r.va, r.vb)
		if r.design == estimate.Paired && !r.Before.Stopped && !r.After.Stopped {
			p = min(1, 2*min(p, estimate.ChangedP(r.Before, r.After, r.leastSpread())))
		}
		r.P = &p
	}
	if r.design == estimate.Paired {
		if r.Threshold != nil && r.ratio != nil {
			p := estimate.BeyondPairedP(r.Before, r.After, *r.Threshold, r.leastSpread())
			r.beyondP = &p
		}
		return
	}
	if r.ratio != nil && r.ratio.Low != nil { // the repetitions may be of one mind where two runs are not
		p := max(*r.P, r.scatter().P(*r.ratio, 1))
		r.P = &p
	}
	if r.Threshold != nil {
		p := estimate.BeyondP(r.va, r.vb, *r.Threshold)
		if r.ratio != nil && r.ratio.Low != nil {
			p = max(p, r.scatter().P(*r.ratio, 1+*r.Threshold))
		}
		r.beyondP = &p
	}
}

// verdict returns the verdict of a tested row. possible: the repetitions suffice to show a difference.
func (r *Delta) verdict(possible bool) Verdict {
	direction := estimate.Above(r.va, r.vb)
	switch up := r.After.Value - r.Before.Value; {
	case *r.Adjusted <= estimate.Level && direction > 0 && up >= 0 && !r.Before.Stopped: // the stopped subject may have been as slow
		return Slower
	case *r.Adjusted <= estimate.Level && direction < 0 && up <= 0 && !r.After.Stopped:
		return Faster
	case constant(append(slices.Clone(r.va), r.vb...)) && len(r.va) > 1 && len(r.vb) > 1:
		return Same
	case r.Low != nil && r.Threshold != nil && math.Max(*r.High, 1 / *r.Low) <= 1+*r.Threshold:
		return Same
	case !possible:
		return TooFew
	default:
		return Unclear
	}
}
