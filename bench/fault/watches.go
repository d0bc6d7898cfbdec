package fault

import (
	"context"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultWatchDropped, disturb: (*Faults).dropWatches, lasts: atOnce, shows: nextVisible})
	register(Kind{Name: scenarios.FaultWatchStalled, disturb: switched(apiSide.Stall), lasts: forTime, shows: changesVisible})
	register(Kind{Name: scenarios.FaultSlicesFirst, disturb: switched(apiSide.HoldServices), lasts: forTime, shows: changesVisible})
}

// purposeAPIFault is the random stream of API faults.
const purposeAPIFault = 5

// dropWatches ends all watches. Over HTTP, it does so at random (seeded): like a server that shuts down, or in the
// middle of an event.
func (r *Faults) dropWatches(context.Context, *activeFault) error {
	if r.ofAPI == nil {
		r.ofAPI = r.Random(purposeAPIFault)
	}
	if r.Host.Front != nil && r.ofAPI.IntN(2) == 0 {
		r.Host.Front.CutWatches()
		return nil
	}
	r.apiSide().DropWatches()
	return nil
}

// switched turns something of the watches on, and off when the fault ends.
func switched(turn func(w apiSide, on bool)) func(*Faults, context.Context, *activeFault) error {
	return func(r *Faults, _ context.Context, d *activeFault) error {
		w := r.apiSide()
		turn(w, true)
		d.stops = append(d.stops, func() error {
			turn(w, false)
			return nil
		})
		return nil
	}
}
