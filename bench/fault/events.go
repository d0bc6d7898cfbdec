package fault

import (
	"context"
	"time"

	"k8s.io/utils/clock"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultEventsDuplicated, disturb: (*Faults).duplicate, lasts: forChanges, shows: eachVisible})
	register(Kind{Name: scenarios.FaultEventsReordered, disturb: (*Faults).reorder, lasts: forChanges, shows: eachVisible})
}

func (r *Faults) duplicate(_ context.Context, d *activeFault) error {
	r.apiSide().Repeat(d.Times)
	return nil
}

func (r *Faults) reorder(ctx context.Context, d *activeFault) error {
	w := r.apiSide()
	w.Swap(d.Times)
	go settleSwaps(ctx, r.Clock, w)
	return nil
}

// swapWait is how long a change waits to be reordered with the next one: at least once and less than twice this time. A
// library scenario makes one change a second.
const swapWait = 2 * time.Second

// settleSwaps delivers changes that have waited for a next one for swapWait. Without such changes, it does nothing.
func settleSwaps(ctx context.Context, clk clock.WithTicker, w apiSide) {
	ticker := clk.NewTicker(swapWait)
	defer ticker.Stop()
	for before := int64(0); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
		now := w.Waits()
		if now > 0 && now == before {
			w.Settle(now)
		}
		before = now
	}
}
