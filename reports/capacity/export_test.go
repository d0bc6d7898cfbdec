package capacity

import (
	"context"
	"time"

	"synclab/reports/model"
	"synclab/sim/simulator"
)

// Exports for the tests, which are in another package, since capacitytest imports this one.

// Asker returns the asker of one subject.
func Asker(ctx context.Context, m *model.Model, q Question, subject string) (*asker, error) {
	q.Subjects = []string{subject}
	if err := q.fill(m); err != nil {
		return nil, err
	}
	all, err := askersOf(ctx, m, &q)
	if err != nil {
		return nil, err
	}
	all[0].told = func(string) {}
	return all[0], nil
}

func (a *asker) Limit(name string) (Limit, error) {
	l, _, err := a.limit(name, a.policy)
	return l, err
}

func (a *asker) Outlook(scale float64) (Evaluation, error) {
	return a.outlook(scale, a.at(scale), a.policy, true)
}

func (a *asker) Frontier() ([]Setting, error) { return a.frontier(0, a.at(0)) }

func (a *asker) Sensitivity() ([]Sensitivity, error) {
	scale, _, _, err := a.holding(a.policy, 0, median)
	if err != nil {
		return nil, err
	}
	return a.sensitivity(a.policy, Limit{Scale: scale})
}

func Recommend(all []Setting, furthest Furthest, p SLOs) Setting {
	return recommend(all, furthest, p)
}

func Search(low, high, start float64, holds func(float64) bool) (scale float64, found, unbounded bool) {
	scale, found, unbounded, _ = span{low: low, high: high, step: 1, tolerance: exact}.search(start, func(s float64) (bool, error) { return holds(s), nil })
	return scale, found, unbounded
}

func Cross(from, to []Evaluation, name string) (Crossing, bool) { return cross(from, to, name) }

func (c Cluster) Events(seed uint64, from, length time.Duration) (simulator.Source, error) {
	c.fill()
	return c.events(seed, from, length)
}

func (c Cluster) Rate() float64 { return c.rate() }

func RestsOn(e Estimate) string                               { return restsOn(e) }
func Digits(v float64, b model.Basis) string                  { return digits(v, b) }
func Amount(quantity string, v float64, b model.Basis) string { return amount(quantity, v, b) }
func MemoryLimit(e Estimate) uint64                           { return memoryLimit(e) }

func CPUShares(s *model.Subject, c Cluster, most int) ([]float64, error) {
	return cpuShares(s, c, model.Partial, most)
}

func (a *Answer) Say() []string { return a.say() }

func Compare(from, to *SubjectAnswer, q Question) Comparison { return compare(from, to, q) }

func Prepared(s *model.Subject, c Cluster, cpus int) (map[string][]float64, error) {
	ready, err := prepare(s, c, cpus)
	if err != nil {
		return nil, err
	}
	return ready.shares, nil
}
