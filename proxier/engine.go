package proxier

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"synclab/proxier/iptables"
	"synclab/proxier/plan"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// engine syncs one IP family.
type engine struct {
	family  corev1.IPFamily
	opts    *Options
	clock   clock.WithTicker
	tracker *tracker.Tracker
	plan    *plan.Plan
	rules   *iptables.Ruleset
	tables  iptables.Tables
	runner  *runner.Runner
	after   *aftercare
	flows   *flows

	// syncing keeps syncs and drift checks apart; it guards all below down to mu.
	syncing  sync.Mutex
	seq      int
	lastFull time.Time
	stamp    iptables.Stamp
	checks   int
	// suspect: a stamp had changed before a sync wrote over it.
	suspect  bool
	refusals map[tracker.ServicePortName]error
	// owed are the trigger times of changes that are written, but after which stale flows could not be cleaned yet.
	owed []time.Time
	// unsure: a restore failed, and may have written its tables all the same.
	unsure bool
	// noAccounting: the nfacct match turned out not to work.
	noAccounting bool

	mu   sync.Mutex
	full string // why the next sync must be full; empty: it need not
	node plan.Node
}

func (e *engine) log(message string, keysAndValues ...any) {
	klog.V(2).InfoS(message, append([]any{"family", e.family}, keysAndValues...)...)
}

// demandFull makes the next sync a full one and asks for it. The first reason is kept.
func (e *engine) demandFull(reason string) {
	e.mu.Lock()
	if e.full == "" {
		e.full = reason
	}
	e.mu.Unlock()
	e.after.queued(e)
	e.runner.Trigger()
}

func (e *engine) setNode(node plan.Node) {
	e.mu.Lock()
	moved := node != e.node
	e.node = node
	e.mu.Unlock()
	if moved {
		e.demandFull("topology")
	}
}

// trigger asks for a sync because something changed.
func (e *engine) trigger(pending bool) {
	if pending {
		e.after.queued(e)
		e.runner.Trigger()
	}
}

// sync is one sync: take changes, plan, encode and apply, and what follows from it.
func (e *engine) sync(ctx context.Context) error {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	e.after.started(e)
	started := e.clock.Now()
	changes := e.tracker.Take()
	s := e.begin(started, changes)
	e.replan(s, changes)
	err := e.apply(ctx, s)
	return e.end(ctx, s, changes, err)
}

func (e *engine) begin(started time.Time, changes tracker.Changes) *Sync {
	e.seq++
	if stamp, err := e.tables.Stamp(); err == nil && stamp != e.stamp {
		e.suspect = true
	}
	return &Sync{
		Family: e.family, Seq: e.seq, Kind: Partial, Reason: "changes", Queued: changes.Queued, Started: started,
		Changes: len(changes.Services), Events: changes.ServiceEvents + changes.SliceEvents, Pending: e.tracker.Pending(),
	}
}

// replan brings the plan and the wanted rules up to date and decides on the kind of the sync.
func (e *engine) replan(s *Sync, changes tracker.Changes) {
	e.mu.Lock()
	node, reason := e.node, e.full
	e.full = ""
	e.mu.Unlock()

	moved := e.plan.SetNode(node)
	delta := e.plan.Update(changes.Services)
	e.rules.Update(delta)
	for _, port := range delta.Changed {
		delete(e.refusals, port.Name)
	}
	for _, name := range delta.Removed {
		delete(e.refusals, name)
	}
	large := e.plan.KnownEndpoints() > iptables.LargeCluster
	switch {
	case reason != "":
	case moved:
		reason = "topology"
	case e.rules.CrossesLarge(e.plan.KnownEndpoints()):
		reason = "size"
	case (!large || len(e.refusals) > 0) && e.clock.Since(e.lastFull) >= fullSyncInterval:
		reason = "interval"
	}
	if reason != "" {
		s.Kind, s.Reason = Full, reason
	}
	s.Services, s.Endpoints = len(e.plan.Services()), e.plan.KnownEndpoints()
	s.Plan = e.clock.Since(s.Started)
}

// apply brings the kernel to the plan.
func (e *engine) apply(ctx context.Context, s *Sync) error {
	switch {
	case s.Kind == Full:
		if err := e.prepareFull(ctx, s); err != nil {
			return err
		}
		scope, err := e.fullScope()
		if err != nil {
			return err
		}
		return e.write(ctx, s, scope)
	case e.rules.Dirty():
		scope, err := e.partialScope()
		if err != nil {
			return err
		}
		return e.write(ctx, s, scope)
	}
	return nil // nothing but no-ops: the rules stand as they are
}

// partialScope covers what is dirty. After a restore of unknown outcome, there may be chains of Service ports as they
// were wanted then, and not any more: those go as well.
func (e *engine) partialScope() (iptables.Scope, error) {
	scope := iptables.Scope{Endpoints: e.plan.KnownEndpoints()}
	if !e.unsure {
		return scope, nil
	}
	existing, err := e.tables.ServiceChains()
	if err != nil {
		return scope, fmt.Errorf("chains of a sync that failed: %w", err)
	}
	installed := e.expected().Services
	scope.Existing = slices.DeleteFunc(existing, func(chain string) bool {
		_, known := installed[chain]
		return known
	})
	return scope, nil
}

func (e *engine) fullScope() (iptables.Scope, error) {
	existing, err := e.tables.ServiceChains()
	if err != nil {
		return iptables.Scope{}, fmt.Errorf("chains of an earlier proxier: %w", err)
	}
	return iptables.Scope{Full: true, Existing: existing, Endpoints: e.plan.KnownEndpoints()}, nil
}

// prepareFull reads again what a full sync may find changed, and makes what is missing around the Service chains.
func (e *engine) prepareFull(ctx context.Context, s *Sync) error {
	start := e.clock.Now()
	if err := e.applySettings(); err != nil {
		return err
	}
	e.rules.Reset()
	clear(e.refusals)
	s.Plan += e.clock.Since(start)

	start = e.clock.Now()
	err := e.tables.EnsureJumps(ctx)
	s.Jumps = e.clock.Since(start)
	return err
}

// applySettings renders everything again with the settings of the moment.
func (e *engine) applySettings() error {
	settings, err := e.settings()
	if err != nil {
		return err
	}
	settings.Accounting = settings.Accounting && !e.noAccounting
	e.rules.SetSettings(settings)
	e.rules.Rerender(e.plan.Ports())
	return nil
}

// end takes note of how a sync went, and does what follows from new rules.
func (e *engine) end(ctx context.Context, s *Sync, changes tracker.Changes, err error) error {
	s.Finished = e.clock.Now()
	s.TriggerTimes = slices.Concat(e.owed, changes.TriggerTimes)
	if err != nil {
		e.fail(s, changes)
	} else if err = e.succeed(ctx, s, changes); err != nil {
		e.owed = s.TriggerTimes
	} else {
		e.owed = nil
	}
	s.Err = err
	s.Installed = e.rules.Total()
	for port, cause := range e.refusals {
		s.Refused = append(s.Refused, Refusal{port, cause})
	}
	slices.SortFunc(s.Refused, func(a, b Refusal) int { return strings.Compare(a.Port.String(), b.Port.String()) })
	e.after.synced(ctx, e, s)
	if e.opts.OnSync != nil {
		e.opts.OnSync(*s)
	}
	return err
}

// succeed makes the changes the installed state and cleans flows that the new rules do not allow. Should that fail, the
// sync is repeated: it will find nothing to write, and clean again.
func (e *engine) succeed(ctx context.Context, s *Sync, changes tracker.Changes) error {
	e.tracker.Commit(changes)
	e.after.committed(e, changes)
	if s.Kind == Full {
		e.lastFull, e.suspect = s.Started, false
	}
	if stamp, err := e.tables.Stamp(); err == nil {
		e.stamp = stamp
	}
	if e.flows == nil {
		return nil
	}
	e.flows.update(changes, e.plan)
	if !e.flows.cleaner.Pending() {
		return nil
	}
	start := e.clock.Now()
	pass, err := e.flows.cleaner.Clean(ctx)
	e.after.cleaned(e, e.clock.Since(start), pass)
	if err != nil {
		return fmt.Errorf("stale UDP flows: %w", err)
	}
	return nil
}

// fail gives everything back. A partial sync may be repeated as it is: each of its tables was taken or not, and writing
// the same once more is harmless. A full one stays a full one.
func (e *engine) fail(s *Sync, changes tracker.Changes) {
	e.tracker.GiveBack(changes)
	if s.Kind == Full {
		e.mu.Lock()
		if e.full == "" {
			e.full = s.Reason
		}
		e.mu.Unlock()
	}
}
