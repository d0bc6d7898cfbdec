package capacity

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"synclab/reports/model"
)

const (
	// mostBeyond ends the search for a limit, at this multiple of the measured sizes. A cost model that was chosen from
	// a few sizes says little beyond. The behaviour of a kernel at ten times a size is unknown.
	mostBeyond = 10
	// largestNodes ends a search in which only nodes grow, which nothing else would end: nodes were not measured, and
	// cost little.
	largestNodes = 100_000
	// mostChurn ends a search, in changes per second, or mostBeyond times today's rate if that is more. With growth of
	// churn alone, nothing else would end the search, and each change is simulated.
	mostChurn = 1000
	// fewestServices is the smallest number of Services of a search. A search goes below today's number if today's
	// cluster violates an SLO.
	fewestServices = 10
	// exact is the final distance between the bounds of a search, on logarithms.
	exact = 0.01
)

// span has the first and the last scale of a search, and its first step: a factor of 2 in the quantity that grows most.
type span struct {
	low, high, step, tolerance float64
	end                        string // reason for the end at high; empty: the range of the cost model
}

func (a *asker) span() span {
	if a.looked == nil {
		r := a.measureSpan()
		a.looked = &r
	}
	return *a.looked
}

func (a *asker) measureSpan() span {
	g, given := a.q.Growth.filled()
	unit := math.Log(max(g.Services, g.Endpoints, g.Nodes, g.Churn))
	r := span{step: math.Ln2 / unit, tolerance: exact / unit}
	churn := max(mostChurn, mostBeyond*a.q.Today.rate())
	nodes := math.MaxInt
	if a.q.Growth.Unit() == InNodes {
		nodes = max(largestNodes, a.q.Today.Nodes)
	}
	within := func(scale float64) bool {
		c := a.at(scale)
		if c.rate() > churn {
			return false
		}
		beyond := a.beyond(c)
		below := a.beyond(a.at(scale+r.step)) < beyond // below the measured sizes: growth approaches them
		return c.Services <= MostServices && c.Nodes <= nodes && (beyond <= mostBeyond || below)
	}
	for r.high < 40*r.step && within(r.high+r.step) {
		r.high += r.step
	}
	if within(r.high) {
		most := r.high + r.step
		for most-r.high > r.tolerance {
			if middle := (r.high + most) / 2; within(middle) {
				r.high = middle
			} else {
				most = middle
			}
		}
		switch next := a.at(most); {
		case next.rate() > churn:
			r.end = fmt.Sprintf("%s objects change a second there, and every change is simulated", digits(next.rate(), model.Extrapolated))
		case next.Services > MostServices:
			r.end = "larger clusters are not supported"
		}
	}
	if given {
		r.high = max(r.high, 1)
	}
	for r.low > -20*r.step && float64(a.at(r.low-r.step).Services) >= fewestServices && a.at(r.low-r.step).Services < a.at(r.low).Services {
		r.low -= r.step
	}
	if g.Services <= 1 {
		r.low = -4 * r.step
	}
	return r
}

// beyond is the factor by which the syncs of a cluster are beyond the measured sizes; 1 within them.
func (a *asker) beyond(c Cluster) float64 {
	most := 1.0
	for _, q := range []model.Query{{Kind: model.Full}, {Kind: model.Partial}} {
		if e, err := a.predict(c, q); err == nil {
			most = max(most, e.Beyond)
		}
	}
	return most
}

// value returns the quantity of an SLO in a cluster; known is false if it was not measured.
func (a *asker) value(name string, c Cluster, p Policy, which side) (v float64, known bool, err error) {
	switch name {
	case ProgrammingP99, CPU:
		s, err := a.simulate(c, p, which)
		if err != nil {
			return 0, false, err
		}
		if name == CPU {
			return s.cpu, true, nil
		}
		return s.p99, true, nil
	}
	e, known := a.state(name, c)
	return which.of(model.Prediction{Median: e.Median, Low: e.Low, High: e.High}), known, nil
}

// search finds the largest scale at which holds is true. From start, its steps double; then it halves the interval. If
// holds is not monotonic, the result is the first change that the steps meet. found is false if holds is true nowhere;
// unbounded: it is true up to the last scale.
func (r span) search(start float64, holds func(scale float64) (bool, error)) (scale float64, found, unbounded bool, err error) {
	start = max(r.low, min(r.high, start))
	ok, err := holds(start)
	if err != nil {
		return 0, false, false, err
	}
	good, bad := start, start
	for step := r.step; ; step *= 2 {
		if ok && bad > good || !ok && good < bad {
			break
		}
		next := min(r.high, start+step)
		if !ok {
			next = max(r.low, start-step)
		}
		if next == start || next == good && ok || next == bad && !ok {
			return good, ok, ok, nil
		}
		now, err := holds(next)
		if err != nil {
			return 0, false, false, err
		}
		switch {
		case now && ok:
			good, bad = next, next
		case now:
			good = next
		case ok:
			bad = next
		default:
			good, bad = next, next
		}
	}
	for bad-good > r.tolerance {
		middle := (good + bad) / 2
		ok, err := holds(middle)
		if err != nil {
			return 0, false, false, err
		}
		if ok {
			good = middle
		} else {
			bad = middle
		}
	}
	return good, true, false, nil
}

// limit returns the limit of one SLO with a policy. The bounds of its reach are the limits with syncs at the upper and
// at the lower bound of their costs.
func (a *asker) limit(name string, p Policy) (l Limit, known bool, err error) {
	r := a.span()
	bound := a.q.SLOs.Bound(name)
	known = true
	search := func(start float64, which side) (float64, bool, bool, error) {
		return r.search(start, func(scale float64) (bool, error) {
			v, there, err := a.value(name, a.at(scale), p, which)
			known = known && there
			return v <= bound, err
		})
	}
	scale, found, unbounded, err := search(0, median)
	if err != nil || !known {
		return l, known, err
	}
	l = Limit{SLO: name, Scale: scale, Cluster: a.at(scale), Unbounded: unbounded, Never: !found || scale < 0}
	l.Smaller = found && l.Never
	if l.Unbounded {
		l.End = r.end
	}
	reach := func(scale float64, found bool) float64 {
		if !found {
			return 0
		}
		return a.reached(a.at(scale))
	}
	least, foundLeast, _, err := search(scale, high)
	if err != nil {
		return l, known, err
	}
	most, foundMost, _, err := search(scale, low)
	if err != nil {
		return l, known, err
	}
	l.Size = Estimate{Median: reach(scale, found), Low: reach(least, foundLeast), High: reach(most, foundMost)}
	l.Size.Low, l.Size.High = min(l.Size.Low, l.Size.Median), max(l.Size.High, l.Size.Median)
	if l.Value, _, err = a.value(name, l.Cluster, p, median); err != nil {
		return l, known, err
	}
	basis, err := a.basis(name, l.Cluster, p)
	if err != nil {
		return l, known, err
	}
	l.Size = l.Size.resting(basis)
	l.Why, err = a.why(name, l.Cluster, p)
	return l, known, err
}

// basis returns the basis of an SLO's quantity in a cluster.
func (a *asker) basis(name string, c Cluster, p Policy) (Estimate, error) {
	if name == ProgrammingP99 || name == CPU {
		s, err := a.simulate(c, p, median)
		if err != nil {
			return Estimate{}, err
		}
		return a.rests(c, max(1, int(math.Round(s.together))))
	}
	e, _ := a.state(name, c)
	return e, nil
}

// limits returns the limit of each SLO with a policy. The SLO that is violated first comes first.
func (a *asker) limits(p Policy) ([]Limit, error) {
	var all []Limit
	for _, name := range a.q.SLOs.Given() {
		l, known, err := a.limit(name, p)
		if err != nil {
			return nil, fmt.Errorf("limit of %s: %w", name, err)
		}
		if !known {
			a.remark("%s has an SLO, but was not measured: its limit is unknown", words[name].name)
			continue
		}
		all = append(all, l)
	}
	slices.SortStableFunc(all, func(x, y Limit) int {
		return cmp.Or(cmp.Compare(x.Size.Median, y.Size.Median), cmp.Compare(x.Scale, y.Scale))
	})
	return all, nil
}

// Largest returns the largest cluster that meets all SLOs. Its bounds are the smallest of all limits.
func Largest(all []Limit) Limit {
	if len(all) == 0 {
		return Limit{}
	}
	l := all[0]
	for _, other := range all[1:] {
		l.Size.Low = min(l.Size.Low, other.Size.Low)
		l.Size.High = min(l.Size.High, other.Size.High)
	}
	l.Size.High = max(l.Size.High, l.Size.Median)
	return l
}
