package proxier

import (
	"context"
	"errors"
	"fmt"

	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
)

// mostIsolations bounds how many lines one sync isolates before it gives up.
const mostIsolations = 64

// write encodes and restores until the kernel has taken everything but what it refuses.
//
// A payload may fail for reasons that lie outside of it: the lock, memory, a killed tool. Then nothing is concluded and
// the sync fails as a whole. If the tool names a line, it is the line's owner that is at fault: a Service port is left
// out and reported, a chain that something else refers to is not deleted. If only the COMMIT failed, the kernel refused
// the table without saying why, and halving the Service ports finds the culprit.
//
// A refused partial payload proves nothing of the Services in it: somebody may have deleted a chain they refer to. So
// it is written again in full first.
func (e *engine) write(ctx context.Context, s *Sync, scope iptables.Scope) error {
	for range mostIsolations {
		err := e.restore(ctx, s, scope)
		var refused *iptables.RestoreError
		if err == nil || !errors.As(err, &refused) || !refused.Refused() {
			return err
		}
		switch owner := refused.Owner; {
		case !scope.Full:
			e.log("payload of a partial sync refused, writing everything", "error", err)
			s.Kind, s.Reason = Full, "failure"
			if scope, err = e.fullScope(); err != nil {
				return err
			}
		case e.rules.Settings().Accounting:
			e.log("payload refused, doing without packet counts", "error", err)
			e.noAccounting = true
			if err := e.applySettings(); err != nil {
				return err
			}
		case owner.IsPort():
			e.refuse(owner.Port, err)
		case owner.Deletes != "":
			e.log("chain cannot be deleted, left empty", "chain", owner.Deletes, "error", err)
			e.rules.Stick(owner.Deletes)
		case owner.Commit:
			return e.bisect(ctx, s, scope)
		default:
			return err // one of the fixed rules: no Service is to blame
		}
	}
	return fmt.Errorf("more than %d lines refused", mostIsolations)
}

// restore encodes once and hands the payload over.
func (e *engine) restore(ctx context.Context, s *Sync, scope iptables.Scope) error {
	start := e.clock.Now()
	payload := e.rules.Encode(e.plan.Ports(), scope)
	s.Encode += e.clock.Since(start)
	run, err := e.tables.Restore(ctx, payload)
	s.Runs = append(s.Runs, run)
	if err != nil {
		return err
	}
	s.Written = payload.Written
	e.rules.Commit(payload)
	return nil
}

func (e *engine) refuse(port tracker.ServicePortName, err error) {
	e.log("rules refused, Service port left as it was", "port", port.String(), "protocol", port.Protocol, "error", err)
	e.rules.Refuse(port)
	e.refusals[port] = err
}

// bisect finds the Service ports for which the kernel refuses a table. First all are held back: if that is refused as
// well, none of them is to blame.
func (e *engine) bisect(ctx context.Context, s *Sync, scope iptables.Scope) error {
	var suspects []tracker.ServicePortName
	for _, port := range e.plan.Ports() {
		if _, known := e.refusals[port.Name]; !known {
			suspects = append(suspects, port.Name)
		}
	}
	for _, name := range suspects {
		e.rules.Refuse(name)
	}
	if err := e.restore(ctx, s, scope); err != nil {
		for _, name := range suspects {
			e.rules.Accept(name)
		}
		return fmt.Errorf("refused without any Service too: %w", err)
	}
	return e.admit(ctx, s, suspects)
}

// admit takes Service ports back in, halving those that the kernel refuses together.
func (e *engine) admit(ctx context.Context, s *Sync, suspects []tracker.ServicePortName) error {
	if len(suspects) == 0 {
		return nil
	}
	for _, name := range suspects {
		e.rules.Accept(name)
	}
	err := e.restore(ctx, s, e.partialScope())
	var refused *iptables.RestoreError
	if err == nil || !errors.As(err, &refused) || !refused.Refused() {
		return err
	}
	for _, name := range suspects {
		e.rules.Refuse(name)
	}
	if len(suspects) == 1 {
		e.refuse(suspects[0], err)
		return nil
	}
	half := len(suspects) / 2
	if err := e.admit(ctx, s, suspects[:half]); err != nil {
		return err
	}
	return e.admit(ctx, s, suspects[half:])
}
