package pass

import (
	"fmt"
	"math"
	"slices"
	"sync"

	"synclab/bench/raw"
)

// Bound ends a repetition early: after the step in which a metric exceeded it. What follows would not change that an SLO is
// violated.
type Bound struct {
	Metric   raw.Metric
	Quantile float64 // of the metric's values; 0: the largest
	Most     float64
}

// enough collects the values that bounds are about.
type enough struct {
	mu     sync.Mutex
	values map[raw.Metric][]float64
	last   map[raw.Metric]int // largest dispatch position: only packets to the last Service count
}

func (e *Env) collect(r *raw.Record) {
	if !slices.ContainsFunc(e.Enough, func(b Bound) bool { return b.Metric == r.Metric }) || r.Error != "" {
		return
	}
	c := &e.enough
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.values == nil {
		c.values, c.last = map[raw.Metric][]float64{}, map[raw.Metric]int{}
	}
	if r.Position != nil {
		switch last := c.last[r.Metric]; {
		case *r.Position < last || *r.Position <= 0 || r.Target != "":
			return
		case *r.Position > last:
			c.last[r.Metric], c.values[r.Metric] = *r.Position, nil
		}
	}
	c.values[r.Metric] = append(c.values[r.Metric], r.Value)
}

// Exceeded says which bound of the assignment is exceeded; empty: none.
func (e *Env) Exceeded() string {
	c := &e.enough
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range e.Enough {
		values := slices.Sorted(slices.Values(c.values[b.Metric]))
		if len(values) == 0 {
			continue
		}
		at := len(values) - 1
		if b.Quantile > 0 {
			at = max(0, int(math.Ceil(b.Quantile*float64(len(values))))-1)
		}
		if values[at] > b.Most {
			return fmt.Sprintf("%s %.4g, more than %g", b.Metric, values[at], b.Most)
		}
	}
	return ""
}
