package fault

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/pass"
	"synclab/bench/raw"
)

// RecordUnrepaired records that the open faults were not repaired within a time.
func (r *Faults) RecordUnrepaired(within time.Duration, stillMissing error) {
	text := fmt.Sprintf("not repaired within %v", within)
	now := r.Clock.Now()
	for _, d := range r.open() {
		still := d.still()
		d.mu.Lock()
		if !d.closed {
			d.close(now)
			rec := raw.Record{Unit: "s", Step: d.step, Fault: d.fault, Error: text}
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
	if err := r.clear(ctx); err != nil {
		return err
	}
	if err := r.Host.Stop(); err != nil {
		r.Messages.Send(pass.Message{Note: "stopping the subject: " + err.Error()})
	}
	if r.About.KnownBackend() {
		for _, family := range r.Families {
			if err := r.empty(ctx, family); err != nil {
				return err
			}
		}
		if err := r.TableEmptied(ctx, "all"); err != nil {
			return err
		}
	}
	if r.Host.Harness != nil {
		r.Host.Harness.Visible.Recheck()
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

// empty deletes everything that the subject wrote, and with iptables also what other programs wrote.
func (r *Faults) empty(ctx context.Context, family corev1.IPFamily) error {
	if r.About.Nftables() {
		if there, _, err := r.OwnNftables(family); err != nil || len(there) == 0 {
			return err
		}
	}
	return r.flush(ctx, family, "all")
}

// End clears all faults of a repetition and ends their followers.
func (r *Faults) End(ctx context.Context) error {
	err := r.clear(context.WithoutCancel(ctx))
	for _, d := range r.open() {
		select {
		case <-d.repaired:
		default:
			r.Messages.Send(pass.Message{Note: d.fault + ": its repair is unknown, because no settle step was completed after it was over"})
		}
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

// ErrEnded cancels waiting for a subject that exited.
var ErrEnded = errors.New("the subject has exited")
