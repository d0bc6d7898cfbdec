package front

import (
	"context"
	"errors"
)

// errCut is the cause with which watches end when CutWatches breaks their connections.
var errCut = errors.New("cut off")

// watchContext returns a context that ends with the request, with DropWatches, CutWatches and Close. ended is done as
// soon as one of these three returns, ctx shortly after.
func (f *Front) watchContext(request context.Context) (ctx, ended context.Context, done context.CancelFunc) {
	f.mu.Lock()
	ended = f.ended
	f.mu.Unlock()
	ctx, cancel := context.WithCancelCause(request)
	stop := context.AfterFunc(ended, func() { cancel(context.Cause(ended)) })
	return ctx, ended, func() { stop(); cancel(nil) }
}

// DropWatches ends all open watches, as an API server does in an orderly shutdown. Clients resume where they were.
func (f *Front) DropWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endWatches(nil)
}

// CutWatches breaks the connections of all open watches, in the middle of an event.
func (f *Front) CutWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endWatches(errCut)
}

func (f *Front) endWatches(cause error) {
	if f.closed {
		return
	}
	f.end(cause)
	f.ended, f.end = context.WithCancelCause(context.Background())
}

// Forget drops the past events. Watches that are not up to date, or start again from an older version, get 410 Gone,
// and their clients must list again.
func (f *Front) Forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forget()
}

func (f *Front) forget() {
	for _, s := range f.stores {
		s.forget()
	}
}

// BeginGap begins an outage: it ends all open watches, and new ones get no events until EndGap. Lists are answered.
// All watches miss the writes meanwhile.
func (f *Front) BeginGap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gap == nil {
		f.gap = make(chan struct{})
	}
	f.endWatches(nil)
}

// EndGap ends an outage, if there is one. With forget, the writes of the outage are forgotten: watches from before it
// get 410 Gone, and their clients list again and find deletions, too. Otherwise watches resume where they were.
func (f *Front) EndGap(forget bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gap == nil {
		return
	}
	if forget {
		f.forget()
	}
	close(f.gap)
	f.gap = nil
}

// gapEnd returns the channel that is closed at the end of an outage; nil if there is no outage.
func (f *Front) gapEnd() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gap
}

// Heal ends an outage, after which watches resume where they were, a pause, and all disturbances of watches.
func (f *Front) Heal() {
	f.Pause(false)
	f.EndGap(false)
	f.WatchFaults.Heal()
}

// wake makes all watches check again.
func (f *Front) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.stores {
		s.wake()
	}
}
