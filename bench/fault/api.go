package fault

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"k8s.io/utils/clock"

	"synclab/scenarios"
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

// apiFaults are the API faults of one repetition, with their timers. An apiSide itself knows no time.
type apiFaults struct {
	// awaiting are the faults that came before the subject, and begin with it.
	awaiting []*activeFault
	random   *rand.Rand

	mu    sync.Mutex
	holds map[string]context.CancelFunc // by kind
}

// disturb injects a fault of the API. Before the subject's watches exist, the fault waits for them. A lasting fault ends
// after its time, with the next fault of its kind, which starts anew, or in clearAPIFaults.
func (r *Faults) disturb(ctx context.Context, d *activeFault) error {
	if r.Host.Harness == nil {
		r.api.awaiting = append(r.api.awaiting, d)
		return nil
	}
	r.start(d)
	return d.kind.disturb(r, ctx, d.Fault)
}

// Opened begins the faults that came before the subject. The time of lasting faults starts now.
func (r *Faults) Opened(ctx context.Context) error {
	awaiting := r.api.awaiting
	r.api.awaiting = nil
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

// hold ends a fault after its time, unless another fault of its kind has begun by then or faults were cleared.
func (a *apiFaults) hold(ctx context.Context, clk clock.WithTicker, f *scenarios.Fault, end func()) {
	timer := clk.NewTimer(f.For)
	a.during(ctx, f.Kind, func(ctx context.Context) {
		defer timer.Stop()
		select {
		case <-timer.C():
		case <-ctx.Done():
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if ctx.Err() == nil {
			end()
		}
	})
}

// during runs do until another fault of that kind begins or faults are cleared.
func (a *apiFaults) during(ctx context.Context, kind string, do func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	if before := a.holds[kind]; before != nil {
		before()
	}
	if a.holds == nil {
		a.holds = map[string]context.CancelFunc{}
	}
	a.holds[kind] = cancel
	go do(ctx)
}

// clearAPIFaults ends all active API faults. The subject then gets the changes that they held back.
func (r *Faults) clearAPIFaults() error {
	a := &r.api
	a.awaiting = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.holds {
		cancel()
	}
	clear(a.holds)
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
