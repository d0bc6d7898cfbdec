package model

import (
	"cmp"
	"math"
	"slices"
)

// How laws are judged by sizes that they were not fitted to.
const (
	// beyondShare is the weight of sizes beyond the fit in a score, against those within.
	beyondShare = 0.6
	// alike: a simpler law that is so much worse, as a share and in relative error, is taken all the same.
	alikeShare, alikeError = 0.10, 0.003
	// alikeCount is alikeError of what is counted, without noise.
	alikeCount = 1e-4
	// alikePoints: of few points a score is uncertain itself, by a share that falls with the root of their number.
	alikePoints = 0.6
	// worst is the largest relative error that counts, on logarithms: one that is further off is simply wrong.
	worst = 0.7
)

// astray says that every error that a score is the mean of was worst, but for rounding.
func astray(score float64) bool { return score >= worst-1e-9 }

// candidate is a law with how it did.
type candidate struct {
	form   Form
	params []float64
	loss   float64 // on all points
	score  float64 // relative error on sizes that were left out
	// beyond is the relative error on sizes beyond the fit alone.
	beyond float64
	// astray are the errors beyond, and how far beyond each was.
	astray []miss
}

// miss is the error of one prediction beyond a fit.
type miss struct{ err, factor float64 }

// choose tries laws and returns them, the chosen one first, then by score.
func choose(s *sample, tried []Form) []candidate {
	all := indices(len(s.y))
	byState := map[Form]candidate{}
	var order []Form
	room := max(len(all)-1, min(len(all), 2)) // of two sizes, a line is known all the same
	if s.counts {
		room = len(all)
	}
	for _, f := range tried {
		if f.params() > room {
			continue
		}
		c := candidate{form: f}
		c.params, c.loss = s.refine(f, s.start(f, all), all)
		// Of the laws with the same state, the change that fits best is tried further: it is not what grows beyond.
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
	if s.counts { // nothing is to be tried: the simplest that fits nearly as well as any
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

// penalized is a loss with a price for each parameter, as a criterion of information has it.
func (s *sample) penalized(c candidate) float64 {
	n := float64(len(s.y))
	return n*math.Log(max(c.loss/n, 1e-7)) + float64(c.form.params())*math.Log(n)
}

// typical is the root of the mean squared error of a fit.
func (s *sample) typical(c candidate) float64 { return math.Sqrt(2 * c.loss / float64(len(s.y))) }

// fold is one trial: a fit to some sizes, asked for others.
type fold struct {
	fit, ask []int
	fits     func(size float64) bool
	beyond   bool
	weight   float64
	largest  float64 // size of the fit
}

// folds leave each size out, and all sizes beyond one. A size is a number of Services.
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
		f.beyond, f.largest, f.weight = true, sorted[k-1], float64(k*k) // what was fitted to more says more
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

// judge scores a law by cross-validation.
func (s *sample) judge(c *candidate, all []int) {
	c.scoreBy(s, func(f fold) func(int) float64 {
		if len(f.fit) <= c.form.params() && (c.form.params() != 1 || len(f.fit) == 0) {
			return nil
		}
		params, _ := s.refine(c.form, s.start(c.form, f.fit), f.fit)
		return func(i int) float64 { return c.form.at(s.at[i], params) }
	})
	if len(s.folds(all)) == 0 { // one size only: how it fits
		c.score = s.typical(*c)
	}
}

// scoreBy scores what fit makes of each fold: a law to ask, or nil of one that has more parameters than the fold has points.
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
			typical = median(errs) // one point that met a hiccup does not speak against a law
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
