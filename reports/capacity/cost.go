package capacity

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"synclab/reports/model"
	"synclab/sim/twin"
)

// side says which of the model's costs is meant: its medians, or a bound of their intervals.
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

// cost is what syncs of a subject take in one cluster: the model's draws, times how far a side is from the median. It is
// a twin.Cost. CPU time is by the law of it, as a share of what a sync takes.
type cost struct {
	*model.Syncs
	full, partial       float64 // factors
	fullCPU, partialCPU []float64
}

// Sync of a cost.
func (c *cost) Sync(kind string, services, changes int, rng *rand.Rand) time.Duration {
	took := c.Syncs.Sync(kind, services, changes, rng)
	factor := c.full
	if kind == twin.Partial {
		factor = c.partial
	}
	if factor == 1 {
		return took
	}
	return time.Duration(float64(took) * factor)
}

// cpu is the CPU time of a sync that took so long.
func (c *cost) cpu(kind string, services int, took time.Duration) time.Duration {
	shares := c.fullCPU
	if kind == twin.Partial {
		shares = c.partialCPU
	}
	if len(shares) == 0 {
		return took
	}
	at := min(math.Log2(float64(max(1, services))), float64(len(shares)-1))
	i := min(int(at), len(shares)-1)
	next := shares[min(i+1, len(shares)-1)]
	return time.Duration(float64(took) * (shares[i] + (next-shares[i])*(at-float64(i))))
}

// cost of a subject in a cluster, whose syncs take together so many changed Services most of the time.
func costOf(s *model.Subject, c Cluster, together int, which side) (*cost, error) {
	syncs, err := s.Syncs(c.Services, c.Endpoints)
	if err != nil {
		return nil, err
	}
	out := &cost{Syncs: syncs, full: 1, partial: 1}
	if which != median {
		for _, part := range []struct {
			kind   string
			factor *float64
		}{{model.Full, &out.full}, {model.Partial, &out.partial}} {
			p, err := s.Predict(model.Query{Kind: part.kind, Services: c.Services, Endpoints: c.Endpoints, Changed: together})
			if err != nil {
				return nil, err
			}
			if p.Median > 0 {
				*part.factor = which.of(p) / p.Median
			}
		}
	}
	if out.fullCPU, err = cpuShares(s, c, model.Full, 0); err != nil {
		return nil, err
	}
	most := int(math.Ceil(math.Log2(float64(max(2, c.Services)))))
	out.partialCPU, err = cpuShares(s, c, model.Partial, most)
	return out, err
}

// cpuShares are how many CPUs syncs of 1, 2, 4 … Services use, up to 2^most; none where it was not measured.
func cpuShares(s *model.Subject, c Cluster, kind string, most int) ([]float64, error) {
	if !s.Has(model.CPU, kind) {
		return nil, nil
	}
	shares := make([]float64, most+1)
	for i := range shares {
		q := model.Query{Kind: kind, Services: c.Services, Endpoints: c.Endpoints, Changed: min(1<<i, c.Services)}
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
			return nil, fmt.Errorf("cost model of %s: a %s sync of %d Services takes %g s", s.Name, kind, c.Services, total.Median)
		}
		shares[i] = used.Median / total.Median
	}
	return shares, nil
}
