package proxier

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"synclab/proxier/backend"
	"synclab/proxier/plan"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// Backend keeps the kernel's rules as a plan wants them. It is used by one goroutine at a time.
type Backend interface {
	// Update takes note of what the plan changed. It may be told the same change again.
	Update(delta plan.Delta)
	// Dirty says whether a sync may have anything to write.
	Dirty() bool
	// NeedsFull says why a partial sync will not do for so many endpoints in the cluster; empty: it will.
	NeedsFull(endpoints int) string
	// Sync brings the kernel to the plan. What it does not take of a Service port is reported, and is no error; after
	// an error nothing is lost, and the next sync will find what is missing. The result tells of failed syncs too.
	Sync(ctx context.Context, req backend.Request) (backend.Result, error)
	// Settings in force.
	Settings() backend.Settings
	// Stamp changes when somebody may have changed what the kernel holds; comparing two costs next to nothing.
	Stamp() (backend.Stamp, error)
	// Drift compares the kernel with what should be in it and describes the first difference; empty: none.
	Drift(ctx context.Context) (string, error)
	// Dispatch lists the cluster IPs that lead to endpoints in the order in which packets meet them, and the number of
	// rules for Services that a packet for none of them crosses.
	Dispatch(ports []*plan.ServicePort) (frontends []backend.Frontend, rules int)
}

// engine syncs one IP family.
type engine struct {
	family  corev1.IPFamily
	opts    *Options
	clock   clock.WithTicker
	tracker *tracker.Tracker
	plan    *plan.Plan
	backend Backend
	runner  *runner.Runner
	after   *aftercare
	flows   *flows

	// syncing keeps syncs and drift checks apart; it guards all below down to mu.
	syncing  lock
	seq      int
	lastFull time.Time
	stamp    backend.Stamp
	checks   int
	// moved: since a full sync it was not looked at where health check node ports are.
	moved bool
	// settled: a sync succeeded. Until then the kernel may hold what an earlier proxier left.
	settled bool
	// suspect: a stamp had changed before a sync wrote over it, or others while it did.
	suspect bool
	others  *backend.Stamp // of the last sync, if they are known
	refused refusals
	// began is the kind that the last sync had when it began: the backend may make a full one of a partial one.
	began Kind

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

// sync is one sync: take changes, plan, let the backend encode and apply, and what follows from it.
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
	if stamp, err := e.backend.Stamp(); err == nil && stamp != e.stamp {
		e.suspect = true
	}
	return &Sync{
		Family: e.family, Seq: e.seq, Kind: Partial, Reason: "changes", Queued: changes.Queued, Started: started,
		Changes: len(changes.Services), Events: changes.ServiceEvents + changes.SliceEvents, Pending: e.tracker.Pending(),
	}
}

// replan brings the plan and what the backend knows of it up to date, and decides on the kind of the sync.
func (e *engine) replan(s *Sync, changes tracker.Changes) {
	e.mu.Lock()
	node, reason := e.node, e.full
	e.full = ""
	e.mu.Unlock()

	moved := e.plan.SetNode(node)
	e.backend.Update(e.plan.Update(changes.Services))
	endpoints := e.plan.KnownEndpoints()
	switch {
	case reason != "":
	case moved:
		reason = "topology"
	default:
		reason = e.backend.NeedsFull(endpoints)
	}
	if large := endpoints > backend.LargeCluster; reason == "" && (!large || len(e.refused.ports) > 0) && e.clock.Since(e.lastFull) >= fullSyncInterval {
		reason = "interval"
	}
	if reason != "" {
		s.Kind, s.Reason = Full, reason
	}
	s.Services, s.Endpoints = len(e.plan.Services()), endpoints
	s.Plan = e.clock.Since(s.Started)
}

// apply brings the kernel to the plan.
func (e *engine) apply(ctx context.Context, s *Sync) error {
	e.began = s.Kind
	result, err := e.backend.Sync(ctx, backend.Request{
		Full: s.Kind == Full, Ports: e.plan.Ports(), Endpoints: e.plan.KnownEndpoints(), Inherit: e.flows != nil && !e.settled,
	})
	if e.flows != nil {
		e.flows.inherit(result.Inherited)
	}
	if result.Full && s.Kind != Full {
		s.Kind, s.Reason = Full, result.Reason
	}
	s.Encode, s.Jumps, s.Runs = result.Encode, result.Jumps, result.Runs
	s.Installed, s.Sent = result.Installed, result.Sent
	for port, cause := range result.Refused {
		s.Refused = append(s.Refused, Refusal{port, cause})
	}
	slices.SortFunc(s.Refused, func(a, b Refusal) int { return strings.Compare(a.Port.String(), b.Port.String()) })
	return err
}

// end takes note of how a sync went, and does what follows from new rules. The sync ends after that, as kube-proxy's
// does, however it went.
func (e *engine) end(ctx context.Context, s *Sync, changes tracker.Changes, err error) error {
	s.Err, s.TriggerTimes = err, changes.TriggerTimes
	if err != nil {
		e.fail(s, changes)
	} else {
		s.Written = e.clock.Now()
		e.succeed(s, changes)
	}
	e.after.synced(ctx, e, s)
	if err == nil {
		e.cleanFlows(ctx)
	}
	s.Finished = e.clock.Now()
	e.after.ended(e, s)
	if e.opts.OnSync != nil {
		e.opts.OnSync(*s)
	}
	return err
}

// succeed makes the changes the installed state, and has the flows cleaned that the new rules do not allow.
func (e *engine) succeed(s *Sync, changes tracker.Changes) {
	e.settled = true
	e.tracker.Commit(changes)
	e.after.committed(e, changes)
	e.refused.note(s, e.opts.Config.IPTables.SyncPeriod.Duration)
	if s.Kind == Full {
		e.lastFull, e.suspect, e.moved = s.Started, false, true
	}
	if stamp, err := e.backend.Stamp(); err == nil {
		e.stamp = stamp
	}
	e.watchOthers()
	if e.flows == nil {
		return
	}
	e.flows.update(changes, e.plan)
	if s.Kind == Full {
		// The rules it repaired may have been missing for a while: flows that began meanwhile met no rule, and never will.
		e.flows.cleaner.Force()
	}
}

// fail gives everything back. A partial sync may be repeated as it is: each of its tables was taken or not, and writing
// the same once more is harmless. A full one stays a full one.
func (e *engine) fail(s *Sync, changes tracker.Changes) {
	e.tracker.GiveBack(changes)
	if e.flows != nil {
		e.flows.recall(changes, e.plan)
	}
	if s.Kind == Full {
		e.mu.Lock()
		if e.full == "" {
			e.full = s.Reason
		}
		e.mu.Unlock()
	}
}
