package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
)

// giveUp records that what is open now was not repaired within a time.
func (r *repetition) giveUp(within time.Duration, lacks error) {
	text := fmt.Sprintf("not repaired within %v", within)
	now := r.clock.Now()
	for _, d := range r.open() {
		still := d.still()
		d.mu.Lock()
		if !d.closed {
			d.close(now)
			rec := Record{Unit: "s", Step: d.step, Fault: d.fault, Error: text}
			r.recordAs(rec, FaultRepaired, max(0, now.Sub(d.from()).Seconds()))
		}
		d.mu.Unlock()
		r.say.message(message{Note: fmt.Sprintf("%s (%s)", text, still)})
	}
	r.say.message(message{Note: fmt.Sprintf("%s; the subject is started again on an empty ruleset: %v", text, lacks)})
}

// restoreOrder ends all faults and lets the subject begin again on an empty ruleset, as the lab's own act: the next fault
// begins from order.
func (r *repetition) restoreOrder(ctx context.Context, within time.Duration) error {
	if err := r.heal(ctx); err != nil {
		return err
	}
	if err := r.stop(); err != nil {
		r.say.message(message{Note: "while it was stopped: " + err.Error()})
	}
	if r.about.Backend != "" {
		for _, family := range r.families {
			if err := r.empty(ctx, family); err != nil {
				return err
			}
		}
		if err := r.sentinelsLost(ctx, "all"); err != nil {
			return err
		}
	}
	if r.tunnel != nil {
		r.tunnel.visible.Recheck()
	}
	if err := r.start(ctx, 0); err != nil {
		return err
	}
	waiting, cancel := context.WithTimeout(ctx, max(within, upTime))
	defer cancel()
	if err := r.subject.inSync(waiting); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil && r.Feed == FeedAPI {
			return r.tooLong(fmt.Errorf("also after it was started again: %w", err))
		}
		return err
	}
	return nil
}

// empty takes away all that the subject wrote, and with iptables what others wrote beside it.
func (r *repetition) empty(ctx context.Context, family corev1.IPFamily) error {
	if r.about.Backend == proxier.Nftables {
		if there, _, err := r.ownNftables(family); err != nil || len(there) == 0 {
			return err
		}
	}
	return r.flush(ctx, family, "all")
}

// endFaults ends all faults of a repetition, and whoever follows them.
func (r *repetition) endFaults(ctx context.Context) error {
	err := r.heal(context.WithoutCancel(ctx))
	for _, d := range r.open() {
		select {
		case <-d.repaired:
		default:
			r.say.message(message{Note: d.fault + ": no settle came after it, so that its repair is not known"})
		}
	}
	r.damages.mu.Lock()
	cancel := r.damages.cancel
	r.damages.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	r.damages.wait.Wait()
	return err
}

// errEnded is why waiting for a subject ends that ended itself.
var errEnded = errors.New("the subject has ended")
