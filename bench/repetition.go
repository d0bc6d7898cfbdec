package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"synclab/bench/netns"
	"synclab/bench/shim"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/live"
)

// repetition is one measured pass of a cell, inside the worker's namespace.
type repetition struct {
	Assignment
	lab      *netns.Lab
	say      *speaker
	clock    clock.WithTicker
	started  time.Time
	variant  iptables.Variant
	layout   iptables.Layout   // of the subject that runs or is started next; only steps read it
	families []corev1.IPFamily // of the scenario: what is measured
	served   []corev1.IPFamily // by every subject that is a process of its own
	config   *v1alpha1.KubeProxyConfiguration
	faults   faults
	api      apiFaults
	checking checking
	damages  damages
	syncs    syncs

	flows flows
	// reacting: the step makes isolated changes.
	reacting atomic.Bool

	world   *sim.World
	cluster *sim.Cluster
	loaded  *sim.Objects // what was there when the subject started first
	node    []netip.Addr

	strangers map[corev1.IPFamily]*clients // clients that no Service has seen, of a probe

	live     *live.Decoder // the followed cluster's changes; nil: there is none
	arriving chan live.Change
	liveErr  error // why arriving was closed
	followed bool  // the world is no longer what the cluster holds

	subject subject    // nil while none runs
	about   Subject    // never changes: goroutines read it
	shim    *shim.Shim // in front of the tools of a subject that is a process of its own
	tunnel  *tunnel    // around a subject that is a process of its own
	work    work
	spent   time.Duration // CPU time of subjects that were stopped
	// shimSpent is the shim's own CPU time in the calls before place shimRead of its file.
	shimSpent time.Duration
	shimRead  int64
	fail      context.CancelCauseFunc
	step      atomic.Pointer[string]
	memory    uint64 // kernel memory before any rule
	peak      uint64 // the largest peak RSS before what was done aside
}

// perform does an assignment.
func perform(ctx context.Context, lab *netns.Lab, a Assignment, changes *live.Decoder, say *speaker) error {
	r := &repetition{Assignment: a, lab: lab, live: changes, say: say, clock: clock.RealClock{}}
	r.started = r.clock.Now()
	if changes != nil {
		r.readChanges()
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	err := errors.Join(r.steps(ctx), r.closePods())
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	exceeded := false
	err, exceeded = r.exceeded(err)
	if err == nil {
		r.peakMemory()
	}
	err = errors.Join(err, r.endFaults(ctx), r.stop())
	if err == nil && !exceeded {
		err = r.dump(ctx)
	}
	if r.tunnel != nil {
		r.tunnel.visible.Close()
	}
	r.cluster.Stop()
	return err
}

// prepare makes the cluster's objects and the node's network; no proxier yet.
func (r *repetition) prepare(ctx context.Context) error {
	var err error
	if r.about, err = ParseSubject(r.Subject); err != nil {
		return err
	}
	r.Subject, r.variant, r.layout = r.about.Name, r.about.Variant, r.about.Layout
	for _, family := range r.Scenario.Shape.Families {
		r.families = append(r.families, corev1.IPFamily(family))
	}
	if r.Objects != nil {
		r.world = sim.WorldOf(r.Objects, r.Scenario.Seed)
		r.families = familiesOf(r.Objects)
	} else if r.world, err = sim.NewWorld(r.Scenario.Shape, r.Scenario.Seed); err != nil {
		return err
	}
	if err := r.limitFamilies(); err != nil {
		return err
	}
	if r.Feed == FeedAPI {
		r.shim, err = shim.Install(ctx, shim.Options{Dir: filepath.Join(r.lab.Dir, "shim"), Command: r.Tools.Shim, Variant: string(r.variant), Families: r.families})
		if err != nil {
			return err
		}
	}
	r.cluster = sim.NewCluster(r.clock)
	r.config = ProxyConfig(r.ProxyConfig, &r.Scenario, r.Objects == nil)
	r.say.stage("generate", 0, 0)
	return ResetPeakRSS()
}

// limitFamilies lets every subject serve the same IP families. kube-proxy serves all that the namespace has: IPv4 always, and
// IPv6 unless it is disabled, which it is where the scenario has none of it.
func (r *repetition) limitFamilies() error {
	r.served = []corev1.IPFamily{corev1.IPv4Protocol}
	if !slices.Contains(r.families, corev1.IPv6Protocol) {
		err := r.lab.DisableIPv6()
		if err == nil || !netns.HasIPv6() {
			return err
		}
		r.say.message(message{Note: fmt.Sprintf("every subject serves IPv6, too: %v", err)})
	}
	r.served = append(r.served, corev1.IPv6Protocol)
	return nil
}

// connect gives the node its addresses, and routes to wherever packets of the scenario may be sent.
func (r *repetition) connect() error {
	objects := r.world.Objects()
	if len(objects.Nodes) > 0 {
		for _, a := range objects.Nodes[0].Status.Addresses {
			if addr, ok := sim.ParseAddr(a.Address); ok && slices.Contains(r.families, familyOf(addr)) {
				r.node = append(r.node, addr)
			}
		}
	}
	sink := sinks(r.Scenario.Shape, objects, r.families)
	if sendsFlows(&r.Scenario) {
		return r.connectPods(objects, sink)
	}
	return r.lab.Connect(netns.Topology{Node: r.node, Sink: sink})
}

func (r *repetition) steps(ctx context.Context) error {
	for i := range r.Scenario.Steps {
		step := &r.Scenario.Steps[i]
		name := fmt.Sprintf("%d:%s", i+1, step.Kind())
		r.step.Store(&name)
		r.flows.stepBegins(name, r.clock.Now())
		r.beginWork(step, name)
		err := r.revive(ctx)
		if err == nil {
			err = r.do(ctx, step, name)
		}
		if err != nil {
			return fmt.Errorf("step %s: %w", name, err)
		}
		if step.Settle != nil || step.React != nil || step.Probe != nil || i == len(r.Scenario.Steps)-1 {
			r.endWork() // what follows a probe is no work of the probe's
		}
	}
	return nil
}

// work is the time from a step that makes changes to the end of the settle step that waits for it, or of a probe.
type work struct {
	step  string
	fault bool // the step is one: changes that follow it are what the subject works on
	began time.Time
	cpu   time.Duration // of the subject, until then
}

func (r *repetition) beginWork(step *scenarios.Step, name string) {
	switch {
	case r.work.step == "":
		r.work = work{step: name, fault: step.Fault != nil, began: r.clock.Now(), cpu: r.cpu()}
	case r.work.fault && step.Settle == nil:
		r.work.step, r.work.fault = name, step.Fault != nil
	}
}

// endWork records the CPU time that the subject spent on a step and what followed from it.
func (r *repetition) endWork() {
	if now := r.cpu(); r.work.step != "" && now > r.work.cpu {
		r.recordAs(Record{Unit: "s", Step: r.work.step}, SubjectCPU, (now - r.work.cpu).Seconds())
	}
	r.work = work{}
}

// cpu is what the subjects that ran so far have used, without what measuring their tools took; 0 where it is not known
// apart from the lab's own.
func (r *repetition) cpu() time.Duration {
	total := r.spent
	if s, ok := r.subject.(*outside); ok {
		if used, err := s.process.CPU(); err == nil {
			total += used
		}
	}
	return max(0, total-r.shimTime())
}

// shimTime is the CPU time of the shim itself in all calls that have ended: it is a child of the subject's.
func (r *repetition) shimTime() time.Duration {
	if r.shim == nil {
		return 0
	}
	calls, next, err := r.shim.Read(r.shimRead)
	if err != nil {
		r.fail(err)
	}
	r.shimRead = next
	for _, call := range calls {
		r.shimSpent += call.Own
	}
	return r.shimSpent
}

func (r *repetition) do(ctx context.Context, step *scenarios.Step, name string) error {
	switch {
	case step.Create != nil:
		return r.create(ctx, *step.Create, name)
	case step.React != nil:
		return r.react(ctx, step.React, name)
	case step.Churn != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Churn(*step.Churn) })
	case step.Rollout != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Rollout(*step.Rollout) })
	case step.Scale != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Scale(*step.Scale) })
	case step.NodeLoss != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.NodeLoss(*step.NodeLoss) })
	case step.Follow != nil:
		return r.followStep(ctx, step.Follow, name)
	case step.Restart != nil:
		r.changeLayout(step.Restart.Layout)
		return r.restart(ctx, name)
	case step.Fault != nil:
		return r.fault(ctx, step.Fault, name)
	case step.Probe != nil:
		return r.traverse(ctx, step.Probe, name)
	case step.Traffic != nil:
		return r.traffic(ctx, step.Traffic, name)
	case step.Check != nil:
		return r.check(ctx, step.Check, name)
	case step.Settle != nil:
		return r.settle(ctx, step.Settle, name)
	}
	return errors.New("nothing to do")
}

// create brings Services into being. The first one, unless it has a rate, is there before the proxier starts.
func (r *repetition) create(ctx context.Context, c scenarios.Create, name string) error {
	r.say.stage(name, 0, 0)
	begin := r.clock.Now()
	var trace sim.Trace
	if r.Objects == nil {
		var err error
		if trace, err = r.world.Create(c); err != nil {
			return err
		}
	}
	generated := r.clock.Since(begin)
	if r.subject != nil {
		return r.cluster.Play(ctx, trace, r.playOptions(name))
	}
	if err := r.fits(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	begin = r.clock.Now()
	objects := r.world.Objects()
	if c.Rate > 0 {
		objects = &sim.Objects{Nodes: objects.Nodes}
	}
	r.loaded = objects
	if err := r.cluster.Load(ctx, objects); err != nil {
		return err
	}
	loaded := r.clock.Since(begin)
	if err := r.baseline(ctx); err != nil {
		return err
	}
	if err := r.start(ctx, (generated + loaded).Seconds()); err != nil {
		return err
	}
	if c.Rate > 0 {
		r.ready(ctx)
		r.work.began, r.work.cpu = r.clock.Now(), r.cpu()
		return r.cluster.Play(ctx, trace, r.playOptions(name))
	}
	return nil
}

// upTime is how long a subject may take to come up before changes come all the same.
const upTime = 30 * time.Second

// ready waits until the subject has come up, which is no part of the latency of changes that follow. One that cannot,
// because a fault is in its way, meets the changes as it is.
func (r *repetition) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, upTime)
	defer cancel()
	_ = r.subject.inSync(ctx)
}

func (r *repetition) playOptions(name string) sim.PlayOptions {
	return sim.PlayOptions{
		Start:    r.clock.Now(),
		Progress: func(done, total int) { r.say.stage(name, done, total) },
		Before:   func(ch sim.Change, due time.Time) { r.expect(ch.Op, ch.Object, due) },
	}
}

func (r *repetition) play(ctx context.Context, name string, plan func() (sim.Trace, error)) error {
	trace, err := plan()
	if err != nil {
		return err
	}
	r.say.stage(name, 0, len(trace))
	r.recordAs(Record{Unit: "count"}, Played, float64(len(trace)))
	return r.cluster.Play(ctx, trace, r.playOptions(name))
}

func (r *repetition) peakMemory() {
	if r.subject == nil {
		return
	}
	if rss, err := r.subject.peakRSS(); err == nil {
		r.recordAs(Record{Unit: "B"}, PeakRSS, float64(rss))
	}
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
		r.say.message(message{Rules: string(out)})
	}
	return nil
}

// dumpCommands are those that print the subject's rules.
func (r *repetition) dumpCommands() (commands [][]string, err error) {
	switch {
	case r.about.Backend == proxier.Nftables && r.about.Proxier == Synclab:
		for _, family := range r.families {
			tables, _, err := r.ownNftables(family)
			if err != nil {
				return nil, err
			}
			for _, table := range tables {
				commands = append(commands, []string{"nft", "list", "table", nftProtocol(family), table.Name})
			}
		}
	case r.about.Backend == proxier.Nftables:
		commands = [][]string{{"nft", "list", "ruleset"}}
	case r.variant == "":
		return nil, fmt.Errorf("--dump-iptables: how %s writes rules is not known", r.Subject)
	default:
		for _, family := range r.families {
			commands = append(commands, []string{iptables.Binary(r.variant, family, "save")})
		}
	}
	return commands, nil
}

func (r *repetition) random(purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(r.Scenario.Seed, purpose<<32|uint64(r.Rep)))
}

// record completes a record with what all of the repetition share, and sends it.
func (r *repetition) record(rec Record) {
	rec.Scenario, rec.Subject, rec.Params, rec.Rep = r.Scenario.Name, r.Subject, r.Params, r.Rep
	rec.Services, rec.Endpoints = r.Scenario.Shape.Services, r.Scenario.Shape.Endpoints.Mean()
	if r.Objects != nil {
		rec.Services, rec.Endpoints = sizeOf(r.Objects)
	}
	if rec.At == 0 {
		rec.At = r.clock.Since(r.started).Seconds()
	}
	if step := r.step.Load(); step != nil && rec.Step == "" {
		rec.Step = *step
	}
	r.say.message(message{Record: &rec})
}

func (r *repetition) recordAs(rec Record, metric Metric, value float64) {
	rec.Metric, rec.Value = metric, value
	r.record(rec)
}
