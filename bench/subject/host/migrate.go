package host

import (
	"context"
	"fmt"
	"time"

	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/verify/move"
	"synclab/sim"
)

// Migrate ends the subject, as the end of its pod would, and starts another one after a gap. The rules of the first one
// stay: it is the second one's task to remove them. Metric move is the time from the end's begin until the second one's
// tables have every Service.
func (r *Host) Migrate(ctx context.Context, to subject.Spec, gap time.Duration, name string) error {
	r.Messages.Stage(name, 0, 0)
	if r.Feed != raw.FeedAPI {
		return fmt.Errorf("step migrate needs --feed %s: both subjects are separate processes", raw.FeedAPI)
	}
	var err error
	if r.Harness.had, err = move.Read(r.Families, r.steady); err != nil {
		return err
	}
	r.compareBehaviour(to)
	began := r.Clock.Now()
	if err := r.Stop(); err != nil {
		return err
	}
	// Nothing that works beside the steps may see the change of the subject.
	r.Harness.Watcher.Close()
	r.Harness.log.close()
	if err := pass.Wait(ctx, gap); err != nil {
		return err
	}
	r.About, r.Layout = to, to.Layout
	if err := r.Shim.SetVariant(string(to.Variant)); err != nil {
		return err
	}
	if r.Harness.Watcher, err = r.newWatcher(ctx); err != nil {
		return err
	}
	r.Harness.awaitAgain(began)
	objects := r.World.Objects()
	for _, slice := range objects.Slices {
		r.Harness.Watcher.Changed(mirror.Change{Op: sim.Add, Object: slice, Due: began})
	}
	for _, svc := range objects.Services {
		r.Harness.Watcher.Changed(mirror.Change{Op: sim.Add, Object: svc, Due: began})
	}
	if to.Own {
		if err := r.openSyncLog(ctx); err != nil {
			return err
		}
	}
	return r.Start(ctx, 0)
}

// compareBehaviour records how many Services the next subject treats differently by design.
func (r *Host) compareBehaviour(to subject.Spec) {
	cluster := &subject.Cluster{Objects: r.World.Objects(), Config: r.Config}
	for i := range subject.Behaviours {
		b := &subject.Behaviours[i]
		if !b.Differs(r.About, to) {
			continue
		}
		if n := b.Affected(cluster); n > 0 {
			r.RecordAs(raw.Record{Table: b.ID}, raw.BehaviourDiffers, float64(n))
		}
	}
}

// awaitAgain makes the harness record when every Service is visible, as after the first start.
func (t *Harness) awaitAgain(began time.Time) {
	t.cold.mu.Lock()
	defer t.cold.mu.Unlock()
	t.cold.began, t.cold.due, t.cold.visible, t.cold.lacked, t.cold.recorded, t.cold.moved = began, began, nil, nil, false, true
	t.readings.next()
}

// CountLeft counts what the last subject left in the kernel, once after a move, when the current one has converged.
func (r *Host) CountLeft() error {
	if r.Harness == nil || r.Harness.had == nil {
		return nil
	}
	r.RecordAs(raw.Record{Kind: r.About.Name}, raw.MoveSettled, r.Clock.Since(r.Harness.cold.began).Seconds())
	has, err := move.Read(r.Families, r.steady)
	if err != nil {
		return err
	}
	for family, left := range move.Left(r.Harness.had, has, r.About) {
		for what, n := range left {
			r.RecordAs(raw.Record{Family: string(family), Table: what}, raw.LeftBehind, float64(n))
		}
	}
	r.Harness.had = nil
	return nil
}
