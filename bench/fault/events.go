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

func (r *Faults) duplicate(_ context.Context, f *scenarios.Fault) error {
	r.apiSide().Repeat(f.Times)
	return nil
}

func (r *Faults) reorder(ctx context.Context, f *scenarios.Fault) error {
	w := r.apiSide()
	w.Swap(f.Times)
	r.api.during(ctx, f.Kind, func(ctx context.Context) { settleSwaps(ctx, r.Clock, w) })
	return nil
}

// swapWait is how long a change waits to be reordered with the next one: at least once and less than twice this time. A
// library scenario makes one change a second.
const swapWait = 2 * time.Second

// settleSwaps delivers changes that have waited for a next one for swapWait.
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
