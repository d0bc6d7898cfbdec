package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"synclab/reports/model"
)

// side selects a cost of the model: the median, or a bound of its interval.
type side int

const (
	median side = iota
	low
	high
)

func (s side) of(p model.Prediction) float64 {
	switch s {
	case low:
		return p.Low
	case high:
		return p.High
	}
	return p.Median
}

// cost has the durations of a subject's syncs in one cluster: draws of the model, multiplied by the factor of a side.
// CPU time comes from its own cost model, as a share of the duration.
type cost struct {
	*model.Syncs
	factors map[string]float64   // by kind of sync
	shares  map[string][]float64 // CPUs, by kind, for syncs of 1, 2, 4 … Services
}

// again is the kind of full syncs after the first one: over existing rules, if these were measured separately.
func again(s *model.Subject) string {
	if s.Has(model.Total, model.Resync) {
		return model.Resync
	}
	return model.Full
}

// Sync draws the duration of a sync, by the model's kinds.
func (c *cost) Sync(kind string, services, changes int, rng *rand.Rand) time.Duration {
	took := c.Syncs.Sync(kind, services, changes, rng)
	if factor := c.factors[kind]; factor != 1 {
		return time.Duration(float64(took) * factor)
	}
	return took
}

// cpu is the CPU time of a sync with this duration.
func (c *cost) cpu(kind string, services int, took time.Duration) time.Duration {
	shares := c.shares[kind]
	if len(shares) == 0 {
		return took
	}
	at := min(math.Log2(float64(max(1, services))), float64(len(shares)-1))
	i := min(int(at), len(shares)-1)
	next := shares[min(i+1, len(shares)-1)]
	return time.Duration(float64(took) * (shares[i] + (next-shares[i])*(at-float64(i))))
}

// prepared is the part of the costs that does not depend on the policy and the side.
type prepared struct {
	syncs  *model.Syncs
	shares map[string][]float64
}

// prepare computes the common costs of one size. No sync keeps more CPUs busy than the machine has (cpus; 0: unknown):
// extrapolated durations and CPU times may contradict each other.
func prepare(s *model.Subject, c Cluster, cpus int) (*prepared, error) {
	syncs, err := s.Syncs(c.Services, c.Endpoints)
	if err != nil {
		return nil, err
	}
	out := &prepared{syncs: syncs, shares: map[string][]float64{}}
	for kind, most := range map[string]int{model.Full: 0, model.Resync: 0, model.Partial: int(math.Ceil(math.Log2(float64(max(2, c.Services)))))} {
		if !s.Has(model.Total, kind) {
			continue
		}
		if out.shares[kind], err = cpuShares(s, c, kind, most); err != nil {
			return nil, err
		}
		for i := range out.shares[kind] {
			if cpus > 0 {
				out.shares[kind][i] = min(out.shares[kind][i], float64(cpus))
			}
		}
	}
	return out, nil
}

// costOf returns the cost of a subject in a cluster. together is the usual number of changed Services in a sync.
func costOf(s *model.Subject, c Cluster, ready *prepared, together int, which side) (*cost, error) {
	out := &cost{Syncs: ready.syncs, shares: ready.shares, factors: map[string]float64{model.Full: 1, model.Resync: 1, model.Partial: 1}}
	if which == median {
		return out, nil
	}
	for kind := range out.factors {
		if !s.Has(model.Total, kind) {
			continue
		}
		p, err := predict(s, model.Query{Kind: kind, Services: c.Services, Endpoints: c.Endpoints, Changed: together})
		if err != nil {
			return nil, err
		}
		if p.Median > 0 {
			out.factors[kind] = which.of(p) / p.Median
		}
	}
	return out, nil
}

// cpuShares are the CPUs of syncs of 1, 2, 4 … 2^most Services; nil if they were not measured. Above the largest number
// of changed Services with a known CPU time, the share stays the same. Otherwise, a cost model that ignores that number
// would make more changes free.
func cpuShares(s *model.Subject, c Cluster, kind string, most int) ([]float64, error) {
	if !s.Has(model.CPU, kind) {
		return nil, nil
	}
	shares := make([]float64, most+1)
	for i := range shares {
		q := model.Query{Kind: kind, Services: c.Services, Endpoints: c.Endpoints, Changed: min(1<<i, c.Services)}
		if kind == model.Partial {
			q.Changed = min(q.Changed, max(1, s.MostChanged(model.CPU)))
		}
		total, err := s.Predict(q)
		if err != nil {
			return nil, err
		}
		q.Quantity = model.CPU
		used, err := s.Predict(q)
		if err != nil {
			return nil, err
		}
		if total.Median <= 0 {
			return nil, fmt.Errorf("cost model of %s: a %s sync of %d Services takes %g s: want more than 0", s.Name, kind, c.Services, total.Median)
		}
		shares[i] = used.Median / total.Median
	}
	return shares, nil
}
