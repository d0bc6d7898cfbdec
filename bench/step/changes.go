package step

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/live"
	"synclab/sim/world"
)

func (r *Parts) playOptions(name string) api.PlayOptions {
	return api.PlayOptions{
		Start:    r.Clock.Now(),
		Progress: func(done, total int) { r.Messages.Stage(name, done, total) },
		Before:   func(ch sim.Change, due time.Time) { r.Events.Change(ch.Op, ch.Object, due) },
	}
}

// change makes the changes that the world plans for a step.
func (r *Parts) change(ctx context.Context, s Step) error {
	return r.play(ctx, s.Name, func() (sim.Trace, error) { return r.World.Plan(s.Step) })
}

func (r *Parts) play(ctx context.Context, name string, plan func() (sim.Trace, error)) error {
	trace, err := plan()
	if err := r.short(name, err); err != nil {
		return err
	}
	r.Messages.Stage(name, 0, len(trace))
	r.RecordAs(raw.Record{}, raw.ChangesApplied, float64(len(trace)))
	options := r.playOptions(name)
	show := options.Progress
	options.Progress = func(done, total int) {
		show(done, total)
		if done*memorySamples/total > (done-1)*memorySamples/total {
			r.recordMemory(r.changes + done)
		}
	}
	r.recordMemory(r.changes)
	defer func() { r.changes += len(trace) }()
	return r.Cluster.Play(ctx, trace, options)
}

// memorySamples is how often a step records the subject's memory, at equal numbers of changes.
const memorySamples = 20

// recordMemory records the memory of the subject's first process, if it is one, after so many changes.
func (r *Parts) recordMemory(changes int) {
	p := r.Host.Process()
	if r.process == nil {
		r.process = p
	}
	if p == nil || p != r.process { // another one begins anew
		return
	}
	if rss, err := p.RSS(); err == nil && rss > 0 { // a fault may have ended it
		r.RecordAs(raw.Record{Change: changes}, raw.RSS, float64(rss))
	}
}

// short notes that a step has fewer changes than planned, because earlier steps left too few objects. Given objects may be
// few, and which of them remain depends on the faults before. Other errors are returned.
func (r *Parts) short(name string, err error) error {
	var few *world.TooFewError
	if r.Objects == nil || !errors.As(err, &few) && !errors.Is(err, world.ErrNothingToChange) {
		return err
	}
	r.Messages.Send(pass.Message{Note: fmt.Sprintf("step %s: %v", name, err)})
	return nil
}

// purposeIdle is the stream for the waits before isolated changes. They are the same for all subjects.
const purposeIdle = 6

// react makes isolated changes. Before each change, the subject has converged and idled long enough to sync at once.
func (r *Parts) react(ctx context.Context, s Step) error {
	traces, err := r.World.React(*s.React)
	if err := r.short(s.Name, err); err != nil {
		return err
	}
	r.Messages.Stage(s.Name, 0, len(traces))
	random := r.Random(purposeIdle)
	for i, trace := range traces {
		if err := r.converge(ctx, scenarios.Settle{Timeout: s.React.Timeout}, s.Name); err != nil {
			return err
		}
		r.Host.Reacting.Store(true)
		if err := r.idle(ctx, random); err != nil {
			return err
		}
		r.Host.Work.Began = r.Clock.Now() // tooLong measures a late subject from this change
		r.RecordAs(raw.Record{}, raw.ChangesApplied, float64(len(trace)))
		options := r.playOptions(s.Name)
		options.Progress = nil
		if err := r.Cluster.Play(ctx, trace, options); err != nil {
			return err
		}
		r.Messages.Stage(s.Name, i+1, len(traces))
	}
	err = r.converge(ctx, scenarios.Settle{Timeout: s.React.Timeout}, s.Name)
	r.Host.Reacting.Store(false)
	return err
}

// idle waits for minSyncPeriod, after which every policy lets a sync start at once. A random part of another period
// follows, so that changes come at any phase of the subject's periodic work.
func (r *Parts) idle(ctx context.Context, random *rand.Rand) error {
	period := r.Settings().MinSyncPeriod
	return pass.Wait(ctx, period+time.Duration(random.Float64()*float64(period)))
}

// follow applies the followed cluster's changes as they come. A change that came before the step is due when the
// step begins.
func (r *Parts) follow(ctx context.Context, s Step) error {
	if r.Following == nil {
		return errors.New("step follow has no cluster: name one with --kubeconfig")
	}
	start := r.Clock.Now()
	ctx, cancel := context.WithDeadline(ctx, start.Add(s.Follow.For))
	defer cancel()
	r.Followed = true
	made := 0
	defer func() { r.RecordAs(raw.Record{}, raw.ChangesApplied, float64(made)) }()
	for {
		r.Messages.Stage(s.Name, int(r.Clock.Since(start)/time.Second), int(s.Follow.For/time.Second))
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return nil
			}
			return context.Cause(ctx)
		case next, ok := <-r.Following.arriving:
			if !ok {
				return fmt.Errorf("following the cluster ended: %w", r.Following.err)
			}
			due := next.At
			if due.Before(start) {
				due = start
			}
			r.Events.Change(next.Op, next.Object, due)
			if err := r.Cluster.Apply(ctx, next.Change); err != nil && ctx.Err() == nil {
				return err
			}
			made++
		}
	}
}

// ahead is how many changes of a live cluster may wait for a follow step, for instance during a long cold start. Beyond
// it the API server has to wait, and ends the watches if that lasts.
const ahead = 1 << 16

// Following has the changes of a followed cluster.
type Following struct {
	arriving chan live.Change
	err      error // that closed arriving
}

// Follow reads changes as they come.
func Follow(changes *live.Decoder) *Following {
	f := &Following{arriving: make(chan live.Change, ahead)}
	go func() {
		defer close(f.arriving)
		for {
			next, err := changes.Next()
			if err != nil {
				f.err = err
				return
			}
			f.arriving <- next
		}
	}()
	return f
}
