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

// Backend writes the desired state to the kernel. Only one goroutine uses it at a time.
type Backend interface {
	// Update records what the plan changed. The same change may be passed more than once.
	Update(delta plan.Delta)
	// Dirty reports whether a sync may have anything to write.
	Dirty() bool
	// NeedsFull returns why a cluster with that many endpoints needs a full sync; empty: a partial sync is enough.
	NeedsFull(endpoints int) string
	// Inherited returns the UDP frontends that the kernel redirects to endpoints. The engine asks once, before the first
	// sync writes anything.
	Inherited() ([]backend.Inherited, error)
	// Sync writes the desired state to the kernel. A refused Service port is reported in the result and is no error.
	// After an error nothing is lost: the next sync finds what is missing. The result describes failed syncs too.
	Sync(ctx context.Context, req backend.Request) (backend.Result, error)
	// Settings returns the settings in force.
	Settings() backend.Settings
	// Fingerprint returns a fingerprint of the kernel's rules. It changes when the rules may have changed. Comparing
	// two fingerprints costs almost nothing.
	Fingerprint() (backend.Fingerprint, error)
	// Others returns a fingerprint of external writes. The backend's syncs do not change it.
	Others() (backend.Fingerprint, error)
	// Glance compares what Fingerprint omits because it is too expensive to read at each sync, but cheap for each
	// check. It describes the first difference; empty: there is none.
	Glance() (string, error)
	// Drift returns a comparison of the kernel's rules with the desired rules as of now. It may run beside a sync, whose
	// changes it reports as differences.
	Drift() backend.Comparison
	// Dispatch lists the cluster IPs with endpoints in the order in which packets meet their rules. rules is the number
	// of Service rules that a packet for no Service crosses.
	Dispatch(ports []*plan.ServicePort) (frontends []backend.Frontend, rules int)
	// Close closes what the backend has open in this process. The rules stay. A later Sync opens it again.
	Close() error
}

// engine syncs one IP family.
type engine struct {
	family   corev1.IPFamily
	opts     *Options
	clock    clock.WithTicker
	tracker  *tracker.Tracker
	plan     *plan.Plan
	backend  Backend
	runner   *runner.Runner
	postSync *postSync
	flows    *flows

	// syncing serializes syncs and drift checks. It guards all fields from here down to mu.
	syncing     lock
	seq         int
	lastFull    time.Time
	fingerprint backend.Fingerprint
	checks      int
	// moved: a full sync has run since the addresses for health check node ports were last read.
	moved bool
	// inherited: the UDP frontends of an earlier proxier's rules have been read.
	inherited bool
	// suspect: the fingerprint had changed before a sync overwrote it, or another process wrote during a sync.
	suspect bool
	others  *backend.Fingerprint // external writes as of the last sync; nil: unknown
	refused refusals
	// began is the kind of the last sync at its start: the backend may turn a partial sync into a full one.
	began Kind

	mu   sync.Mutex
	full string // why the next sync must be full; empty: it need not
	node plan.Node
}

func (e *engine) log(message string, keysAndValues ...any) {
	klog.V(2).InfoS(message, append([]any{"family", e.family}, keysAndValues...)...)
}

// demandFull requests a full sync. The first reason is kept.
func (e *engine) demandFull(reason string) {
	e.mu.Lock()
	if e.full == "" {
		e.full = reason
	}
	e.mu.Unlock()
	e.postSync.queued(e)
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

// trigger requests a sync if changes are pending.
func (e *engine) trigger(pending bool) {
	if pending {
		e.postSync.queued(e)
		e.runner.Trigger()
	}
}

// sync runs one sync: take changes, plan, let the backend encode and apply, do the post-sync work.
func (e *engine) sync(ctx context.Context) error {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	e.postSync.health.SyncStarted(e.family)
	started := e.clock.Now()
	changes := e.tracker.Take()
	s := e.begin(started, changes)
	e.replan(s, changes)
	err := e.apply(ctx, s)
	return e.end(ctx, s, changes, err)
}

func (e *engine) begin(started time.Time, changes tracker.Changes) *Sync {
	e.seq++
	if fingerprint, err := e.backend.Fingerprint(); err == nil && fingerprint != e.fingerprint {
		e.suspect = true
	}
	return &Sync{
		Family: e.family, Seq: e.seq, Kind: Partial, Reason: "changes", Queued: changes.Queued, Started: started,
		Changes: len(changes.Services), Events: changes.ServiceEvents + changes.SliceEvents, Pending: e.tracker.Pending(),
	}
}

// replan updates the plan, passes the delta to the backend and decides the kind of the sync.
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

// apply writes the desired state to the kernel.
func (e *engine) apply(ctx context.Context, s *Sync) error {
	e.began = s.Kind
	if err := e.inherit(); err != nil {
		return err
	}
	result, err := e.backend.Sync(ctx, backend.Request{
		Full: s.Kind == Full, Ports: e.plan.Ports(), Endpoints: e.plan.KnownEndpoints(),
	})
	if result.Full && s.Kind != Full {
		s.Kind, s.Reason = Full, result.Reason
	}
	s.Work = result.Work
	for port, cause := range result.Refused {
		s.Refused = append(s.Refused, Refusal{port, cause})
	}
	slices.SortFunc(s.Refused, func(a, b Refusal) int { return strings.Compare(a.Port.String(), b.Port.String()) })
	return err
}

// end records the result of a sync and does the post-sync work. As in kube-proxy, that work is part of every sync,
// successful or failed.
func (e *engine) end(ctx context.Context, s *Sync, changes tracker.Changes, err error) error {
	s.Err, s.TriggerTimes = err, changes.TriggerTimes
	if err != nil {
		e.fail(s, changes)
	} else {
		s.Written = e.clock.Now()
		e.succeed(s, changes)
	}
	e.postSync.synced(ctx, e, s)
	if err == nil {
		e.cleanFlows(ctx)
	}
	s.Finished = e.clock.Now()
	// As in kube-proxy, the duration includes the post-sync work.
	e.postSync.metrics[e.family].Synced(s.Kind == Full, s.Duration())
	if e.opts.OnSync != nil {
		e.opts.OnSync(*s)
	}
	return err
}

// succeed makes the changes the installed state. It also queues the cleanup of UDP flows that the new rules do not
// allow.
func (e *engine) succeed(s *Sync, changes tracker.Changes) {
	e.tracker.Commit(changes)
	e.postSync.committed(e, changes)
	e.refused.note(s, e.opts.settings.SyncPeriod)
	if s.Kind == Full {
		e.lastFull, e.suspect, e.moved = s.Started, false, true
	}
	if fingerprint, err := e.backend.Fingerprint(); err == nil {
		e.fingerprint = fingerprint
	}
	e.watchOthers()
	if e.flows == nil {
		return
	}
	e.flows.update(changes, e.plan)
	if s.Kind == Full {
		// Rules may have been missing before this sync. Flows that began then bypass the rules until their entries are
		// deleted.
		e.flows.cleaner.Force()
	}
}

// fail returns everything to the tracker. A partial sync may be repeated as it is: the kernel took each table or did
// not, and writing a table again is harmless. A full sync stays a full one.
func (e *engine) fail(s *Sync, changes tracker.Changes) {
	e.tracker.Requeue(changes)
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
