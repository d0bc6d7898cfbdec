package host

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/montanaflynn/stats"

	"synclab/bench/lab/process"
	"synclab/bench/raw"
)

// readings are those of a subject's metrics. They cost its process CPU time that it does not need without the lab.
type readings struct {
	n    atomic.Int64  // answered, besides the samples of the cost
	cost time.Duration // of one; 0: not measured, or the subject has no metrics
	own  time.Duration // of the samples
}

// time returns the CPU time of all readings so far.
func (r *readings) time() time.Duration {
	return r.own + time.Duration(r.n.Load())*r.cost
}

// next makes the cost be measured again, for another subject.
func (r *readings) next() {
	r.own, r.cost = r.time(), 0
	r.n.Store(0)
}

// readingSamples is how often the cost of a reading is measured.
const readingSamples = 9

// recordReadingCost measures what a reading of the metrics costs the subject, once, while it is idle.
func (s *processSubject) recordReadingCost(ctx context.Context) error {
	of := &s.Harness.readings
	if of.cost > 0 {
		return nil
	}
	var costs []float64
	for range readingSamples {
		before, err := s.process.CPU()
		if err != nil {
			return err
		}
		if _, err := process.Metrics(ctx, MetricsURL); err != nil {
			return nil // none, or not of kube-proxy's kind: they are not read
		}
		after, err := s.process.CPU()
		if err != nil {
			return err
		}
		of.own += after - before
		costs = append(costs, (after - before).Seconds())
	}
	for _, cost := range costs {
		s.RecordAs(raw.Record{}, raw.ReadingCost, cost)
	}
	median, _ := stats.Median(costs) // there are some
	of.cost = time.Duration(median * float64(time.Second))
	return nil
}
