package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"synclab/bench/fault"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/scenarios"
)

// settle waits until the subject has converged and faults are repaired. Then it counts the rules in the kernel.
func (r *repetition) settle(ctx context.Context, s *scenarios.Settle, name string) error {
	r.Messages.Stage(name, 0, 0)
	if err := r.converge(ctx, *s, name); err != nil {
		return err
	}
	return r.host.Subject.Aside(func() error { return errors.Join(r.host.Subject.Count(), r.host.CountLeft()) })
}

// migrate replaces the subject by another one.
func (r *repetition) migrate(ctx context.Context, m *scenarios.Migrate, name string) (err error) {
	to := r.first
	if m.To != "" {
		if to, err = subject.Parse(m.To); err != nil {
			return err
		}
	}
	if r.Followed {
		return errors.New("cannot move in a followed cluster, whose state is not known exactly: use synclab capture, and -f")
	}
	return r.host.Migrate(ctx, to, m.Gap, name)
}

// converge waits until the subject has nothing left to do and all that faults broke is repaired.
func (r *repetition) converge(ctx context.Context, s scenarios.Settle, name string) error {
	waiting, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	err := r.inSync(ctx, waiting)
	switch {
	case err == nil, ctx.Err() != nil || waiting.Err() == nil:
		return err
	case s.RestartOnTimeout:
		r.faults.RecordUnrepaired(s.Timeout, err)
		return r.faults.Reset(ctx, s.Timeout)
	case r.Feed == raw.FeedAPI: // most often one of several subjects: the others continue
		return r.host.TooLong(err)
	}
	number, kind := scenarios.StepOf(name)
	return r.host.Why(fmt.Errorf("not converged after %v; give it more time with --set steps.%d.%s.timeout=…: %w", s.Timeout, number-1, kind, err))
}

// inSync waits, until waiting ends, for the repair of all faults and for the subject to have nothing left to do. Faults
// that last longer are not awaited. A subject that a fault ended is restarted, in ctx.
func (r *repetition) inSync(ctx, waiting context.Context) error {
	for {
		if err := r.host.Revive(ctx); err != nil {
			return err
		}
		trying, stop := context.WithCancelCause(waiting)
		p := r.host.Process()
		if p != nil {
			go func() {
				select {
				case <-p.Done():
					stop(fault.ErrEnded)
				case <-trying.Done():
				}
			}()
		}
		err := r.faults.AwaitRepairs(trying)
		if err == nil {
			err = r.host.Subject.InSync(trying)
		}
		ended := errors.Is(context.Cause(trying), fault.ErrEnded)
		stop(nil)
		if err == nil {
			r.faults.Settled()
			r.flows.Settled()
			return nil
		}
		switch {
		case !ended || waiting.Err() != nil:
			return err
		case !r.host.Mortal.Load(): // it exited by itself, with an error
			return cmp.Or(p.Err(), err)
		}
	}
}
