package model

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Whole syncs are predicted as the sum of their phases, if these are known. A phase that grows faster than the others
// is visible in its own numbers long before it is visible in the whole. Each phase also has a simpler formula than the
// sum.
const (
	// sumShare and sumError: the sum is used unless its score exceeds that of the whole's own fit by more than sumShare
	// (relative) plus sumError (absolute).
	sumShare, sumError = 0.3, 0.01
	// toldShare is the minimum share of a whole sync's points for which each phase is known.
	toldShare = 0.8
)

// byPhases replaces the fit of a whole sync with the sum of its phases' fits, unless its own fit is clearly better.
// whole has the points of its own fit.
func (s *Subject) byPhases(t *Term, whole *sample) {
	var terms []*Term
	var parts []*sample
	for _, q := range phases {
		term := s.term(q, t.Kind)
		if term == nil {
			continue
		}
		points := s.points(q, t.Kind)
		if float64(len(points)) < toldShare*float64(len(whole.y)) {
			return
		}
		terms, parts = append(terms, term), append(parts, newSample(points, s.sizes(points), term.Within, whole.ref))
		t.Parts = append(t.Parts, q)
	}
	if len(terms) < 2 {
		t.Parts = nil
		return
	}
	c := judgeSum(whole, parts, terms)
	if c.score > t.Score*(1+sumShare)+sumError {
		t.Parts = nil
		return
	}
	alone := Alternative{Form: t.Form, FormText: t.FormText, Score: t.Score, Weight: alternativeWeight(t.Score, c.score), Params: t.Params}
	t.Alternatives = nil
	if alone.Weight > leastWeight {
		t.Alternatives = []Alternative{alone}
	}
	t.Form, t.Params, t.Draws, t.Coefficients = Form{State: "sum"}, nil, nil, nil
	t.Score, t.LargestOut = c.score, c.beyond
	var names []string
	for _, q := range t.Parts {
		names = append(names, string(q))
	}
	t.FormText, t.Written = strings.Join(names, " + "), sumFormula(terms)
	errs := make([]float64, len(whole.y))
	for i := range errs {
		errs[i] = whole.error(i, sumAt(terms, whole.at[i].times(whole.ref)))
	}
	most := 0
	for _, term := range terms {
		most = max(most, term.Form.params())
	}
	t.scatter(whole, errs, most)
	t.Drift = t.driftOf(c)
}

// sizes returns the sizes of points, with predicted numbers of rules.
func (s *Subject) sizes(points []Point) []size {
	out := make([]size, len(points))
	for i, p := range points {
		out[i] = s.sized(p.size())
	}
	return out
}

// sumAt adds up the values of terms at a size that is not divided.
func sumAt(terms []*Term, v size) float64 {
	total := 0.0
	for _, t := range terms {
		total += t.Form.at(v.per(t.Largest.size()), t.Params)
	}
	return total
}

// judgeSum scores the sum of phases as judge scores a formula: it fits each phase again to the points of each fold.
func judgeSum(whole *sample, parts []*sample, terms []*Term) candidate {
	c := candidate{}
	c.scoreBy(whole, func(f fold) func(i int) float64 {
		params := make([][]float64, len(parts))
		for k, p := range parts {
			var fit []int
			for i := range p.y {
				if f.fits(p.at[i].s) {
					fit = append(fit, i)
				}
			}
			form := terms[k].Form
			if len(fit) <= form.params() && !(form.params() == 1 && len(fit) > 0) {
				return nil
			}
			params[k], _ = p.refine(form, p.start(form, fit), fit)
		}
		return func(i int) float64 {
			total := 0.0
			for k := range parts {
				total += terms[k].Form.at(whole.at[i], params[k])
			}
			return total
		}
	})
	return c
}

// value returns the predicted median at a size.
func (s *Subject) value(t *Term, v size) float64 {
	total := 0.0
	if len(t.Parts) == 0 {
		total = t.Form.at(v.per(t.Largest.size()), t.Params)
	}
	for _, q := range t.Parts {
		if part := s.term(q, t.Kind); part != nil {
			total += s.value(part, v)
		}
	}
	return t.averaged(v, total)
}

// averaged returns the weighted mean, on logarithms, of a fit and its alternatives. Within the fitted sizes they agree.
// Beyond them, no formula is certain, and the mean errs less than each of them.
func (t *Term) averaged(v size, value float64) float64 {
	if value <= 0 || t.Quantity.counted() {
		return value
	}
	u, weights, logs := v.per(t.Largest.size()), 1.0, 0.0
	for _, r := range t.Alternatives {
		l := math.Log(max(r.Form.at(u, r.Params), value*1e-3) / value)
		weights, logs = weights+r.Weight, logs+r.Weight*max(-farthest, min(farthest, l))
	}
	return value * math.Exp(logs/weights)
}

// at returns the predicted median at a size, and the standard deviation of its logarithm for the median of n values.
func (s *Subject) at(t *Term, v size, n float64) (value, deviation float64) {
	value = s.value(t, v)
	if value <= 0 {
		return 0, 0
	}
	variance := t.uncertain(v, value)
	if len(t.Parts) > 0 { // the errors of phases are nearly independent
		squares := 0.0
		for _, q := range t.Parts {
			if part := s.term(q, t.Kind); part != nil {
				own := s.value(part, v)
				squares += own * own * min(1, part.uncertain(v, own)+part.drifted(v))
			}
		}
		variance += max(squares/(value*value), t.drifted(v))
	} else {
		variance += t.drifted(v)
	}
	return value, math.Sqrt(variance + t.Between*t.Between + t.Within*t.Within*math.Pi/2/max(1, n))
}

// leastSummand is the minimum share that a part has of a sum, at the largest size of the fit, to be shown in its
// formula.
const leastSummand = 0.04

// sumFormula adds up the formulas of phases, largest parts first. Parts of the same kind become one number. Small parts
// are omitted.
func sumFormula(terms []*Term) string {
	type summand struct {
		rest          string
		value, weight float64
	}
	var all []summand
	whole := 0.0
	for _, t := range terms {
		t.summands(func(rest string, value, weight float64) {
			whole += weight
			for i := range all {
				if all[i].rest == rest {
					all[i].value, all[i].weight = all[i].value+value, all[i].weight+weight
					return
				}
			}
			all = append(all, summand{rest, value, weight})
		})
	}
	slices.SortStableFunc(all, func(a, b summand) int { return cmp.Compare(b.weight, a.weight) })
	var out []string
	for _, one := range all {
		if one.weight >= leastSummand*whole {
			out = append(out, Amount(Total, one.value)+one.rest)
		}
	}
	if len(out) < len(all) {
		out = append(out, "…")
	}
	return strings.Join(out, " + ")
}
