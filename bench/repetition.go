package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/clock"

	"synclab/bench/netns"
	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/runner"
	"synclab/scenarios"
	"synclab/sim"
)

// repetition is one measured pass of a cell, inside the worker's namespace.
type repetition struct {
	Assignment
	lab      *netns.Lab
	say      *speaker
	clock    clock.WithTicker
	started  time.Time
	variant  iptables.Variant
	families []corev1.IPFamily
	config   *v1alpha1.KubeProxyConfiguration
	faults   faults
	syncs    syncs

	world   *sim.World
	cluster *sim.Cluster
	node    []netip.Addr

	proxier *proxier.Proxier
	stop    func() error // ends the proxier; nil while none runs
	fail    context.CancelCauseFunc
	step    atomic.Pointer[string]
	memory  uint64 // kernel memory before any rule
}

// perform does an assignment.
func perform(ctx context.Context, lab *netns.Lab, a Assignment, say *speaker) error {
	r := &repetition{Assignment: a, lab: lab, say: say, clock: clock.RealClock{}}
	r.started = r.clock.Now()
	if err := r.prepare(); err != nil {
		return err
	}
	ctx, r.fail = context.WithCancelCause(ctx)
	defer r.fail(nil)
	err := r.steps(ctx)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	if r.stop != nil {
		err = errors.Join(err, r.stop())
	}
	if err == nil {
		r.peakMemory()
		err = r.dump(ctx)
	}
	r.cluster.Stop()
	return err
}

// prepare makes the cluster's objects and the node's network; no proxier yet.
func (r *repetition) prepare() error {
	subject, err := subjectOf(r.Subject)
	if err != nil {
		return err
	}
	r.variant = subject.Variant
	for _, family := range r.Scenario.Shape.Families {
		r.families = append(r.families, corev1.IPFamily(family))
	}
	if r.Objects != nil {
		r.world = sim.WorldOf(r.Objects, r.Scenario.Seed)
		r.families = familiesOf(r.Objects)
	} else if r.world, err = sim.NewWorld(r.Scenario.Shape, r.Scenario.Seed); err != nil {
		return err
	}
	r.cluster = sim.NewCluster(r.clock)
	r.config = r.proxyConfig()
	r.say.stage("generate", 0, 0)
	return ResetPeakRSS()
}

// proxyConfig is the configuration with what the scenario overrides, and with the pods' ranges for detect-local.
func (r *repetition) proxyConfig() *v1alpha1.KubeProxyConfiguration {
	cfg := r.ProxyConfig
	if cfg == nil {
		cfg = config.New()
	}
	p := r.Scenario.Proxy
	if p.MinSyncPeriod > 0 {
		cfg.IPTables.MinSyncPeriod.Duration = p.MinSyncPeriod
	}
	if p.SyncPeriod > 0 {
		cfg.IPTables.SyncPeriod.Duration = p.SyncPeriod
	}
	cfg.IPTables.SyncPeriod.Duration = max(cfg.IPTables.SyncPeriod.Duration, cfg.IPTables.MinSyncPeriod.Duration)
	if p.MasqueradeAll {
		cfg.IPTables.MasqueradeAll = true
	}
	if p.NodePortAddresses != nil {
		cfg.NodePortAddresses = p.NodePortAddresses
	}
	if p.LocalhostNodePorts != nil {
		cfg.IPTables.LocalhostNodePorts = p.LocalhostNodePorts
	}
	if cfg.ClusterCIDR == "" && r.Objects == nil {
		cfg.ClusterCIDR = strings.Join(r.Scenario.Shape.PodCIDRs, ",")
	}
	return cfg
}

// connect gives the node its addresses, and routes to wherever packets of the scenario may be sent.
func (r *repetition) connect() error {
	objects := r.world.Objects()
	for _, node := range objects.Nodes {
		if node.Name != nodeName(objects) {
			continue
		}
		for _, a := range node.Status.Addresses {
			if addr, err := netip.ParseAddr(a.Address); err == nil && slices.Contains(r.families, familyOf(addr)) {
				r.node = append(r.node, addr)
			}
		}
	}
	return r.lab.Connect(netns.Topology{Node: r.node, Sink: sinks(r.Scenario.Shape, objects, r.families)})
}

func (r *repetition) steps(ctx context.Context) error {
	for i := range r.Scenario.Steps {
		step := &r.Scenario.Steps[i]
		name := fmt.Sprintf("%d:%s", i+1, step.Kind())
		r.step.Store(&name)
		if err := r.do(ctx, step, name); err != nil {
			return fmt.Errorf("step %s: %w", name, err)
		}
	}
	return nil
}

func (r *repetition) do(ctx context.Context, step *scenarios.Step, name string) error {
	switch {
	case step.Create != nil:
		return r.create(ctx, *step.Create, name)
	case step.Churn != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Churn(*step.Churn) })
	case step.Rollout != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Rollout(*step.Rollout) })
	case step.Scale != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.Scale(*step.Scale) })
	case step.NodeLoss != nil:
		return r.play(ctx, name, func() (sim.Trace, error) { return r.world.NodeLoss(*step.NodeLoss) })
	case step.Restart != nil:
		return r.restart(ctx, name)
	case step.Fault != nil:
		return r.fault(ctx, step.Fault, name)
	case step.Probe != nil:
		return r.traverse(ctx, step.Probe, name)
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
	if r.proxier != nil {
		return r.cluster.Play(ctx, trace, r.playOptions(name))
	}
	if err := errors.Join(r.fits(), r.connect()); err != nil {
		return err
	}
	if c.Rate == 0 {
		if err := r.cluster.Load(ctx, r.world.Objects()); err != nil {
			return err
		}
	} else if err := r.cluster.Load(ctx, &sim.Objects{Nodes: r.world.Objects().Nodes}); err != nil {
		return err
	}
	if err := r.baseline(ctx); err != nil {
		return err
	}
	if err := r.start(ctx, begin); err != nil {
		return err
	}
	if c.Rate > 0 {
		return r.cluster.Play(ctx, trace, r.playOptions(name))
	}
	return nil
}

func (r *repetition) playOptions(name string) sim.PlayOptions {
	return sim.PlayOptions{Start: r.clock.Now(), Progress: func(done, total int) { r.say.stage(name, done, total) }}
}

func (r *repetition) play(ctx context.Context, name string, plan func() (sim.Trace, error)) error {
	trace, err := plan()
	if err != nil {
		return err
	}
	r.say.stage(name, 0, len(trace))
	return r.cluster.Play(ctx, trace, r.playOptions(name))
}

// start makes a proxier, waits until its handlers have everything (metric load, from begin on), and lets it sync.
func (r *repetition) start(ctx context.Context, begin time.Time) error {
	machine, err := proxier.ExamineMachine(r.variant)
	if err != nil {
		return err
	}
	p, err := proxier.New(proxier.Options{
		Config: r.config, Variant: r.variant, Families: r.families, NodeName: nodeName(r.world.Objects()), NodeIPs: r.node,
		Addresses: r.addresses, Machine: machine, Policy: runner.Policy(r.Scenario.Proxy.Policy), Burst: r.Scenario.Proxy.Burst,
		LockFile: r.lab.LockFile, Clock: r.clock, OnSync: r.onSync, Conntrack: r.conntrack, ServeHealthChecks: true, Sysctls: true,
		Restorer: iptables.RestorerOptions{Prepare: r.faults.prepare, Started: r.faults.started},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	if err := p.Watch(ctx, r.cluster.NewInformers()); err != nil {
		cancel()
		return err
	}
	r.record(Record{Metric: Load, Value: r.clock.Since(begin).Seconds(), Unit: "s"})
	done := make(chan error, 1)
	go func() {
		err := p.Run(ctx)
		if err != nil {
			r.fail(fmt.Errorf("proxier: %w", err)) // nothing would ever settle
		}
		done <- err
	}()
	r.proxier = p
	r.stop = func() error { cancel(); r.stop = nil; return <-done }
	return nil
}

func (r *repetition) conntrack(corev1.IPFamily) (conntrack.Table, error) {
	return conntrack.NewKernel(vishnetns.None()), nil
}

// addresses are all of the node's, those of loopback included.
func (r *repetition) addresses() ([]netip.Addr, error) {
	var all []netip.Addr
	for _, family := range r.families {
		addrs, err := conntrack.NewKernel(vishnetns.None()).LocalAddrs(family)
		if err != nil {
			return nil, err
		}
		all = append(all, addrs...)
	}
	return all, nil
}

func (r *repetition) restart(ctx context.Context, name string) error {
	r.say.stage(name, 0, 0)
	if err := r.stop(); err != nil {
		return err
	}
	return r.start(ctx, r.clock.Now())
}

// settle waits until the proxier has nothing left to do, and counts what the kernel then holds.
func (r *repetition) settle(ctx context.Context, s *scenarios.Settle, name string) error {
	r.say.stage(name, 0, 0)
	waiting, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	if err := r.handled(waiting); err != nil {
		return err
	}
	if err := r.inSync(waiting); err != nil {
		if ctx.Err() == nil && waiting.Err() != nil {
			return fmt.Errorf("not in sync after %v; --set steps.%s.timeout=… gives it more time: %w", s.Timeout, stepIndex(name), err)
		}
		return err
	}
	return r.count()
}

// inSync waits until nothing is pending and the kernel holds as many rules as the last sync left: after a foreign flush
// the proxier is idle, and wrong, until it finds out.
func (r *repetition) inSync(ctx context.Context) error {
	for {
		if err := r.proxier.WaitIdle(ctx); err != nil {
			return err
		}
		next := r.syncs.next()
		wrong, err := r.misses()
		if wrong == "" || err != nil {
			return err
		}
		select {
		case <-next:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", wrong, context.Cause(ctx))
		}
	}
}

// misses describes a table that does not hold what the last sync left in it; empty: none.
func (r *repetition) misses() (string, error) {
	for _, family := range r.families {
		for table, want := range r.syncs.installed(family) {
			have, err := r.ownRules(family, table)
			if err != nil {
				return "", err
			}
			if have != want.Rules {
				return fmt.Sprintf("%s %s has %d rules of the proxier, not %d", family, table, have, want.Rules), nil
			}
		}
	}
	return "", nil
}

// ownRules counts the rules in the proxier's chains, as the kernel has them.
func (r *repetition) ownRules(family corev1.IPFamily, table iptables.Table) (int, error) {
	tally, err := kernel.Tally(string(r.variant), family, string(table))
	rules := 0
	for chain, n := range tally {
		if strings.HasPrefix(chain, "KUBE-") {
			rules += n
		}
	}
	return rules, err
}

// stepIndex of "2:settle" as --set counts: from 0.
func stepIndex(name string) string {
	var n int
	_, _ = fmt.Sscanf(name, "%d:", &n)
	return fmt.Sprint(n-1) + ".settle"
}

// count records what the kernel holds of the proxier, and what the closed form says.
func (r *repetition) count() error {
	forms, applies := closedForms(r.world.Objects(), r.families, r.config)
	for _, family := range r.families {
		for _, table := range []iptables.Table{iptables.NAT, iptables.Filter} {
			rules, err := r.ownRules(family, table)
			if err != nil {
				return err
			}
			place := Record{Unit: "count", Family: string(family), Table: string(table)}
			r.recordAs(place, RulesKernel, float64(rules))
			if applies {
				r.recordAs(place, RulesClosedForm, float64(forms[family][table]))
			}
		}
	}
	if now, err := ReadKernelMemory(); err == nil && now > r.memory && r.memory > 0 {
		r.recordAs(Record{Unit: "B"}, KernelMemory, float64(now-r.memory))
	}
	return nil
}

func (r *repetition) peakMemory() {
	if rss, err := ReadPeakRSS(); err == nil {
		r.recordAs(Record{Unit: "B"}, PeakRSS, float64(rss))
	}
}

func (r *repetition) dump(ctx context.Context) error {
	if !r.Dump {
		return nil
	}
	for _, family := range r.families {
		path, err := iptables.FindBinary(iptables.Binary(r.variant, family, "save"))
		if err != nil {
			return err
		}
		out, err := exec.CommandContext(ctx, path).Output()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		r.say.message(message{Rules: string(out)})
	}
	return nil
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
	if step := r.step.Load(); step != nil {
		rec.Step = *step
	}
	r.say.message(message{Record: &rec})
}

func (r *repetition) recordAs(rec Record, metric Metric, value float64) {
	rec.Metric, rec.Value = metric, value
	r.record(rec)
}

// handled waits until the proxier's handlers have seen every change that was made.
func (r *repetition) handled(ctx context.Context) error {
	return r.proxier.WaitSeen(ctx, r.cluster.Version(&corev1.Service{}), r.cluster.Version(&discoveryv1.EndpointSlice{}))
}
