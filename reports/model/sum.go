package model

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// Whole syncs are predicted as the sum of their phases, where these are known: a phase that grows faster than the others
// shows in its own numbers long before it shows in the whole, and each is simpler than their sum.
const (
	// sumShare and sumError: the sum of the phases is taken unless a law of the whole predicts so much better.
	sumShare, sumError = 0.3, 0.01
	// toldShare is the share of a whole sync's points that its phases must be known of.
	toldShare = 0.8
)

// byPhases makes the term of a whole the sum of its phases' terms, unless its own law does clearly better. s is what the
// term was fitted to.
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
	alone := Rival{Form: t.Form, Law: t.Law, Score: t.Score, Weight: rivalWeight(t.Score, c.score), Params: t.Params}
	t.Rivals = nil
	if alone.Weight > leastWeight {
		t.Rivals = []Rival{alone}
	}
	t.Form, t.Params, t.Draws, t.Coefficients = Form{State: "sum"}, nil, nil, nil
	t.Score, t.LargestOut = c.score, c.beyond
	var names []string
	for _, q := range t.Parts {
		names = append(names, string(q))
	}
	t.Law, t.Written = strings.Join(names, " + "), sumFormula(terms)
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

// sizes completes the sizes of points.
func (s *Subject) sizes(points []Point) []size {
	out := make([]size, len(points))
	for i, p := range points {
		out[i] = s.sized(p.size())
	}
	return out
}

// sumAt adds up what terms say of a size that was not divided.
func sumAt(terms []*Term, v size) float64 {
	total := 0.0
	for _, t := range terms {
		total += t.Form.at(v.per(t.Largest.size()), t.Params)
	}
	return total
}

// judgeSum scores the sum of phases as judge scores a law: each phase's law is fitted again to what a fold leaves.
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

// value is the median that a term's law says of a size.
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

// averaged is the mean, on logarithms, of what a law and its rivals say. Within the fit they agree; beyond it, none of those
// that fit as well is the right one for sure, and the mean errs less than any.
func (t *Term) averaged(v size, value float64) float64 {
	if value <= 0 || t.Quantity.counted() {
		return value
	}
	u, weights, logs := v.per(t.Largest.size()), 1.0, 0.0
	for _, r := range t.Rivals {
		l := math.Log(max(r.Form.at(u, r.Params), value*1e-3) / value)
		weights, logs = weights+r.Weight, logs+r.Weight*max(-farthest, min(farthest, l))
	}
	return value * math.Exp(logs/weights)
}

// at is what the law says, and the standard deviation of its logarithm for the median of n values there.
func (s *Subject) at(t *Term, v size, n float64) (value, deviation float64) {
	value = s.value(t, v)
	if value <= 0 {
		return 0, 0
	}
	variance := t.uncertain(v, value)
	if len(t.Parts) > 0 { // what is not known of one phase has little to do with what is not known of another
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

// leastSummand is the share of a sum, at the largest size of the fit, that its formula shows.
const leastSummand = 0.04

// sumFormula adds up the laws of phases, largest first: what is of one kind in several of them becomes one number, and what
// is next to nothing is left out.
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
