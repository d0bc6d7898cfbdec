package check

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/fault"
	"synclab/bench/lab/shim"
	"synclab/bench/pass"
	"synclab/bench/verify/invariants"
)

// I5 is about the tables right before and right after a failed restore. So if restores may fail and a check includes I5,
// the tables are read after every call that writes them. The shim reports these calls. A reading counts only if no other
// call wrote meanwhile. The shim's records show that afterwards.

// longestReading bounds the time to read the tables of a family. A longer read would still run when the subject tries
// again, and would delay it.
const longestReading = time.Second

// mostFailed is the number of failed restores kept for a check.
const mostFailed = 50

// restores are the restores that failed since the last check.
type restores struct {
	mu     sync.Mutex
	last   map[corev1.IPFamily]reading
	failed []failedRestore
}

// reading is the content of the tables at a moment between from and to.
type reading struct {
	from, to time.Time
	tables   invariants.Saved // the subject's own chains that packets can reach
}

// failedRestore is a call and the readings before and after it.
type failedRestore struct {
	call          shim.Call
	before, after reading
}

// looksAtRestores reports whether a check includes I5 in a scenario that makes restores fail.
func (r *Checks) looksAtRestores() bool {
	asked, fail := false, false
	for _, step := range r.Scenario.Steps {
		if c := step.Check; c != nil {
			asked = asked || len(c.Invariants) == 0 || slices.Contains(c.Invariants, "I5")
		}
		fail = fail || step.Fault != nil && fault.Of(step.Fault.Kind).FailsRestores
	}
	return asked && fail
}

// watchRestores reads the tables after each call that writes them, until the repetition's faults end. Only iptables
// tables can be read back whole, and only the calls of a subject's tools show when to read them.
func (r *Checks) watchRestores() error {
	if r.Shim == nil || !r.About.Iptables() || !r.About.HasTools() || !r.looksAtRestores() {
		return nil
	}
	ended, err := r.Shim.Calls(r.Faults.Context(), r.Fail)
	if err != nil {
		return err
	}
	r.Faults.Follower(func(ctx context.Context) {
		slow := false
		for call := range ended {
			if slow || !r.wrote(call) {
				continue
			}
			now := reading{from: r.Clock.Now()}
			saved, err := invariants.Save(ctx, r.About.Variant, call.Family())
			if err != nil {
				continue // no reading: the conntrack table may be full, or memory scarce
			}
			now.to, now.tables = r.Clock.Now(), saved.Reachable()
			r.restores.add(call, now, r.About.Writes(call) && call.ExitCode != 0)
			if took := now.to.Sub(now.from); took > longestReading {
				slow = true
				note := fmt.Sprintf("I5 is not checked for later failed restores: reading the tables took %v", took)
				r.Messages.Send(pass.Message{Note: note})
			}
		}
	})
	return nil
}

// wrote reports whether a call may have changed rules of a measured family.
func (r *Checks) wrote(c shim.Call) bool {
	return slices.Contains(r.Families, c.Family()) && (r.About.Writes(c) || fault.ChangesOne(c) && c.ExitCode == 0)
}

// add keeps what was read after a call.
func (s *restores) add(call shim.Call, now reading, failed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.last[call.Family()]; failed && known && len(s.failed) < mostFailed {
		s.failed = append(s.failed, failedRestore{call: call, before: before, after: now})
	}
	if s.last == nil {
		s.last = map[corev1.IPFamily]reading{}
	}
	s.last[call.Family()] = now
}

// forget drops the failed restores after a check.
func (s *restores) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = nil
}

// evidence returns the restores whose tables before and after are known for certain. writes are all calls that may have
// changed the tables. settled is the current content, nil if the subject has not converged. It is what a restore
// intended if nothing has changed since.
func (s *restores) evidence(
	writes []shim.Call, settled map[corev1.IPFamily]invariants.Saved, unchangedSince time.Time,
) []invariants.FailedRestore {
	s.mu.Lock()
	defer s.mu.Unlock()
	var sure []invariants.FailedRestore
	for _, f := range s.failed {
		disturbed := slices.ContainsFunc(writes, func(c shim.Call) bool {
			own := c.PID == f.call.PID && c.Start.Equal(f.call.Start)
			return !own && c.Family() == f.call.Family() && c.End.After(f.before.from) && c.Start.Before(f.after.to)
		})
		if disturbed || f.before.to.After(f.call.Start) {
			continue
		}
		restore := invariants.FailedRestore{Family: f.call.Family(), Before: f.before.tables, After: f.after.tables}
		if now := settled[restore.Family]; now != nil && f.call.Start.After(unchangedSince) {
			restore.Intended = now.Reachable()
		}
		sure = append(sure, restore)
	}
	return sure
}

// restoresSeen adds the failed restores to a check's evidence.
func (r *Checks) restoresSeen(e *invariants.Evidence) error {
	if e.Saved == nil || !r.looksAtRestores() || r.Shim == nil {
		return nil
	}
	calls, _, err := r.Shim.Read(0)
	if err != nil {
		return err
	}
	settled := e.Saved
	since, known := r.Faults.UnchangedSince()
	if !known || e.Settled != nil {
		settled = nil
	}
	writes := slices.DeleteFunc(calls, func(c shim.Call) bool { return !r.wrote(c) })
	e.Restores = r.restores.evidence(writes, settled, since)
	return nil
}
