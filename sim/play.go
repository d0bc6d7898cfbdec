package sim

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PlayOptions say how to play a Trace.
type PlayOptions struct {
	// Start is when the Trace begins; zero means now.
	Start time.Time
	// Before is called before each change with when it was due, if set.
	Before func(ch Change, due time.Time)
	// Progress is called after each change, if set.
	Progress func(done, total int)
}

// Play makes the changes of a trace, each at Start plus its due time, in order.
// The loop is open: when the cluster falls behind, changes come as fast as it
// takes them, none is left out, and each keeps its due time. EndpointSlices
// carry it as their last-change-trigger-time, so that latencies count from when
// a change was due and not from when a slow subject let it happen.
//
// When ctx ends, Play ends with how far it came and the context's error.
func (c *Cluster) Play(ctx context.Context, t Trace, opts PlayOptions) error {
	if opts.Start.IsZero() {
		opts.Start = c.clock.Now()
	}
	for i, ch := range t {
		due := opts.Start.Add(ch.Due)
		if err := c.waitUntil(ctx, due); err != nil {
			return fmt.Errorf("play: after %d of %d changes: %w", i, len(t), err)
		}
		object, err := shallowCopy(ch.Object)
		if err != nil {
			return fmt.Errorf("play: change %d of %d: %w", i+1, len(t), err)
		}
		if opts.Before != nil {
			opts.Before(ch, due)
		}
		if err := c.apply(ctx, ch.Op, stamped(object, due)); err != nil {
			return fmt.Errorf("play: change %d of %d: %w", i+1, len(t), err)
		}
		if opts.Progress != nil {
			opts.Progress(i+1, len(t))
		}
	}
	return nil
}

func (c *Cluster) waitUntil(ctx context.Context, due time.Time) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	wait := due.Sub(c.clock.Now())
	if wait <= 0 {
		return nil
	}
	timer := c.clock.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.ctx.Done():
		return ErrStopped
	}
}

// stamped puts the due time into an EndpointSlice, as the EndpointSlice
// controller does with the time of the change that made it act.
func stamped(o runtime.Object, due time.Time) runtime.Object {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return o
	}
	annotations := make(map[string]string, len(s.Annotations)+1)
	maps.Copy(annotations, s.Annotations)
	annotations[corev1.EndpointsLastChangeTriggerTime] = due.UTC().Format(time.RFC3339Nano)
	s.Annotations = annotations
	return s
}
