package bench

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	vishnetns "github.com/vishvananda/netns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/proxier"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/iptables"
	"synclab/proxier/runner"
	"synclab/scenarios"
)

// ProxyConfig is a configuration, nil for kube-proxy's defaults, with what the scenario overrides and, for a cluster that
// is generated, with the pods' ranges for detect-local.
func ProxyConfig(cfg *v1alpha1.KubeProxyConfiguration, s *scenarios.Scenario, generated bool) *v1alpha1.KubeProxyConfiguration {
	if cfg == nil {
		cfg = config.New()
	}
	cfg = cfg.DeepCopy()
	p := &s.Proxy
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
	if cfg.ClusterCIDR == "" && generated {
		cfg.ClusterCIDR = strings.Join(s.Shape.PodCIDRs, ",")
	}
	return cfg
}

// start makes a proxier, waits until its handlers have everything, and lets it sync. Metric load is how long they had to
// be waited for, and what it took before to make the cluster.
func (r *repetition) start(ctx context.Context, made time.Duration) error {
	machine, err := proxier.ExamineMachine(r.variant)
	if err != nil {
		return err
	}
	objects := r.world.Objects()
	var podCIDRs []string
	if len(objects.Nodes) > 0 {
		podCIDRs = objects.Nodes[0].Spec.PodCIDRs
	}
	p, err := proxier.New(proxier.Options{
		Config: r.config, Variant: r.variant, Families: r.families, NodeName: nodeName(objects), NodeIPs: r.node, PodCIDRs: podCIDRs,
		Addresses: r.addresses, Machine: machine, Policy: runner.Policy(r.Scenario.Proxy.Policy), Burst: r.Scenario.Proxy.Burst,
		LockFile: r.lab.LockFile, Clock: r.clock, OnSync: r.onSync, Conntrack: r.conntrack, ServeHealthChecks: true, Sysctls: true,
		Restorer: iptables.RestorerOptions{Prepare: r.faults.prepare, Started: r.faults.started},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	begin := r.clock.Now()
	if err := p.Watch(ctx, r.cluster.NewInformers()); err != nil {
		cancel()
		return err
	}
	r.record(Record{Metric: Load, Value: (made + r.clock.Since(begin)).Seconds(), Unit: "s"})
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
	return r.start(ctx, 0)
}
