// Package step executes the steps of a repetition. Kinds says for each kind of step what it does: a new kind is a row, and a
// file if the row is not enough. A step works on Parts. What its kind is in a scenario is in scenarios/kinds.go.
package step

import (
	"context"
	"time"

	"synclab/bench/fault"
	"synclab/bench/lab/process"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/probe"
	"synclab/bench/subject"
	"synclab/bench/subject/host"
	"synclab/bench/subject/visible"
	"synclab/bench/traffic/flow"
	"synclab/bench/verify/check"
	"synclab/proxier"
	"synclab/scenarios"
	"synclab/sim/world"
)

// Step is a step of a scenario, with its name in records.
type Step struct {
	*scenarios.Step
	Name string
}

// Kind is what a repetition does in the steps of one kind.
type Kind struct {
	Run func(*Parts, context.Context, Step) error
	// Fit makes Run's changes in a world of given objects, and returns what these lack; nil: World.Plan does.
	Fit func(*world.World, *scenarios.Step) error
	// Needs is what given objects must have besides.
	Needs Need
	// EndsWork: the subject's work on the changes before ends with the step.
	EndsWork bool
}

// Need is what given objects must have for a step; 0: nothing.
type Need int

const (
	Endpoints Need = iota + 1 // a Service with a cluster IP and ready endpoints
	Packets                   // such a Service of TCP or UDP, and for flows of pods room for these
)

// Kinds are the kinds of steps, by their names in scenarios.
var Kinds = map[string]Kind{
	"create": {Run: (*Parts).create, Fit: func(*world.World, *scenarios.Step) error { return nil }}, // the given objects are all
	"react": {
		Run: (*Parts).react, EndsWork: true,
		Fit: func(w *world.World, s *scenarios.Step) error { _, err := w.React(*s.React); return err },
	},
	"churn":    {Run: (*Parts).change},
	"rollout":  {Run: (*Parts).change},
	"scale":    {Run: (*Parts).change},
	"nodeLoss": {Run: (*Parts).change},
	"follow":   {Run: (*Parts).follow},
	"restart":  {Run: (*Parts).restart},
	"migrate":  {Run: (*Parts).migrate},
	"fault": {
		Run:   func(r *Parts, ctx context.Context, s Step) error { return r.Faults.Inject(ctx, s.Fault, s.Name) },
		Needs: Endpoints, Fit: fitFault,
	},
	"probe": {
		Run:   func(r *Parts, ctx context.Context, s Step) error { return r.Probes.Traverse(ctx, s.Probe, s.Name) },
		Needs: Packets, EndsWork: true,
	},
	"connections": {
		Run:   func(r *Parts, ctx context.Context, s Step) error { return r.Probes.Connect(ctx, s.Connections, s.Name) },
		Needs: Packets, EndsWork: true,
	},
	"traffic": {
		Run:   func(r *Parts, ctx context.Context, s Step) error { return r.Flows.Traffic(ctx, s.Traffic, s.Name) },
		Needs: Packets,
	},
	"check":  {Run: func(r *Parts, ctx context.Context, s Step) error { return r.Checks.Check(ctx, s.Check, s.Name) }},
	"settle": {Run: (*Parts).settle, EndsWork: true},
}

// fitFault makes the changes that a fault hides. Too few of them are a remark of the repetition.
func fitFault(w *world.World, s *scenarios.Step) error {
	for _, churn := range fault.Of(s.Fault.Kind).Hides {
		_, _ = w.Churn(churn)
	}
	return nil
}

// Parts are the parts of a repetition, which its steps use.
type Parts struct {
	*pass.Env
	Host      *host.Host
	Faults    *fault.Faults
	Flows     *flow.Flows
	Checks    *check.Checks
	Probes    *probe.Probes
	First     subject.Spec     // the subject that the repetition began with
	Following *Following       // nil: no cluster is followed
	changes   int              // made so far by steps with many
	process   *process.Process // whose memory is recorded as they are made
}

// New makes the parts of a repetition and connects them.
func New(e *pass.Env) *Parts {
	r := &Parts{Env: e}
	r.Host = &host.Host{Env: e}
	r.Faults = &fault.Faults{Env: e, Host: r.Host, Play: r.play}
	r.Flows = &flow.Flows{Env: e, Host: r.Host, Faults: r.Faults}
	r.Checks = &check.Checks{Env: e, Host: r.Host, Faults: r.Faults, Flows: r.Flows, InSync: r.inSync}
	r.Probes = &probe.Probes{Env: e, Host: r.Host, Flows: r.Flows}
	r.Host.PrepareTool, r.Host.ToolStarted = r.Faults.Tools.Prepare, r.Faults.Tools.Started
	r.Host.Watched = r.Flows.Watched
	r.Faults.TableEmptied, r.Faults.Report = r.Checks.TableEmptied, r.RecordResults
	r.Flows.Met = r.Checks.Count
	// The order of listeners matters: flows and faults hear of a change before the kernel's watcher awaits it.
	e.Events = pass.Events{
		Changing:   []func(mirror.Change){r.Faults.Changing, r.Flows.Changing, r.Host.Changing, r.Checks.Changing},
		Awaited:    []func(){r.Faults.Awaited},
		Visible:    []func(visible.VisibleChange){r.Flows.Visible, r.Faults.Visible, r.Host.Visible},
		Synced:     []func(proxier.Sync){r.Faults.Synced},
		Stepping:   []func(string, time.Time){r.Flows.Stepping},
		Starting:   []func(context.Context) error{r.Checks.Starting},
		Opened:     []func(context.Context) error{r.Faults.Opened},
		Restarting: []func(context.Context){r.Checks.Restarting},
	}
	return r
}
