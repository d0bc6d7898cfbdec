package fault

import (
	"context"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultWatchDropped, disturb: (*Faults).dropWatches, shows: nextVisible})
	register(Kind{Name: scenarios.FaultWatchStalled, disturb: switched(apiSide.Stall), lasts: forTime})
	register(Kind{Name: scenarios.FaultSlicesFirst, disturb: switched(apiSide.HoldServices), lasts: forTime})
}

// purposeAPIFault is the random stream of API faults.
const purposeAPIFault = 5

// dropWatches ends all watches. Over HTTP, it does so at random (seeded): like a server that shuts down, or in the
// middle of an event.
func (r *Faults) dropWatches(context.Context, *scenarios.Fault) error {
	if r.api.random == nil {
		r.api.random = r.Random(purposeAPIFault)
	}
	if r.Host.Front != nil && r.api.random.IntN(2) == 0 {
		r.Host.Front.CutWatches()
		return nil
	}
	r.apiSide().DropWatches()
	return nil
}

// switched turns something of the watches on, and off after the fault's time.
func switched(turn func(w apiSide, on bool)) func(*Faults, context.Context, *scenarios.Fault) error {
	return func(r *Faults, ctx context.Context, f *scenarios.Fault) error {
		w := r.apiSide()
		turn(w, true)
		r.api.hold(ctx, r.Clock, f, func() { turn(w, false) })
		return nil
	}
}
