package capacity

import (
	"slices"

	"synclab/reports/model"
)

// predict evaluates the cost model of a subject. An interval grows with the distance from the measured sizes. Below the
// smallest size, no value exceeds that size's value: costs and memory do not grow as a cluster shrinks.
func predict(s *model.Subject, q model.Query) (model.Prediction, error) {
	p, err := s.Predict(q)
	if err != nil || p.Basis != model.Extrapolated {
		return p, err
	}
	floor := smallest(s, q)
	if floor.Services == q.Services && floor.Endpoints == q.Endpoints {
		return p, nil
	}
	least, err := s.Predict(floor)
	if err != nil {
		return p, err
	}
	p.Median, p.High = min(p.Median, least.Median), min(p.High, least.High)
	p.Low = min(p.Low, p.Median)
	return p, nil
}

// smallest raises the sizes of a query to the smallest measured ones.
func smallest(s *model.Subject, q model.Query) model.Query {
	if t := termOf(s, q); t != nil {
		q.Services = max(q.Services, int(t.Smallest.Services))
		q.Endpoints = max(q.Endpoints, t.Smallest.Each, t.Smallest.Total/float64(q.Services))
	}
	return q
}

// furthest returns how a query is furthest from the measured sizes. below: it is below the smallest size. changed: its
// number of changed Services per sync is further away than the size of the cluster.
func furthest(s *model.Subject, q model.Query) (below, changed bool) {
	t := termOf(s, q)
	if t == nil {
		return false, false
	}
	factor := 1.0
	for _, size := range []struct {
		is, low, high float64
		changed       bool
	}{
		{float64(q.Services), t.Smallest.Services, t.Largest.Services, false},
		{float64(q.Services) * q.Endpoints, t.Smallest.Total, t.Largest.Total, false},
		{q.Endpoints, t.Smallest.Each, t.Largest.Each, false},
		{float64(q.Changed), t.Smallest.Changed, t.Largest.Changed, true},
	} {
		if size.is > 0 && size.high > 0 && size.is/size.high > factor {
			factor, below, changed = size.is/size.high, false, size.changed
		}
		if size.is > 0 && size.low > 0 && size.low/size.is > factor {
			factor, below, changed = size.low/size.is, true, size.changed
		}
	}
	return below, changed
}

// termOf returns the term of the cost model that answers a query; nil if there is none.
func termOf(s *model.Subject, q model.Query) *model.Term {
	if q.Quantity == "" {
		q.Quantity = model.Total
	}
	i := slices.IndexFunc(s.Terms, func(t model.Term) bool { return t.Quantity == q.Quantity && t.Kind == q.Kind })
	if i < 0 {
		return nil
	}
	return &s.Terms[i]
}

// resting returns e with the basis of another estimate.
func (e Estimate) resting(on Estimate) Estimate {
	e.Basis, e.Beyond, e.Below, e.Changed = on.Basis, on.Beyond, on.Below, on.Changed
	return e
}
