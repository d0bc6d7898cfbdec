package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
	"synclab/proxier/config"
	"synclab/proxier/plan"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// Proxier serves one node. It has one engine per IP family; each engine has separate tables and a separate runner.
type Proxier struct {
	opts     Options
	engines  []*engine
	postSync *postSync
	// services and slices record how far the event handlers are in the two watch streams.
	services, slices *seen
}

// New makes a Proxier. It touches no table before Run.
func New(opts Options) (*Proxier, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("proxier: %w", err)
	}
	p := &Proxier{opts: opts, services: newSeen(), slices: newSeen()}
	var err error
	if p.postSync, err = newPostSync(&p.opts); err != nil {
		return nil, fmt.Errorf("proxier: %w", err)
	}
	for _, family := range opts.Families {
		e, err := p.newEngine(family)
		if err != nil {
			return nil, fmt.Errorf("proxier for %s: %w", family, err)
		}
		p.engines = append(p.engines, e)
	}
	return p, nil
}

func (p *Proxier) newEngine(family corev1.IPFamily) (*engine, error) {
	node := plan.Node{Name: p.opts.NodeName}
	e := &engine{
		family: family, opts: &p.opts, clock: p.opts.Clock, postSync: p.postSync, node: node,
		tracker: tracker.New(tracker.Options{Family: family, NodeName: p.opts.NodeName, Since: p.opts.Clock.Now()}),
		plan:    plan.New(node),
		full:    "start",
		syncing: newLock(),
	}
	var err error
	if e.flows, err = p.postSync.flowsOf(family); err != nil {
		return nil, err
	}
	if e.backend, err = p.opts.newBackend(family, backend.Options{Settings: e.settings, Clock: e.clock, Log: e.log}); err != nil {
		return nil, err
	}
	e.runner, err = runner.New(runner.Options{
		Name:          string(p.opts.Backend) + " " + string(family),
		Policy:        p.opts.Policy,
		Burst:         p.opts.Burst,
		MinInterval:   p.opts.settings.MinSyncPeriod,
		MaxInterval:   fullSyncInterval,
		RetryInterval: p.opts.RetryInterval,
		Clock:         p.opts.Clock,
	}, e.sync)
	return e, err
}

// settings returns the backend's settings. Each full sync reads them again, because addresses and sysctls may change.
func (e *engine) settings() (backend.Settings, error) {
	cfg := e.opts.Config
	local, err := config.DetectLocal(cfg, e.family, e.opts.PodCIDRs)
	if err != nil {
		return backend.Settings{}, err
	}
	nodePorts, err := config.NodePortAddresses(cfg, e.family, e.opts.NodeIPs)
	if err != nil {
		return backend.Settings{}, err
	}
	s := backend.Settings{
		Family:        e.family,
		Local:         local,
		MasqueradeBit: e.opts.settings.MasqueradeBit,
		MasqueradeAll: e.opts.settings.MasqueradeAll,
		// Only NodePorts on loopback addresses need the rule that guards loopback.
		LocalhostNodePorts: nodePorts.RouteLocalnet(),
		NodeIP:             e.opts.nodeIP(e.family),
	}
	e.opts.Machine.apply(&s)
	s.NodePortAddresses, err = e.nodePortAddresses()
	return s, err
}

// nodePortAddresses returns the node's current addresses that take NodePorts; nil means all addresses.
func (e *engine) nodePortAddresses() ([]netip.Addr, error) {
	nodePorts, err := config.NodePortAddresses(e.opts.Config, e.family, e.opts.NodeIPs)
	if err != nil || nodePorts.MatchAll {
		return nil, err
	}
	addrs, err := e.opts.Addresses()
	if err != nil {
		return nil, fmt.Errorf("read the node's addresses: %w", err)
	}
	selected, _ := nodePorts.Select(addrs)
	if selected == nil {
		selected = []netip.Addr{} // no address; nil would mean all
	}
	return selected, nil
}

// Run syncs until ctx ends, beginning with a full sync. When Run returns, all its goroutines have ended.
func (p *Proxier) Run(ctx context.Context) (err error) {
	if err := p.prepareNode(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	ctx, cancel := context.WithCancel(ctx)
	var checks sync.WaitGroup
	defer checks.Wait()
	defer cancel()
	done := make(chan error, len(p.engines))
	for _, e := range p.engines {
		e.runner.Trigger()
		go func() { done <- e.runner.Run(ctx) }()
		checks.Go(func() { e.watchDrift(ctx) })
		if e.flows != nil {
			checks.Go(func() { e.retryFlows(ctx) })
		}
	}
	var errs []error
	for range p.engines {
		if err := <-done; !errors.Is(err, context.Canceled) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close closes the proxier's sockets. The rules stay. Run closes them at its end: only SyncNow without Run needs Close.
func (p *Proxier) Close() error {
	var errs []error
	for _, e := range p.engines {
		e.syncing.Lock()
		errs = append(errs, e.backend.Close())
		e.syncing.Unlock()
	}
	p.postSync.close()
	return errors.Join(errs...)
}

// WaitIdle returns when nothing is pending and the last sync of every family succeeded.
func (p *Proxier) WaitIdle(ctx context.Context) error {
	for _, e := range p.engines {
		if err := e.runner.WaitIdle(ctx); err != nil {
			return err
		}
	}
	return nil
}

// SyncNow syncs every family in the calling goroutine and bypasses the runner. full is the reason for a full sync; empty:
// there is none. Benchmarks and tests use it to time one sync.
func (p *Proxier) SyncNow(ctx context.Context, full string) error {
	var errs []error
	for _, e := range p.engines {
		if full != "" {
			e.demandFull(full)
		}
		errs = append(errs, e.sync(ctx))
	}
	return errors.Join(errs...)
}

// Dispatch lists the cluster IPs of a family in the order in which packets meet their rules; see Backend.Dispatch.
func (p *Proxier) Dispatch(family corev1.IPFamily) (frontends []backend.Frontend, rules int) {
	for _, e := range p.engines {
		if e.family == family {
			e.syncing.Lock()
			defer e.syncing.Unlock()
			return e.backend.Dispatch(e.plan.Ports())
		}
	}
	return nil, 0
}
