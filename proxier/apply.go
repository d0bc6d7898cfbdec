package proxier

import (
	"context"
	"errors"
	"fmt"

	"synclab/proxier/iptables"
	"synclab/proxier/tracker"
)

// mostIsolations bounds how many lines one sync isolates one by one before it halves.
const mostIsolations = 64

// write encodes and restores until the kernel has taken everything but what it refuses.
//
// A payload may fail for reasons that lie outside of it: the lock, memory, a killed tool. Then nothing is concluded and
// the sync fails as a whole. If the tool names a line, it is the line's owner that is at fault: a Service port is left
// out and reported, a chain that something else refers to is not deleted. If only the COMMIT failed, the kernel refused
// the table without saying why, and halving the Service ports finds the culprit.
//
// A refused partial payload proves nothing of the Services in it: somebody may have deleted a chain they refer to, and
// the jumps to it. So it is written again in full first.
func (e *engine) write(ctx context.Context, s *Sync, scope iptables.Scope) error {
	doubted := false // packet counts were left out, as the first to blame
	for range mostIsolations {
		err := e.restore(ctx, s, scope)
		refused := refusal(err)
		if refused == nil {
			return err
		}
		switch owner := refused.Owner; {
		case !scope.Full:
			e.log("payload of a partial sync refused, writing everything", "error", err)
			s.Kind, s.Reason = Full, "failure"
			if err := e.prepareFull(ctx, s); err != nil {
				return err
			}
			if scope, err = e.fullScope(); err != nil {
				return err
			}
			continue
		case e.rules.Settings().Accounting:
			e.log("payload refused, doing without packet counts", "error", err)
			e.noAccounting, doubted = true, true
			if err := e.applySettings(); err != nil {
				return err
			}
			continue
		case owner.IsPort():
			e.refuse(owner.Port, err)
		case owner.Deletes != "":
			e.log("chain cannot be deleted, left empty", "chain", owner.Deletes, "error", err)
			e.rules.Stick(owner.Deletes)
		default:
			return e.bisect(ctx, s, scope)
		}
		if doubted {
			e.noAccounting = false // it was something else: the next full sync may count again
		}
	}
	return e.bisect(ctx, s, scope)
}

// refusal is the error of a restore that was refused; nil for any other.
func refusal(err error) *iptables.RestoreError {
	var refused *iptables.RestoreError
	if errors.As(err, &refused) && refused.Refused() {
		return refused
	}
	return nil
}

// restore encodes once and hands the payload over.
func (e *engine) restore(ctx context.Context, s *Sync, scope iptables.Scope) error {
	start := e.clock.Now()
	payload := e.rules.Encode(e.plan.Ports(), scope)
	s.Encode += e.clock.Since(start)
	run, err := e.tables.Restore(ctx, payload)
	s.Runs = append(s.Runs, run)
	if err != nil {
		e.unsure = e.unsure || refusal(err) == nil
		return err
	}
	e.unsure = false
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
	err := e.restore(ctx, s, scope)
	if refusal(err) != nil {
		err = fmt.Errorf("refused without any Service too: %w", err)
	}
	if err != nil {
		for _, name := range suspects {
			e.rules.Accept(name)
		}
		return err
	}
	if err := e.admit(ctx, s, suspects); err != nil || !e.rules.Dirty() {
		return err
	}
	// The last payload was refused, but its first table may have been taken.
	return e.restorePartial(ctx, s)
}

func (e *engine) restorePartial(ctx context.Context, s *Sync) error {
	scope, err := e.partialScope()
	if err != nil {
		return err
	}
	return e.restore(ctx, s, scope)
}

// admit takes Service ports back in, halving those that the kernel refuses together.
func (e *engine) admit(ctx context.Context, s *Sync, suspects []tracker.ServicePortName) error {
	if len(suspects) == 0 {
		return nil
	}
	for _, name := range suspects {
		e.rules.Accept(name)
	}
	err := e.restorePartial(ctx, s)
	if refusal(err) == nil {
		return err
	}
	if len(suspects) == 1 {
		e.refuse(suspects[0], err)
		return nil
	}
	for _, name := range suspects {
		e.rules.Refuse(name)
	}
	half := len(suspects) / 2
	if err := e.admit(ctx, s, suspects[:half]); err != nil {
		return err
	}
	return e.admit(ctx, s, suspects[half:])
}
