package fault

import (
	"context"
	"errors"
)

// apiSide is the source of the subject's watches: the fake API server, or the cluster for the informers of this process.
type apiSide interface {
	DropWatches()
	BeginGap()
	EndGap(forget bool)
	Stall(on bool)
	HoldServices(on bool)
	Repeat(writes int)
	Swap(times int)
	Settle(version int64)
	Waits() int64
	Disturbs() int
	Heal()
}

// disturb injects a fault of the API. It replaces active faults of its kind: their end does not end it.
func (r *Faults) disturb(ctx context.Context, d *activeFault) error {
	for _, before := range r.list() {
		if before.kind == d.kind {
			before.mu.Lock()
			before.stops = nil
			before.mu.Unlock()
		}
	}
	r.start(d)
	return d.kind.disturb(r, ctx, d)
}

// Opened begins the faults that came before the subject. The time of lasting faults starts now.
func (r *Faults) Opened(ctx context.Context) error {
	awaiting := r.awaiting
	r.awaiting = nil
	for _, d := range awaiting {
		if err := r.inject(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

func (r *Faults) apiSide() apiSide {
	if r.Host.Front != nil {
		return r.Host.Front
	}
	return r.Cluster
}

// clearAPI ends what the API does with changes. The subject then gets the changes that it held back.
func (r *Faults) clearAPI() error {
	r.awaiting = nil
	var err error
	if r.Host.Front != nil {
		err = r.Host.Listener.Up()
	}
	r.apiSide().Heal()
	if err != nil {
		return errors.Join(errors.New("restart the API's listener"), err)
	}
	return nil
}
