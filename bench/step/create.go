package step

import (
	"context"
	"fmt"
	"slices"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject/host"
	"synclab/bench/traffic/flow"
	"synclab/proxier/kernel"
	"synclab/sim"
)

// create adds Services. Those of the first create step without a rate exist before the proxier starts.
func (r *Parts) create(ctx context.Context, s Step) error {
	r.Messages.Stage(s.Name, 0, 0)
	begin := r.Clock.Now()
	var trace sim.Trace
	if r.Objects == nil {
		var err error
		if trace, err = r.World.Create(*s.Create); err != nil {
			return err
		}
	}
	generated := r.Clock.Since(begin)
	if r.Host.Subject != nil {
		return r.Cluster.Play(ctx, trace, r.playOptions(s.Name))
	}
	if err := r.fits(); err != nil {
		return err
	}
	if err := r.connect(); err != nil {
		return err
	}
	begin = r.Clock.Now()
	objects := r.World.Objects()
	if s.Create.Rate > 0 {
		objects = &sim.Objects{Nodes: objects.Nodes}
	}
	r.Loaded = objects
	if err := r.Cluster.Load(ctx, objects); err != nil {
		return err
	}
	loaded := r.Clock.Since(begin)
	if err := r.Probes.Baseline(ctx); err != nil {
		return err
	}
	if err := r.Host.Start(ctx, (generated + loaded).Seconds()); err != nil {
		return err
	}
	if s.Create.Rate > 0 {
		r.ready(ctx)
		r.Host.WorkBegins()
		return r.Cluster.Play(ctx, trace, r.playOptions(s.Name))
	}
	return nil
}

// ready waits until the subject has come up: that is no part of the latency of later changes. If a fault prevents it,
// the changes begin anyway.
func (r *Parts) ready(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, pass.UpTime)
	defer cancel()
	_ = r.Host.Subject.InSync(ctx)
}

// connect gives the node its addresses, and routes to all destinations of the scenario's packets.
func (r *Parts) connect() error {
	r.FindNode()
	sink := pass.Sinks(r.Scenario.Shape, r.World.Objects(), r.Families)
	if slices.ContainsFunc(r.Scenario.Steps, flow.Sends) || r.Flows.MayWatch() {
		return r.Flows.ConnectPods(r.World.Objects(), sink)
	}
	return r.Lab.Connect(netns.Topology{Node: r.Node, Sink: sink})
}

// nftRuleBytes is the approximate size of a rule in a netlink batch of iptables-nft-restore.
const nftRuleBytes = 600

// The approximate size of a Service port and of an endpoint in the first transaction of kube-proxy (v1.37.2) with nft.
const nftPortBytes, nftEndpointBytes = 750, 60

// fits rejects a cluster whose first full sync the subject's tool could not send. For an ordinary user, the kernel limits
// one batch, and it would fail until the settle step gives up. The lab's own proxier sends Services' chains in batches that
// fit, but in layout classic all dispatch rules go in one.
func (r *Parts) fits() error {
	ownTables := r.About.Nftables()
	// Without a tool, it sends batches of netlink itself.
	if r.About.Tool == "" || r.About.Legacy() || !ownTables && !r.About.Classic() {
		return nil
	}
	limit, err := kernel.SendLimit()
	if err != nil || limit == 0 {
		return err
	}
	ports, endpoints := 0, 0
	objects := r.World.Objects()
	for _, svc := range objects.Services {
		ports += len(svc.Spec.Ports)
	}
	for _, slice := range objects.Slices {
		endpoints += len(slice.Endpoints) * len(slice.Ports)
	}
	// kube-proxy/nftables has a rule for each port, with all endpoints in a map.
	rules, need, other := ports, ports*nftPortBytes+endpoints*nftEndpointBytes, "synclab/nftables"
	if !ownTables {
		if !r.About.Own {
			rules += 3 * endpoints
		}
		need, other = rules*nftRuleBytes, "synclab/iptables-nft-tree or synclab/iptables-legacy"
	}
	if need <= limit {
		return nil
	}
	fit := rules * limit / need
	err = fmt.Errorf("about %d rules are too many for one batch of %s of an ordinary user, whose limit here is %d: "+
		"run as root, choose a smaller N, %s, or run as root: sysctl net.core.wmem_default=%d", rules, r.About.Tool, fit, other, need*2)
	if r.Feed == raw.FeedAPI { // the other subjects continue
		return &host.ExceededError{Value: float64(fit), Unit: "count", Err: fmt.Errorf("not run: %w", err)}
	}
	return err
}
