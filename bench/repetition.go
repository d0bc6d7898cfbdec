package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"synclab/bench/check"
	"synclab/bench/fault"
	"synclab/bench/flow"
	"synclab/bench/host"
	"synclab/bench/machine"
	"synclab/bench/netns"
	"synclab/bench/pass"
	"synclab/bench/probe"
	"synclab/bench/raw"
	"synclab/bench/shim"
	"synclab/bench/subject"
	"synclab/bench/visible"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/live"
	"synclab/sim/world"
)

// repetition is one measured pass of a cell, inside the worker's namespace. It executes the steps. Its parts do the rest.
type repetition struct {
	*pass.Env
	host   *host.Host
	faults *fault.Faults
	flows  *flow.Flows
	checks *check.Checks
	probes *probe.Probes
	first  subject.Spec // the subject that the repetition began with
	stalls stallWatch

	live     *live.Decoder // the followed cluster's changes; nil without one
	arriving chan live.Change
	liveErr  error // the error that closed arriving
}

// newRepetition makes a repetition and connects its parts.
func newRepetition(e *pass.Env) *repetition {
	r := &repetition{Env: e}
	r.host = &host.Host{Env: e}
	r.faults = &fault.Faults{Env: e, Host: r.host, Play: r.play}
	r.flows = &flow.Flows{Env: e, Host: r.host, Faults: r.faults}
	r.checks = &check.Checks{Env: e, Host: r.host, Faults: r.faults, Flows: r.flows, InSync: r.inSync}
	r.probes = &probe.Probes{Env: e, Host: r.host, Flows: r.flows}
	r.host.PrepareTool, r.host.ToolStarted = r.faults.Tools.Prepare, r.faults.Tools.Started
	r.host.Watched = r.flows.Watched
	r.faults.TableEmptied, r.faults.Report = r.checks.TableEmptied, r.RecordResults
	r.flows.Met = r.checks.Count
	// The order of listeners matters: flows and faults hear of a change before the kernel's watcher awaits it.
	e.Events = pass.Events{
		Changing:   []func(sim.Op, runtime.Object, time.Time){r.faults.Changing, r.flows.Changing, r.host.Changing, r.checks.Changing},
		Awaited:    []func(){r.faults.Awaited},
		Visible:    []func(visible.VisibleChange){r.flows.Visible, r.faults.Visible, r.host.Visible},
		Synced:     []func(proxier.Sync){r.faults.Synced},
		Stepping:   []func(string, time.Time){r.flows.Stepping},
		Starting:   []func(context.Context) error{r.checks.Starting},
		Opened:     []func(context.Context) error{r.faults.Opened},
		Restarting: []func(context.Context){r.checks.Restarting},
	}
	return r
}

// perform executes an assignment.
func perform(ctx context.Context, lab *netns.Lab, a pass.Assignment, changes *live.Decoder, say *pass.MessageWriter) error {
	r := newRepetition(&pass.Env{Assignment: a, Lab: lab, Messages: say, Clock: clock.RealClock{}})
	r.live, r.Started = changes, r.Clock.Now()
	if changes != nil {
		r.readChanges()
	}
	r.watchStalls()
	defer r.endStalls()
	if err := r.prepare(ctx); err != nil {
		return err
	}
	ctx, r.Fail = context.WithCancelCause(ctx)
	defer r.Fail(nil)
	err := errors.Join(r.steps(ctx), r.flows.Close())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	exceeded := false
	err, exceeded = r.host.Exceeded(err)
	if err == nil {
		r.host.PeakMemory()
	}
	err = errors.Join(err, r.faults.End(ctx), r.host.Stop())
	if err == nil {
		err = r.host.SendProfile(ctx)
	}
	if err == nil && !exceeded {
		err = r.dump(ctx)
	}
	err = errors.Join(err, r.host.Close())
	r.Cluster.Stop()
	return err
}

// prepare makes the cluster's objects and configuration, without a proxier.
func (r *repetition) prepare(ctx context.Context) error {
	var err error
	if r.About, err = subject.Parse(r.Subject); err != nil {
		return err
	}
	r.first = r.About
	r.Subject, r.Layout = r.About.Name, r.About.Layout
	if r.Objects != nil {
		r.World = world.WorldOf(r.Objects, r.Scenario.Seed)
		given, shape := r.World.Shape(), &r.Scenario.Shape
		shape.Families, shape.ServiceCIDRs, shape.PodCIDRs = given.Families, given.ServiceCIDRs, given.PodCIDRs
	} else if r.World, err = world.NewWorld(r.Scenario.Shape, r.Scenario.Seed); err != nil {
		return err
	}
	r.RecordAs(raw.Record{Unit: "count", After: r.After}, raw.Turn, float64(r.Turn))
	// The first changes may already be in step create. The cluster before them is the same in all repetitions.
	r.World.Repetition(r.Rep)
	for _, family := range r.Scenario.Shape.Families {
		r.Families = append(r.Families, corev1.IPFamily(family))
	}
	if err := r.limitFamilies(); err != nil {
		return err
	}
	if r.Feed == raw.FeedAPI {
		r.Shim, err = shim.Install(ctx, shim.Options{Dir: filepath.Join(r.Lab.Dir, "shim"), Command: r.Tools.Shim, Variant: string(r.About.Variant), Families: r.Families})
		if err == nil && r.host.KeepsInputs() {
			err = r.Shim.KeepInputs()
		}
		if err != nil {
			return err
		}
	}
	r.Cluster = api.NewCluster(r.Clock)
	r.Config = subject.ProxyConfig(r.ProxyConfig, &r.Scenario, r.Objects == nil)
	r.Messages.Stage("generate", 0, 0)
	return machine.ResetPeakRSS()
}

// limitFamilies makes every subject serve the same IP families. kube-proxy serves all that the namespace has: IPv4
// always, and IPv6 unless it is disabled. It is disabled if the scenario has no IPv6.
func (r *repetition) limitFamilies() error {
	r.Served = []corev1.IPFamily{corev1.IPv4Protocol}
	if !slices.Contains(r.Families, corev1.IPv6Protocol) {
		err := r.Lab.DisableIPv6()
		if err == nil || !netns.HasIPv6() {
			return err
		}
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("every subject also serves IPv6, since it cannot be disabled: %v", err)})
	}
	r.Served = append(r.Served, corev1.IPv6Protocol)
	return nil
}

// connect gives the node its addresses, and routes to all destinations of the scenario's packets.
func (r *repetition) connect() error {
	r.FindNode()
	sink := pass.Sinks(r.Scenario.Shape, r.World.Objects(), r.Families)
	if flow.SendsFlows(&r.Scenario) || r.flows.MayWatch() {
		return r.flows.ConnectPods(r.World.Objects(), sink)
	}
	return r.Lab.Connect(netns.Topology{Node: r.Node, Sink: sink})
}

func (r *repetition) steps(ctx context.Context) error {
	defer r.host.EndWork()
	for i := range r.Scenario.Steps {
		step := &r.Scenario.Steps[i]
		if step.Kind() == "" {
			continue // left out
		}
		name := fmt.Sprintf("%d:%s", i+1, step.Kind())
		r.Step.Store(&name)
		for _, listen := range r.Events.Stepping {
			listen(name, r.Clock.Now())
		}
		r.host.BeginWork(step, name)
		err := r.host.Revive(ctx)
		if err == nil {
			err = r.do(ctx, step, name)
		}
		r.readStalls()
		if err != nil {
			return fmt.Errorf("step %s: %w", name, err)
		}
		if step.Settle != nil || step.React != nil || step.Probe != nil {
			r.host.EndWork() // a probe's work ends with the probe
		}
		if over := r.Exceeded(); over != "" {
			r.Messages.Send(pass.Message{Note: "the rest is left out: " + over})
			break
		}
	}
	return r.checks.Deliver(ctx)
}

func (r *repetition) do(ctx context.Context, step *scenarios.Step, name string) error {
	switch {
	case step.Create != nil:
		return r.create(ctx, *step.Create, name)
	case step.React != nil:
		return r.react(ctx, step.React, name)
	case step.Churn != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.World.Churn(*step.Churn) })
	case step.Rollout != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.World.Rollout(*step.Rollout) })
	case step.Scale != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.World.Scale(*step.Scale) })
	case step.NodeLoss != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.World.NodeLoss(*step.NodeLoss) })
	case step.Follow != nil:
		return r.followStep(ctx, step.Follow, name)
	case step.Restart != nil:
		r.ChangeLayout(step.Restart.Layout)
		return r.host.Restart(ctx, name)
	case step.Migrate != nil:
		return r.migrate(ctx, step.Migrate, name)
	case step.Fault != nil:
		return r.faults.Inject(ctx, step.Fault, name)
	case step.Probe != nil:
		return r.probes.Traverse(ctx, step.Probe, name)
	case step.Traffic != nil:
		return r.flows.Traffic(ctx, step.Traffic, name)
	case step.Check != nil:
		return r.checks.Check(ctx, step.Check, name)
	case step.Settle != nil:
		return r.settle(ctx, step.Settle, name)
	}
	return errors.New("nothing to do")
}

// create adds Services. Those of the first create step without a rate exist before the proxier starts.
func (r *repetition) create(ctx context.Context, c scenarios.Create, name string) error {
	r.Messages.Stage(name, 0, 0)
	begin := r.Clock.Now()
	var trace sim.Trace
	if r.Objects == nil {
		var err error
		if trace, err = r.World.Create(c); err != nil {
			return err
		}
	}
	generated := r.Clock.Since(begin)
	if r.host.Subject != nil {
		return r.Cluster.Play(ctx, trace, r.playOptions(name))
	}
	if err := r.fits(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	begin = r.Clock.Now()
	objects := r.World.Objects()
	if c.Rate > 0 {
		objects = &sim.Objects{Nodes: objects.Nodes}
	}
	r.Loaded = objects
	if err := r.Cluster.Load(ctx, objects); err != nil {
		return err
	}
	loaded := r.Clock.Since(begin)
	if err := r.probes.Baseline(ctx); err != nil {
		return err
	}
	if err := r.host.Start(ctx, (generated + loaded).Seconds()); err != nil {
		return err
	}
	if c.Rate > 0 {
		r.ready(ctx)
		r.host.WorkBegins()
		return r.Cluster.Play(ctx, trace, r.playOptions(name))
	}
	return nil
}

// ready waits until the subject has come up: that is no part of the latency of later changes. If a fault prevents it,
// the changes begin anyway.
func (r *repetition) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pass.UpTime)
	defer cancel()
	_ = r.host.Subject.InSync(ctx)
}

func (r *repetition) playOptions(name string) api.PlayOptions {
	return api.PlayOptions{
		Start:    r.Clock.Now(),
		Progress: func(done, total int) { r.Messages.Stage(name, done, total) },
		Before:   func(ch sim.Change, due time.Time) { r.Events.Change(ch.Op, ch.Object, due) },
	}
}

func (r *repetition) play(ctx context.Context, name string, plan func() (sim.Trace, error)) error {
	trace, err := plan()
	if err := r.short(name, err); err != nil {
		return err
	}
	r.Messages.Stage(name, 0, len(trace))
	r.RecordAs(raw.Record{Unit: "count"}, raw.ChangesApplied, float64(len(trace)))
	return r.Cluster.Play(ctx, trace, r.playOptions(name))
}

// short notes that a step has fewer changes than planned, because earlier steps left too few objects. Given objects may be
// few, and which of them remain depends on the faults before. Other errors are returned.
func (r *repetition) short(name string, err error) error {
	var few *world.TooFewError
	if r.Objects == nil || !errors.As(err, &few) && !errors.Is(err, world.ErrNothingToChange) {
		return err
	}
	r.Messages.Send(pass.Message{Note: fmt.Sprintf("step %s: %v", name, err)})
	return nil
}

func (r *repetition) dump(ctx context.Context) error {
	if !r.Dump {
		return nil
	}
	commands, err := r.dumpCommands()
	if err != nil {
		return err
	}
	for _, command := range commands {
		path, err := iptables.FindBinary(command[0])
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, path, command[1:]...).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.Messages.Send(pass.Message{Rules: string(out)})
	}
	return nil
}

// dumpCommands returns the commands that print the subject's rules.
func (r *repetition) dumpCommands() (commands [][]string, err error) {
	switch {
	case r.About.Nftables() && r.About.Own:
		for _, family := range r.Families {
			tables, _, err := r.OwnNftables(family)
			if err != nil {
				return nil, err
			}
			for _, table := range tables {
				commands = append(commands, []string{"nft", "list", "table", fault.NftProtocol(family), table.Name})
			}
		}
	case r.About.Nftables():
		commands = [][]string{{"nft", "list", "ruleset"}}
	case !r.About.Iptables():
		return nil, fmt.Errorf("--dump-iptables: no command is known that prints the rules of %s", r.Subject)
	default:
		for _, family := range r.Families {
			commands = append(commands, []string{iptables.Binary(r.About.Variant, family, "save")})
		}
	}
	return commands, nil
}
