package bench

import (
	"context"
	"math/rand/v2"
	"time"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/scenarios"
)

// purposeIdle is the stream for the waits before isolated changes. They are the same for all subjects.
const purposeIdle = 6

// react makes isolated changes. Before each change, the subject has converged and idled long enough to sync at once.
func (r *repetition) react(ctx context.Context, s *scenarios.React, name string) error {
	traces, err := r.World.React(*s)
	if err := r.short(name, err); err != nil {
		return err
	}
	r.Messages.Stage(name, 0, len(traces))
	random := r.Random(purposeIdle)
	for i, trace := range traces {
		if err := r.converge(ctx, scenarios.Settle{Timeout: s.Timeout}, name); err != nil {
			return err
		}
		r.host.Reacting.Store(true)
		if err := r.idle(ctx, random); err != nil {
			return err
		}
		r.host.Work.Began = r.Clock.Now() // tooLong measures a late subject from this change
		r.RecordAs(raw.Record{}, raw.ChangesApplied, float64(len(trace)))
		options := r.playOptions(name)
		options.Progress = nil
		if err := r.Cluster.Play(ctx, trace, options); err != nil {
			return err
		}
		r.Messages.Stage(name, i+1, len(traces))
	}
	err = r.converge(ctx, scenarios.Settle{Timeout: s.Timeout}, name)
	r.host.Reacting.Store(false)
	return err
}

// idle waits for minSyncPeriod, after which every policy lets a sync start at once. A random part of another period
// follows, so that changes come at any phase of the subject's periodic work.
func (r *repetition) idle(ctx context.Context, random *rand.Rand) error {
	period := r.Settings().MinSyncPeriod
	return pass.Wait(ctx, period+time.Duration(random.Float64()*float64(period)))
}
