package fault

import (
	"context"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultAPIDown, disturb: (*Faults).apiDown, lasts: forTime, shows: changesVisible})
}

// apiDown closes the API's listener. Within one process there is no listener: watches end, and new ones get no answer.
func (r *Faults) apiDown(_ context.Context, d *activeFault) error {
	if r.Host.Front == nil {
		r.Cluster.BeginGap()
		d.stops = append(d.stops, func() error {
			r.Cluster.EndGap(false)
			return nil
		})
		return nil
	}
	d.stops = append(d.stops, r.Host.Listener.Up)
	return r.Host.Listener.Down()
}
