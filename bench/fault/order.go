package fault

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name:   scenarios.FaultClear,
		inject: func(r *Faults, _ context.Context, _ *activeFault) error { return r.clear() },
	})
}

// purposeFault and the numbers after it, one per fault, are the random streams of faults.
const purposeFault = 1 << 16

// Inject injects a fault and has its repair recorded.
func (r *Faults) Inject(ctx context.Context, f *scenarios.Fault, name string) error {
	r.Messages.Stage(name, 0, 0)
	d := newFault(f, name)
	if why := Spares(r.Env, f); why != "" {
		r.note(d, "%s", why)
		return nil
	}
	if d.kind.Name == "" {
		return fmt.Errorf("fault %s is not known", f.Kind)
	}
	r.count++
	d.random = r.Random(purposeFault + uint64(r.count))
	return r.inject(ctx, d)
}

func (r *Faults) inject(ctx context.Context, d *activeFault) (err error) {
	if d.kind.OfAPI() && r.Host.Harness == nil {
		r.awaiting = append(r.awaiting, d)
		return nil
	}
	if err := r.watchAnswers(); err != nil {
		return err
	}
	if d.kind.OfAPI() {
		err = r.disturb(ctx, d)
	} else {
		err = d.kind.inject(r, ctx, d)
	}
	if err != nil || !d.is(active) {
		return errors.Join(err, d.stop())
	}
	r.follow(d)
	switch d.kind.lasts {
	case forTime, untilCleared:
		r.hold(d)
	case atOnce:
		d.move(ended, r.Clock.Now())
	}
	return nil
}

// stop ends what a fault does.
func (d *activeFault) stop() error {
	d.mu.Lock()
	stops := d.stops
	d.mu.Unlock()
	var errs []error
	for _, stop := range slices.Backward(stops) {
		errs = append(errs, stop())
	}
	return errors.Join(errs...)
}

// note reports what a fault affected.
func (r *Faults) note(d *activeFault, format string, args ...any) {
	r.Messages.Send(pass.Message{Note: d.name + ": " + fmt.Sprintf(format, args...)})
}

// hold ends a fault after its time, or when faults are cleared.
func (r *Faults) hold(d *activeFault) {
	holding, early := context.WithCancel(context.Background())
	d.early, d.over = early, make(chan error, 1)
	r.mu.Lock()
	r.holds = append(r.holds, d)
	r.mu.Unlock()
	go func() {
		defer early()
		var over <-chan time.Time
		fail := func(error) {} // who clears faults gets their errors
		if d.kind.lasts == forTime {
			timer := r.Clock.NewTimer(d.For)
			defer timer.Stop()
			over = timer.C()
		}
		select {
		case <-over:
			fail = r.Fail // else steps would wait for what cannot come
		case <-holding.Done():
		}
		err := d.stop()
		d.move(ended, r.Clock.Now())
		if err != nil {
			err = fmt.Errorf("end of %s: %w", d.name, err)
			fail(err)
		}
		d.over <- err
	}()
}

// clear clears all active and injected faults.
func (r *Faults) clear() error {
	r.mu.Lock()
	holds := r.holds
	r.holds = nil
	r.mu.Unlock()
	var errs []error
	for _, d := range holds { // all at once: the end of one may wait for another, such as the lock
		d.early()
	}
	for _, d := range holds {
		errs = append(errs, <-d.over)
	}
	if r.Shim != nil {
		_, err := r.Shim.ClearFaults()
		errs = append(errs, err)
	}
	errs = append(errs, r.clearAPI())
	r.Tools.fail.Store(0)
	r.Tools.kill.Store(0)
	for _, d := range r.open() {
		if d.kind.Planted != "" && !d.endStruck() {
			r.withoutEffect(d)
		}
	}
	return errors.Join(errs...)
}

// RecordUnrepaired records that the open faults were not repaired within a time.
func (r *Faults) RecordUnrepaired(within time.Duration, stillMissing error) {
	text := fmt.Sprintf("not repaired within %v", within)
	now := r.Clock.Now()
	for _, d := range r.open() {
		still := d.still()
		d.mu.Lock()
		if d.state != closed {
			d.enter(closed, now)
			rec := raw.Record{Step: d.step, Fault: d.name, Error: text}
			r.RecordAs(rec, raw.FaultRepaired, max(0, now.Sub(d.from()).Seconds()))
		}
		d.mu.Unlock()
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s (%s)", text, still)})
	}
	r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s; the subject restarts on an empty ruleset: %v", text, stillMissing)})
}

// Reset clears all faults and restarts the subject on an empty ruleset, so that the next fault starts from a
// converged state.
func (r *Faults) Reset(ctx context.Context, within time.Duration) error {
	if err := r.clear(); err != nil {
		return err
	}
	if err := r.Host.Stop(); err != nil {
		r.Messages.Send(pass.Message{Note: "stopping the subject: " + err.Error()})
	}
	if r.About.KnownBackend() { // with iptables, what other programs wrote goes too
		for _, family := range r.Families {
			if err := r.flush(ctx, family, "all"); err != nil {
				return err
			}
		}
		if err := r.TableEmptied(ctx, "all"); err != nil {
			return err
		}
	}
	if r.Host.Harness != nil {
		r.Host.Harness.Watcher.Recheck()
	}
	if err := r.Host.Start(ctx, 0); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, max(within, pass.UpTime))
	defer cancel()
	if err := r.Host.Subject.InSync(waiting); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil && r.Feed == raw.FeedAPI {
			return r.Host.TooLong(fmt.Errorf("after a restart too: %w", err))
		}
		return err
	}
	return nil
}

// End clears all faults of a repetition and ends their followers.
func (r *Faults) End() error {
	err := r.clear()
	for _, d := range r.open() {
		r.note(d, "its repair is unknown, because no settle step was completed after it was over")
	}
	r.mu.Lock()
	cancel := r.cancel
	r.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.wait.Wait()
	return err
}
