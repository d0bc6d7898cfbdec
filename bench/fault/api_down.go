package fault

import (
	"context"
	"fmt"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultAPIDown, disturb: (*Faults).apiDown, lasts: forTime})
}

// apiDown closes the API's listener. Within one process there is no listener: watches end, and new ones get no answer.
func (r *Faults) apiDown(ctx context.Context, f *scenarios.Fault) error {
	if r.Host.Front == nil {
		r.Cluster.BeginGap()
		r.api.hold(ctx, r.Clock, f, func() { r.Cluster.EndGap(false) })
		return nil
	}
	l := r.Host.Listener
	if err := l.Down(); err != nil {
		return fmt.Errorf("fault %s: %w", f.Kind, err)
	}
	r.api.hold(ctx, r.Clock, f, func() {
		if err := l.Up(); err != nil {
			r.Fail(fmt.Errorf("end of fault %s: %w", f.Kind, err))
		}
	})
	return nil
}
