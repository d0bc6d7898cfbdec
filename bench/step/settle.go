package step

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"synclab/bench/raw"
	"synclab/scenarios"
)

// errEnded cancels waiting for a subject that exited.
var errEnded = errors.New("the subject has exited")

// settle waits until the subject has converged and faults are repaired. Then it counts the rules in the kernel.
func (r *Parts) settle(ctx context.Context, s Step) error {
	r.Messages.Stage(s.Name, 0, 0)
	if err := r.converge(ctx, *s.Settle, s.Name); err != nil {
		return err
	}
	return r.Host.Subject.Aside(func() error { return errors.Join(r.Host.Subject.Count(), r.Host.CountLeft()) })
}

// converge waits until the subject has nothing left to do and all that faults broke is repaired.
func (r *Parts) converge(ctx context.Context, s scenarios.Settle, name string) error {
	waiting, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := r.inSync(ctx, waiting)
	switch {
	case err == nil, ctx.Err() != nil || waiting.Err() == nil:
		return err
	case s.RestartOnTimeout:
		r.Faults.RecordUnrepaired(s.Timeout, err)
		return r.Faults.Reset(ctx, s.Timeout)
	case r.Feed == raw.FeedAPI: // most often one of several subjects: the others continue
		return r.Host.TooLong(err)
	}
	number, kind := scenarios.StepOf(name)
	return r.Host.Why(fmt.Errorf("not converged after %v; give it more time with --set steps.%d.%s.timeout=…: %w", s.Timeout, number-1, kind, err))
}

// inSync waits, until waiting ends, for the repair of all faults and for the subject to have nothing left to do. Faults
// that last longer are not awaited. A subject that a fault ended is restarted, in ctx.
func (r *Parts) inSync(ctx, waiting context.Context) error {
	for {
		if err := r.Host.Revive(ctx); err != nil {
			return err
		}
		trying, stop := context.WithCancelCause(waiting)
		p := r.Host.Process()
		if p != nil {
			go func() {
				select {
				case <-p.Done():
					stop(errEnded)
				case <-trying.Done():
				}
			}()
		}
		err := r.Faults.AwaitRepairs(trying)
		if err == nil {
			err = r.Host.Subject.InSync(trying)
		}
		ended := errors.Is(context.Cause(trying), errEnded)
		stop(nil)
		if err == nil {
			r.Faults.Settled()
			r.Flows.Settled()
			return nil
		}
		switch {
		case !ended || waiting.Err() != nil:
			return err
		case !r.Host.Mortal.Load(): // it exited by itself, with an error
			return cmp.Or(p.Err(), err)
		}
	}
}
