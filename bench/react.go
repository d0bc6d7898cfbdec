package bench

import (
	"context"
	"math/rand/v2"
	"time"

	"synclab/scenarios"
)

// purposeIdle is of the waits before isolated changes, which are the same for all subjects.
const purposeIdle = 6

// react makes isolated changes. Before each the subject has converged, and idled long enough to sync at once.
func (r *repetition) react(ctx context.Context, s *scenarios.React, name string) error {
	traces, err := r.world.React(*s)
	if err != nil {
		return err
	}
	r.say.stage(name, 0, len(traces))
	random := r.random(purposeIdle)
	for i, trace := range traces {
		if err := r.converge(ctx, scenarios.Settle{Timeout: s.Timeout}, name); err != nil {
			return err
		}
		r.reacting.Store(true)
		if err := r.idle(ctx, random); err != nil {
			return err
		}
		r.work.began = r.clock.Now() // a subject that is stopped was late for this change
		r.recordAs(Record{Unit: "count"}, Played, float64(len(trace)))
		options := r.playOptions(name)
		options.Progress = nil
		if err := r.cluster.Play(ctx, trace, options); err != nil {
			return err
		}
		r.say.stage(name, i+1, len(traces))
	}
	err = r.converge(ctx, scenarios.Settle{Timeout: s.Timeout}, name)
	r.reacting.Store(false)
	return err
}

// idle waits for minSyncPeriod, after which every policy lets a sync start at once, and a random part of another: changes
// come at any moment of what the subject does periodically.
func (r *repetition) idle(ctx context.Context, random *rand.Rand) error {
	period := r.config.IPTables.MinSyncPeriod.Duration
	return wait(ctx, period+time.Duration(random.Float64()*float64(period)))
}
