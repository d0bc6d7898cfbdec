package front

import (
	"context"
	"errors"
)

// errCut is the cause of the end of watches whose connection breaks.
var errCut = errors.New("cut off")

// watchContext ends with the request, with DropWatches, CutWatches and Close.
func (f *Front) watchContext(request context.Context) (context.Context, context.CancelFunc) {
	f.mu.Lock()
	ended := f.ended
	f.mu.Unlock()
	ctx, cancel := context.WithCancelCause(request)
	stop := context.AfterFunc(ended, func() { cancel(context.Cause(ended)) })
	return ctx, func() { stop(); cancel(nil) }
}

// DropWatches ends the watches that are open, as an API server does that shuts
// down in an orderly way. Clients come back from where they were.
func (f *Front) DropWatches() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endWatches(nil)
}

// CutWatches breaks the connections of the watches that are open, in the middle
// of an event.
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

// Forget drops the past events: what is not up to date, or starts again from an
// older version, gets 410 and must list again.
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

// BeginGap ends the watches that are open, and tells those that come nothing
// until EndGap; lists are answered. What is written meanwhile is missed by all.
func (f *Front) BeginGap() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.gap == nil {
		f.gap = make(chan struct{})
	}
	f.endWatches(nil)
}

// EndGap ends a gap, if there is one. With forget, what was written in it has
// been forgotten: who came back from before gets 410 Gone, lists again, and
// learns that way of deletions, too. Otherwise watches go on where they were.
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

// gapEnd is what a watch has to wait for; nil if there is no gap.
func (f *Front) gapEnd() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.gap
}

// Heal ends a gap, after which watches go on where they were, and everything
// else that disturbs them, a pause too.
func (f *Front) Heal() {
	f.Pause(false)
	f.EndGap(false)
	f.Disturbance.Heal()
}

// wake has all watches look again.
func (f *Front) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.stores {
		s.wake()
	}
}
