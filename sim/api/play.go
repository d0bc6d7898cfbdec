package api

import (
	"context"
	"fmt"
	"maps"
	"synclab/sim"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// PlayOptions say how to play a Trace.
type PlayOptions struct {
	// Start is when the Trace begins; zero means now.
	Start time.Time
	// Before, if set, is called before each change with its due time.
	Before func(ch sim.Change, due time.Time)
	// Progress, if set, is called after each change.
	Progress func(done, total int)
}

// Play makes the changes of a trace, each at Start plus its due time, in order. The loop is open: when the cluster
// falls behind, changes come as fast as it takes them. None is left out, and each keeps its due time. EndpointSlices
// carry the due time as their last-change-trigger-time, so that latencies count from it even if a slow subject delays
// a change.
//
// When ctx ends, Play returns the context's error and says how many changes were made.
func (c *Cluster) Play(ctx context.Context, t sim.Trace, opts PlayOptions) error {
	if opts.Start.IsZero() {
		opts.Start = c.clock.Now()
	}
	for i, ch := range t {
		due := opts.Start.Add(ch.Due)
		if err := c.waitUntil(ctx, due); err != nil {
			return fmt.Errorf("play: after %d of %d changes: %w", i, len(t), err)
		}
		object, err := sim.ShallowCopy(ch.Object)
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

// stamped puts the due time into an EndpointSlice, as the EndpointSlice controller does with the time of the change
// that triggered it.
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
