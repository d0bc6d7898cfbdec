package model

import (
	"cmp"
	"math"
	"slices"
)

// Constants of cross-validation, which scores formulas on sizes that were left out of the fit.
const (
	// beyondShare is the weight of sizes beyond the fit in a score. Sizes within the fit have the rest.
	beyondShare = 0.6
	// alike: a simpler formula is chosen if its score is worse by at most alikeShare (relative) plus alikeError
	// (absolute).
	alikeShare, alikeError = 0.10, 0.003
	// alikeCount is the error that a formula for counts may have: counts have no noise.
	alikeCount = 1e-4
	// alikePoints divided by the root of the number of points replaces alikeShare if it is larger. With few points, the
	// score itself is uncertain.
	alikePoints = 0.6
	// worst is the cap of relative errors, on logarithms. A prediction that is further off is simply wrong.
	worst = 0.7
)

// astray reports whether all errors in a score were at the cap worst, apart from rounding.
func astray(score float64) bool { return score >= worst-1e-9 }

// candidate is a fitted formula with its errors.
type candidate struct {
	form   Form
	params []float64
	loss   float64 // on all points
	score  float64 // relative error at sizes that were left out
	// beyond is the relative error at sizes beyond the fit only.
	beyond float64
	// astray has each error beyond the fit, with its distance.
	astray []miss
}

// miss is the error of one prediction beyond a fit, at factor times the largest fitted size.
type miss struct{ err, factor float64 }

// choose scores formulas and returns them: the chosen one first, then the others by score.
func choose(s *sample, tried []Form) []candidate {
	all := indices(len(s.y))
	byState := map[Form]candidate{}
	var order []Form
	room := max(len(all)-1, min(len(all), 2)) // two points are enough for a line
	if s.counts {
		room = len(all)
	}
	for _, f := range tried {
		if f.params() > room {
			continue
		}
		c := candidate{form: f}
		c.params, c.loss = s.refine(f, s.start(f, all), all)
		// Of formulas with the same state, only the best-fitting change part is scored: it does not affect growth
		// beyond the fit.
		state := Form{State: f.State, X: f.X}
		before, ok := byState[state]
		if !ok {
			order = append(order, state)
		}
		if !ok || s.penalized(c) < s.penalized(before) {
			byState[state] = c
		}
	}
	var out []candidate
	for _, state := range order {
		c := byState[state]
		s.judge(&c, all)
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil
	}
	if s.counts { // no cross-validation: take the simplest formula that fits nearly as well as the best
		least := slices.MinFunc(out, func(a, b candidate) int { return cmp.Compare(a.loss, b.loss) })
		i := slices.IndexFunc(out, func(c candidate) bool { return s.typical(c) <= max(alikeCount, 1.5*s.typical(least)) })
		fits := out[i]
		fits.score, fits.beyond, fits.astray = s.typical(fits), s.typical(fits), nil
		return []candidate{fits}
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return cmp.Compare(a.score, b.score) })
	best := 0
	share := max(alikeShare, alikePoints/math.Sqrt(float64(len(all))))
	for i, c := range out {
		near := c.score <= out[0].score*(1+share)+alikeError
		if near && c.form.params() < out[best].form.params() {
			best = i
		}
	}
	chosen := out[best]
	return append([]candidate{chosen}, slices.Delete(out, best, best+1)...)
}

func indices(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// penalized returns the loss with a penalty for each parameter, as in the Bayesian information criterion.
func (s *sample) penalized(c candidate) float64 {
	n := float64(len(s.y))
	return n*math.Log(max(c.loss/n, 1e-7)) + float64(c.form.params())*math.Log(n)
}

// typical returns the root mean squared error of a fit.
func (s *sample) typical(c candidate) float64 { return math.Sqrt(2 * c.loss / float64(len(s.y))) }

// fold is one step of cross-validation: a fit to some sizes, tested on others.
type fold struct {
	fit, ask []int
	fits     func(size float64) bool
	beyond   bool
	weight   float64
	largest  float64 // largest size of the fit
}

// folds returns the steps of cross-validation. They leave out each size in turn, and all sizes beyond one. A size is a
// number of Services.
func (s *sample) folds(all []int) []fold {
	sizes := map[float64]bool{}
	for _, i := range all {
		sizes[s.at[i].s] = true
	}
	var sorted []float64
	for v := range sizes {
		sorted = append(sorted, v)
	}
	slices.Sort(sorted)
	var out []fold
	if len(sorted) > 2 {
		for _, size := range sorted[:len(sorted)-1] {
			out = append(out, split(s, all, func(v float64) bool { return v != size }))
		}
	}
	for k := max(1, min(3, len(sorted)-1)); k < len(sorted); k++ {
		f := split(s, all, func(v float64) bool { return v < sorted[k] })
		f.beyond, f.largest, f.weight = true, sorted[k-1], float64(k*k) // a fit to more sizes has more weight
		out = append(out, f)
	}
	return out
}

func split(s *sample, all []int, fits func(size float64) bool) fold {
	f := fold{weight: 1, fits: fits}
	for _, i := range all {
		if fits(s.at[i].s) {
			f.fit = append(f.fit, i)
		} else {
			f.ask = append(f.ask, i)
		}
	}
	return f
}

// judge scores a formula by cross-validation.
func (s *sample) judge(c *candidate, all []int) {
	c.scoreBy(s, func(f fold) func(int) float64 {
		if len(f.fit) <= c.form.params() && (c.form.params() != 1 || len(f.fit) == 0) {
			return nil
		}
		params, _ := s.refine(c.form, s.start(c.form, f.fit), f.fit)
		return func(i int) float64 { return c.form.at(s.at[i], params) }
	})
	if len(s.folds(all)) == 0 { // one size only: the score is the error of the fit
		c.score = s.typical(*c)
	}
}

// scoreBy scores the predictions that fit returns for each fold. fit returns nil if the formula has too many parameters
// for the points of the fold.
func (c *candidate) scoreBy(s *sample, fit func(fold) func(i int) float64) {
	var within, beyond, withinWeight, beyondWeight float64
	for _, f := range s.folds(indices(len(s.y))) {
		typical := worst
		if ask := fit(f); ask != nil {
			var errs []float64
			for _, i := range f.ask {
				err := s.error(i, ask(i))
				errs = append(errs, min(worst, math.Abs(err)))
				if f.beyond {
					c.astray = append(c.astray, miss{err, s.at[i].s / f.largest})
				}
			}
			typical = median(errs) // the median, so that one point with a hiccup does not count against a formula
		}
		if f.beyond {
			beyond, beyondWeight = beyond+typical*f.weight, beyondWeight+f.weight
		} else {
			within, withinWeight = within+typical*f.weight, withinWeight+f.weight
		}
	}
	if beyondWeight > 0 {
		c.beyond = beyond / beyondWeight
	}
	switch {
	case beyondWeight > 0 && withinWeight > 0:
		c.score = beyondShare*c.beyond + (1-beyondShare)*within/withinWeight
	case beyondWeight > 0:
		c.score = c.beyond
	}
}
