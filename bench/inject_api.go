package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/front"
)

// apiSide is who serves what the subject watches: the API front, or the cluster to the informers of this process.
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

// apiFaults are the faults of the API of one repetition, and when they end: those who serve know no time.
type apiFaults struct {
	front    *front.Front // nil: there is no API that a process could ask
	listener *front.Listener
	// awaiting are those that came before the subject, and begin with it.
	awaiting []awaitingFault
	random   *rand.Rand

	mu    sync.Mutex
	holds map[string]context.CancelFunc // by kind
}

// awaitingFault is a step that came before the subject.
type awaitingFault struct {
	*scenarios.Fault
	step string
}

const (
	// purposeAPIFault is for what faults of the API draw by lot.
	purposeAPIFault = 5
	// swapWait is how long a change waits for the next one, to change places with: that long at least, and not as long
	// again. In a library scenario there is a change a second.
	swapWait = 2 * time.Second
	// While a subject's watches are away, these changes are made: Services go and come, and endpoints change. The last one
	// of each kind is no deletion, so that whoever lists again meets its version.
	missedServices, missedEndpoints, missedRate = 4, 8, 40
)

// serve notes who serves the subject's API.
func (a *apiFaults) serve(f *front.Front, l *front.Listener) { a.front, a.listener = f, l }

// breakAPI breaks how changes reach the subject; before there is anything that it could ask, from then on.
func (r *repetition) breakAPI(ctx context.Context, f *scenarios.Fault, name string) error {
	if r.tunnel == nil {
		r.api.awaiting = append(r.api.awaiting, awaitingFault{f, name})
		return nil
	}
	d, err := r.wound(ctx, f, name, &damage{})
	if err != nil {
		return err
	}
	if err := r.apiFault(ctx, f); err != nil {
		return err
	}
	r.follow(d)
	switch {
	case f.Holds():
		r.hold(d, f.For, nil) // whose end is the API's own
	case !d.counted():
		d.end(r.clock.Now())
	}
	return nil
}

// beginAPIFaults begins the faults that came before the subject: what holds, holds from now on.
func (r *repetition) beginAPIFaults(ctx context.Context) error {
	awaiting := r.api.awaiting
	r.api.awaiting = nil
	for _, f := range awaiting {
		if err := r.breakAPI(ctx, f.Fault, f.step); err != nil {
			return err
		}
	}
	return nil
}

func (r *repetition) apiSide() apiSide {
	if r.api.front != nil {
		return r.api.front
	}
	return r.cluster
}

// apiFault breaks how the cluster's changes reach the subject. What holds is ended by its time, by the next fault of its
// kind, which begins anew, or by healAPI.
func (r *repetition) apiFault(ctx context.Context, f *scenarios.Fault) error {
	w := r.apiSide()
	switch f.Kind {
	case scenarios.FaultWatchDropped:
		r.dropWatches()
	case scenarios.FaultRelist:
		return r.relist(ctx)
	case scenarios.FaultWatchStalled:
		w.Stall(true)
		r.api.hold(ctx, r.clock, f, func() { w.Stall(false) })
	case scenarios.FaultSlicesFirst:
		w.HoldServices(true)
		r.api.hold(ctx, r.clock, f, func() { w.HoldServices(false) })
	case scenarios.FaultEventsRepeated:
		w.Repeat(f.Times)
	case scenarios.FaultEventsSwapped:
		w.Swap(f.Times)
		r.api.during(ctx, f.Kind, func(ctx context.Context) { settleSwaps(ctx, r.clock, w) })
	case scenarios.FaultAPIDown:
		return r.apiDown(ctx, f)
	default:
		return fmt.Errorf("fault %s is none of the API", f.Kind)
	}
	return nil
}

// dropWatches ends all watches. Over HTTP it is drawn by lot whether as by a server that shuts down, or in the middle of
// an event.
func (r *repetition) dropWatches() {
	if r.api.random == nil {
		r.api.random = r.random(purposeAPIFault)
	}
	if r.api.front != nil && r.api.random.IntN(2) == 0 {
		r.api.front.CutWatches()
		return
	}
	r.apiSide().DropWatches()
}

// relist lets the subject miss changes for good: it can only learn of them, deletions above all, by listing again.
func (r *repetition) relist(ctx context.Context) error {
	w := r.apiSide()
	w.BeginGap()
	missed := false
	defer func() { w.EndGap(missed) }()
	if r.followed { // the world knows no changes that would fit a followed cluster: who is up to date misses nothing
		missed = true
		return nil
	}
	name := *r.step.Load()
	for _, churn := range []scenarios.Churn{
		{Kind: "services", Events: missedServices, Rate: missedRate}, {Kind: "endpoints", Events: missedEndpoints, Rate: missedRate},
	} {
		if err := r.play(ctx, name, func() (sim.Trace, error) { return r.world.Churn(churn) }); err != nil {
			return fmt.Errorf("changes that the subject misses: %w", err)
		}
	}
	missed = true
	return nil
}

// apiDown lets nobody listen. In one process there is no listener: watches end, and none is answered.
func (r *repetition) apiDown(ctx context.Context, f *scenarios.Fault) error {
	l := r.api.listener
	if l == nil {
		r.cluster.BeginGap()
		r.api.hold(ctx, r.clock, f, func() { r.cluster.EndGap(false) })
		return nil
	}
	if err := l.Down(); err != nil {
		return fmt.Errorf("fault %s: %w", f.Kind, err)
	}
	r.api.hold(ctx, r.clock, f, func() {
		if err := l.Up(); err != nil {
			r.fail(fmt.Errorf("the end of fault %s: %w", f.Kind, err))
		}
	})
	return nil
}

// settleSwaps lets no change wait for the next one forever.
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

// hold ends a fault when its time is over, unless another of its kind has begun by then, or it is healed.
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

// during does something as long as no other fault of a kind begins and none is healed.
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

// healAPI ends all faults of the API that hold. What they held back is told.
func (r *repetition) healAPI() error {
	a := &r.api
	a.awaiting = nil
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.holds {
		cancel()
	}
	clear(a.holds)
	var err error
	if a.listener != nil {
		err = a.listener.Up()
	}
	r.apiSide().Heal()
	if err != nil {
		return errors.Join(errors.New("the API stays down"), err)
	}
	return nil
}
