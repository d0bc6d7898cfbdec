package bench

import (
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/invariants"
	"synclab/bench/shim"
	"synclab/scenarios"
)

// What I5 asks of a restore that failed can be told only by what the tables held right before it and right after it. So
// where restores may fail and a check asks for I5, the tables are read after every call that writes them, as the shim
// tells of it. A reading counts if no other call wrote meanwhile, which the shim's records say afterwards.

// restoreFaults are the kinds of faults that make restores fail.
var restoreFaults = []string{
	scenarios.FaultRestoreFails, scenarios.FaultRestoreKilled, scenarios.FaultRuleRefused, scenarios.FaultLockHeld,
}

// longestReading is how long reading the tables of a family may take: a longer one would not end before the subject tries
// again, and keep it from its work.
const longestReading = time.Second

// knownWithin is after what time a subject knows of a change, and begins no restore without it.
const knownWithin = time.Second

// mostFailed restores are kept for a check.
const mostFailed = 50

// restores are those that failed since the last check.
type restores struct {
	mu     sync.Mutex
	last   map[corev1.IPFamily]reading
	failed []failedRestore
}

// reading is what tables held at a moment between two.
type reading struct {
	from, to time.Time
	tables   invariants.Saved // the subject's own, as far as packets come
}

// failedRestore is a call, and the readings next to it.
type failedRestore struct {
	call          shim.Call
	before, after reading
}

// looksAtRestores says whether a check asks for I5, in a scenario that makes restores fail.
func (r *repetition) looksAtRestores() bool {
	asked, fail := false, false
	for _, step := range r.Scenario.Steps {
		if c := step.Check; c != nil {
			asked = asked || len(c.Invariants) == 0 || slices.Contains(c.Invariants, "I5")
		}
		fail = fail || step.Fault != nil && slices.Contains(restoreFaults, step.Fault.Kind)
	}
	return asked && fail
}

// watchRestores reads the tables after each call that writes them, until the repetition's faults end. Only tables of
// iptables can be read back whole, and only a subject's tools tell when.
func (r *repetition) watchRestores() error {
	if r.shim == nil || r.variant == "" || !r.about.hasTools() || !r.looksAtRestores() {
		return nil
	}
	ctx := r.damages.context()
	ended, err := r.shim.Calls(ctx, r.fail)
	if err != nil {
		return err
	}
	r.damages.wait.Go(func() {
		slow := false
		for call := range ended {
			if slow || !r.wrote(call) {
				continue
			}
			now := reading{from: r.clock.Now()}
			saved, err := invariants.Save(ctx, r.variant, call.Family())
			if err != nil {
				continue // the conntrack table may be full, or memory scarce: it is no reading
			}
			now.to, now.tables = r.clock.Now(), saved.Reachable()
			r.checking.restores.add(call, now, r.about.writes(call) && call.ExitCode != 0)
			if took := now.to.Sub(now.from); took > longestReading {
				slow = true
				note := fmt.Sprintf("I5 is not looked at in restores that fail from now on: reading the tables took %v", took)
				r.say.message(message{Note: note})
			}
		}
	})
	return nil
}

// wrote says whether a call may have changed rules of a family that is measured.
func (r *repetition) wrote(c shim.Call) bool {
	return slices.Contains(r.families, c.Family()) && (r.about.writes(c) || changesOne(c) && c.ExitCode == 0)
}

// add takes in what was read after a call.
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

// forget begins anew, after a check.
func (s *restores) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = nil
}

// evidence are the restores of which it is known for certain what the tables held before and after. Writes are all calls
// that may have changed the tables. What a restore was to make of them is known where nothing has changed since: what
// they hold now, settled; nil: they are not.
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

// restoresSeen gives a check the restores that failed.
func (r *repetition) restoresSeen(e *invariants.Evidence) error {
	if e.Saved == nil || !r.looksAtRestores() || r.shim == nil {
		return nil
	}
	calls, _, err := r.shim.Read(0)
	if err != nil {
		return err
	}
	settled := e.Saved
	since, known := r.unchangedSince()
	if !known || e.Settled != nil {
		settled = nil
	}
	writes := slices.DeleteFunc(calls, func(c shim.Call) bool { return !r.wrote(c) })
	e.Restores = r.checking.restores.evidence(writes, settled, since)
	return nil
}

// unchangedSince is the moment from which on a subject's restores were for what is wanted now, and nobody else wrote: no
// change after it that the subject could not know of yet, no fault but of restores. Not known: a fault holds.
func (r *repetition) unchangedSince() (time.Time, bool) {
	var since time.Time
	r.damages.mu.Lock()
	all := slices.Clone(r.damages.all)
	for _, at := range r.damages.touched {
		since = latest(since, at)
	}
	r.damages.mu.Unlock()
	for _, d := range all {
		d.mu.Lock()
		closed, done := d.closed, d.done
		d.mu.Unlock()
		if !closed {
			return time.Time{}, false
		}
		if !slices.Contains(restoreFaults, d.kind) {
			since = latest(since, done)
		}
	}
	return since.Add(knownWithin), true
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
