package model

import (
	"cmp"
	"math"
	"slices"
)

const (
	// neighbours is the minimum ratio of two sizes with a local exponent. Between closer sizes the exponent would be
	// noise.
	neighbours = 1.4
	// steep is the minimum local exponent of a bend. Exponents must also rise by more than the scatter explains.
	steep = 1.1
	// mostRise is the maximum rise of the local exponent beyond the measured sizes. Work for each pair of Services, on
	// memory that gets slower, grows no faster.
	mostRise = 1
	// bendShare of the difference between the fit and the continued bend counts as one standard deviation.
	bendShare = 0.6
)

// bends computes the local exponents of a quantity, and whether they rise.
func (t *Term) bends(points []Point) {
	groups := map[float64][]Point{}
	for _, p := range points {
		if p.Shape == "" && p.Value > 0 && p.Changed <= 1.5 && !p.Quantity.ofPackets() {
			groups[p.Endpoints] = append(groups[p.Endpoints], p)
		}
	}
	var longest []Point
	for _, each := range distinct(points, func(p Point) float64 { return p.Endpoints }) {
		if len(groups[each]) > len(longest) {
			longest = groups[each]
		}
	}
	longest = slices.Clone(longest)
	slices.SortFunc(longest, func(a, b Point) int { return cmp.Compare(a.Services, b.Services) })
	t.Exponents, t.Bend, t.Top = nil, 0, 0
	for i, from := 1, 0; i < len(longest); i++ {
		a, b := longest[from], longest[i]
		if float64(b.Services) < neighbours*float64(a.Services) {
			continue
		}
		t.Exponents = append(t.Exponents, Exponent{a.Services, b.Services, math.Log(b.Value/a.Value) / math.Log(float64(b.Services)/float64(a.Services))})
		from = i
	}
	n := len(t.Exponents)
	if n < 2 {
		return
	}
	last, before := t.Exponents[n-1], t.Exponents[n-2]
	apart := math.Log(math.Sqrt(float64(last.To)*float64(last.From)) / math.Sqrt(float64(before.To)*float64(before.From)))
	noise := math.Hypot(max(t.Between, leastTime), t.Within) * 2 / math.Log(float64(last.To)/float64(last.From))
	if rise := last.P - before.P; last.P > steep && rise > noise {
		t.Bend, t.Top = rise/apart, float64(last.To)
	}
}

// bent returns the variance that a bend adds beyond the largest cell. It compares the fit with a power law whose
// exponent keeps rising.
func (t *Term) bent(v size, value float64) float64 {
	far := math.Log(v.s / t.Top)
	if t.Bend <= 0 || far <= 0 || t.Form.State == "sum" {
		return 0
	}
	u := v
	u.s, u.n = t.Top, t.Top*v.e
	u.rules *= t.Top / v.s
	at := t.Form.at(u.per(t.Largest.size()), t.Params)
	if at <= 0 {
		return 0
	}
	last := t.Exponents[len(t.Exponents)-1]
	// A local exponent applies to the middle of its two sizes, on logarithms.
	p := last.P + min(mostRise, t.Bend*(far+math.Log(float64(last.To)/float64(last.From)))/2)
	d := bendShare * min(farthest, max(0, p*far-math.Log(value/at)))
	return d * d
}

// rivals returns the alternatives to the chosen formula, which is the first candidate. An alternative predicts the
// left-out sizes nearly as well, or fits all points nearly as well.
func (s *sample) rivals(candidates []candidate) (out []Alternative) {
	chosen := candidates[0]
	best := math.Inf(1)
	for _, c := range candidates {
		best = min(best, s.penalized(c))
	}
	for _, r := range candidates[1:] {
		weight := max(alternativeWeight(r.score, chosen.score), math.Exp(-(s.penalized(r)-best)/2))
		if s.counts || weight <= leastWeight {
			continue
		}
		out = append(out, Alternative{Form: r.form, FormText: r.form.String(), Score: r.score, Weight: weight, Params: r.params})
	}
	slices.SortStableFunc(out, func(a, b Alternative) int { return cmp.Compare(b.Weight, a.Weight) })
	return out[:min(len(out), mostAlternatives)]
}
