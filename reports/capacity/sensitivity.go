package capacity

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// movedLower and movedHigher are the factors of an input.
const movedLower, movedHigher = 0.5, 2

// sensitivity changes each input, and searches the largest cluster again from its current scale on.
func (a *asker) sensitivity(p Policy, base Limit) (out []Sensitivity, err error) {
	inputs := []struct {
		name string
		move func(c *Cluster, p *Policy, factor float64)
	}{
		{"churn", func(c *Cluster, _ *Policy, f float64) {
			c.Churn.Endpoints *= f
			c.Churn.Services *= f
			c.Churn.Rollouts *= f
			c.Churn.NodeLosses *= f
			c.Churn.faster *= f
		}},
		{"endpoints", func(c *Cluster, _ *Policy, f float64) { c.Endpoints *= f }},
		{"nodes", func(c *Cluster, _ *Policy, f float64) { c.Nodes = max(1, int(math.Round(float64(c.Nodes)*f))) }},
		{"minSyncPeriod", func(_ *Cluster, p *Policy, f float64) {
			p.MinSyncPeriod = time.Duration(float64(p.MinSyncPeriod) * f)
		}},
	}
	for _, input := range inputs {
		if input.name == "churn" && a.q.Growth.Unit() == InChanges { // churn is the unit of the answer
			continue
		}
		s := Sensitivity{Input: input.name, Lower: movedLower, Higher: movedHigher}
		for _, to := range []struct {
			factor float64
			at     *float64
			capped *bool
		}{{movedLower, &s.AtLower, &s.CappedLower}, {movedHigher, &s.AtHigher, &s.CappedHigher}} {
			question, policy := *a.q, p
			input.move(&question.Today, &policy, to.factor)
			if *to.at, *to.capped, err = a.with(&question).most(policy, base.Scale, median); err != nil {
				return nil, err
			}
		}
		out = append(out, s)
	}
	cost, err := a.costMoves(p, base)
	if err != nil {
		return nil, err
	}
	out = append(out, cost)
	unit := a.q.Growth.Unit()
	slices.SortStableFunc(out, func(x, y Sensitivity) int { return cmp.Compare(y.swing(unit), x.swing(unit)) })
	return out, nil
}

// costMoves is the sensitivity to the intervals of the model's costs. Its factors are those of a partial sync at base.
func (a *asker) costMoves(p Policy, base Limit) (Sensitivity, error) {
	s := Sensitivity{Input: "cost", Lower: 1, Higher: 1}
	c := a.at(base.Scale)
	changed, _, err := together(a.subject, c, p)
	if err != nil {
		return s, err
	}
	e, err := a.predict(c, queryPartial(changed))
	if err != nil {
		return s, err
	}
	if e.Median > 0 {
		s.Lower, s.Higher = e.Low/e.Median, e.High/e.Median
	}
	if s.AtLower, s.CappedLower, err = a.most(p, base.Scale, low); err != nil {
		return s, err
	}
	s.AtHigher, s.CappedHigher, err = a.most(p, base.Scale, high)
	return s, err
}

// swing is the change of the answer, on logarithms. Sizes near 0, which have no logarithm, are raised to a minimum.
func (s Sensitivity) swing(u Unit) float64 {
	least := 0.01
	if u.Whole() {
		least = 1
	}
	return math.Abs(math.Log(max(least, s.AtHigher) / max(least, s.AtLower)))
}

// with returns an asker for another question, with the same cache.
func (a *asker) with(q *Question) *asker {
	other := *a
	other.q, other.looked = q, nil
	return &other
}

// most is the largest size that meets every SLO with a known quantity; 0: none does. The search begins at start.
func (a *asker) most(p Policy, start float64, which side) (reach float64, capped bool, err error) {
	scale, found, unbounded, err := a.holding(p, start, which)
	if err != nil || !found {
		return 0, false, err
	}
	return a.reached(a.at(scale)), unbounded, nil
}

// holding is the largest scale that meets every SLO with a known quantity.
func (a *asker) holding(p Policy, start float64, which side) (scale float64, found, unbounded bool, err error) {
	return a.span().search(start, func(scale float64) (bool, error) {
		c := a.at(scale)
		names := a.q.SLOs.Given()
		slices.SortStableFunc(names, func(x, y string) int { return cmp.Compare(dear(x), dear(y)) })
		for _, name := range names {
			v, known, err := a.value(name, c, p, which)
			if err != nil {
				return false, err
			}
			if known && v > a.q.SLOs.Bound(name) {
				return false, nil
			}
		}
		return true, nil
	})
}

// dear sorts the SLOs that need a simulation last.
func dear(name string) int {
	if name == ProgrammingP99 || name == CPU {
		return 1
	}
	return 0
}
