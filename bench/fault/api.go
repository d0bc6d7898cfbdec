package fault

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

const (
	// purposeAPIFault is the random stream of API faults.
	purposeAPIFault = 5
	// swapWait is how long a change waits to be reordered with the next one: at least once and less than twice this
	// time. A library scenario makes one change a second.
	swapWait = 2 * time.Second
	// The changes during a relist fault: Services are deleted and created, and endpoints change. The last change of each
	// kind is no deletion, so that a new list shows its version.
	missedServices, missedEndpoints, missedRate = 4, 8, 40
)

// disturb injects a fault of the API. Before the subject's watches exist, the fault waits for them. A lasting fault ends
// after its time, with the next fault of its kind, which starts anew, or in clearAPIFaults.
func (r *Faults) disturb(ctx context.Context, d *activeFault) error {
	if r.Host.Harness == nil {
		r.api.awaiting = append(r.api.awaiting, d)
		return nil
	}
	if err := r.start(ctx, d); err != nil {
		return err
	}
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

func (r *Faults) stall(ctx context.Context, f *scenarios.Fault) error {
	w := r.apiSide()
	w.Stall(true)
	r.api.hold(ctx, r.Clock, f, func() { w.Stall(false) })
	return nil
}

func (r *Faults) slicesFirst(ctx context.Context, f *scenarios.Fault) error {
	w := r.apiSide()
	w.HoldServices(true)
	r.api.hold(ctx, r.Clock, f, func() { w.HoldServices(false) })
	return nil
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

// hiddenChurns are the changes that fault relist hides from the subject.
var hiddenChurns = []scenarios.Churn{
	{Kind: "services", Events: missedServices, Rate: missedRate}, {Kind: "endpoints", Events: missedEndpoints, Rate: missedRate},
}

// relist hides changes from the subject's watches. Only a new list shows them, above all the deletions.
func (r *Faults) relist(ctx context.Context, _ *scenarios.Fault) error {
	w := r.apiSide()
	w.BeginGap()
	missed := false
	defer func() { w.EndGap(missed) }()
	if r.Followed { // the world has no changes that fit a followed cluster; the fault hides none
		missed = true
		return nil
	}
	name := *r.Step.Load()
	for _, churn := range hiddenChurns {
		if err := r.Play(ctx, name, func() (sim.Trace, error) { return r.World.Churn(churn) }); err != nil {
			return fmt.Errorf("apply the changes hidden from the subject: %w", err)
		}
	}
	missed = true
	return nil
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
