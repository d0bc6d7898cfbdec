package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/backend"
	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/health"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/metrics"
	"synclab/proxier/nftables"
	"synclab/proxier/tracker"
)

// postSync does the post-sync work of all families: metrics, health, and the health check servers that load balancers
// query.
type postSync struct {
	opts    *Options
	metrics map[corev1.IPFamily]*metrics.Family
	health  *health.Server
	servers map[corev1.IPFamily]*health.ServiceServers
}

func newPostSync(opts *Options) (*postSync, error) {
	p := &postSync{
		opts:    opts,
		metrics: map[corev1.IPFamily]*metrics.Family{},
		servers: map[corev1.IPFamily]*health.ServiceServers{},
	}
	collectors := metrics.Options{Registerer: opts.Registry, Families: opts.Families}
	if opts.Machine.Accounting {
		collectors.InvalidDropped = func() (uint64, bool) { return kernel.Accounted(iptables.AccountInvalid) }
		collectors.LocalhostNodePorts = func() (uint64, bool) { return kernel.Accounted(iptables.AccountLocalNodePorts) }
	}
	all, err := metrics.New(collectors)
	if err != nil {
		return nil, err
	}
	p.health, err = health.New(health.Options{
		SyncPeriod: opts.settings.SyncPeriod, Families: opts.Families, Clock: opts.Clock,
		Mode: string(opts.Backend), Gatherer: opts.Registry, HealthzTotal: all.HealthzTotal, LivezTotal: all.LivezTotal,
	})
	if err != nil {
		return nil, err
	}
	for _, family := range opts.Families {
		p.metrics[family] = all.For(family)
		if opts.ServeHealthChecks {
			if p.servers[family], err = health.NewServiceServers(health.ServiceOptions{Family: family, Healthy: p.health.Healthy}); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// flowsOf makes the conntrack cleanup of a family's UDP flows; nil when cleanup is off. Backend Userspace has none: its
// rules translate to no endpoint, so all flows would seem stale.
func (p *postSync) flowsOf(family corev1.IPFamily) (*flows, error) {
	if p.opts.Conntrack == nil || p.opts.Backend == Userspace {
		return nil, nil
	}
	table, err := p.opts.Conntrack(family)
	if err != nil {
		return nil, fmt.Errorf("conntrack: %w", err)
	}
	cleaner, err := conntrack.NewCleaner(conntrack.Options{Table: table, Family: family, Local: p.nodeLocal(family)})
	if err != nil {
		return nil, err
	}
	return newFlows(cleaner), nil
}

// nodeLocal returns a function that reads which addresses take NodePorts.
func (p *postSync) nodeLocal(family corev1.IPFamily) func() (func(netip.Addr) bool, error) {
	return func() (func(netip.Addr) bool, error) {
		nodePorts, addrs, err := p.nodePorts(family)
		if err != nil {
			return nil, err
		}
		return conntrack.NodeLocal(addrs, nodePorts.Localhost), nil
	}
}

// nodePorts returns a family's NodePort settings and the node's current addresses that match them.
func (p *postSync) nodePorts(family corev1.IPFamily) (config.NodePorts, []netip.Addr, error) {
	nodePorts, err := config.NodePortAddresses(p.opts.Config, family, p.opts.NodeIPs)
	if err != nil {
		return nodePorts, nil, err
	}
	addrs, err := p.opts.Addresses()
	if err != nil {
		return nodePorts, nil, fmt.Errorf("read the node's addresses: %w", err)
	}
	if !nodePorts.MatchAll {
		addrs, _ = nodePorts.Select(addrs)
	}
	return nodePorts, addrs, nil
}

func (p *postSync) queued(e *engine) {
	p.health.QueuedUpdate(e.family)
	p.metrics[e.family].Queued(e.clock.Now())
}

// committed records changes that are in the kernel now. They stay there even if the post-sync work fails.
func (p *postSync) committed(e *engine, changes tracker.Changes) {
	p.metrics[e.family].Changed(changes.ServiceEvents, changes.SliceEvents)
	servers := p.servers[e.family]
	if servers == nil {
		return
	}
	for _, change := range changes.Services {
		if port := healthCheckPort(change.New); port != 0 {
			servers.Set(change.Name, port, localReady(change.New))
		} else {
			servers.Remove(change.Name)
		}
	}
}

// healthCheckPort returns the health check node port of a Service; 0: none.
func healthCheckPort(svc *tracker.Service) uint16 {
	if svc == nil || len(svc.Ports) == 0 {
		return 0
	}
	return svc.Ports[0].HealthCheckNodePort // all ports of a Service share it
}

// synced reports the result of a sync's write to metrics, health and the health check servers.
func (p *postSync) synced(ctx context.Context, e *engine, s *Sync) {
	m := p.metrics[e.family]
	m.Pending(e.tracker.PendingEvents())
	p.writes(e, s)
	if s.Err != nil {
		p.health.Failed(e.family, s.Err)
		return
	}
	for table, total := range s.Installed {
		m.Rules(string(table), total.Rules, s.Sent[table].Rules)
	}
	for _, due := range s.TriggerTimes {
		m.Programmed(s.Written.Sub(due))
	}
	p.refused(e, s)
	p.health.Updated(e.family)
	m.LastSynced(e.clock.Now())
	m.NoLocalEndpoints(e.plan.NoLocalEndpoints())
	p.serve(ctx, e)
}

// writes counts the failed restores or transactions of a sync as one failure, as kube-proxy does. It counts them even
// if the same sync then succeeded by a full write or by isolating a Service port. Other failures of a sync do not
// count.
func (p *postSync) writes(e *engine, s *Sync) {
	refused := slices.ContainsFunc(s.Runs, func(r backend.Run) bool { return r.ExitCode != 0 })
	if p.opts.Backend == Nftables {
		failed := (*nftables.TransactionError)(nil)
		if errors.As(s.Err, &failed) || refused {
			p.metrics[e.family].TransactionFailed(failed != nil && failed.Cleanup)
		}
		return
	}
	failed := (*iptables.RestoreError)(nil)
	if errors.As(s.Err, &failed) || refused {
		p.metrics[e.family].RestoreFailed(e.began == Full)
	}
}

// refused reports Service ports whose rules the kernel refused. The kernel has all other rules, so the proxier is
// healthy. The health checks of those Services report unhealthy.
func (p *postSync) refused(e *engine, s *Sync) {
	p.metrics[e.family].Refused(len(s.Refused))
	var ports []string
	services := map[types.NamespacedName]bool{}
	for _, refusal := range s.Refused {
		ports = append(ports, fmt.Sprintf("%s %s: %v", refusal.Port, refusal.Port.Protocol, refusal.Err))
		services[refusal.Port.NamespacedName] = true
	}
	p.health.Refused(e.family, ports)
	if servers := p.servers[e.family]; servers != nil {
		servers.Refuse(services)
	}
}

// serve opens the health check node ports that are not open yet. Like NodePort addresses, their addresses are read
// after every full sync.
func (p *postSync) serve(ctx context.Context, e *engine) {
	servers := p.servers[e.family]
	if servers == nil {
		return
	}
	if e.moved {
		e.moved = false
		nodePorts, addrs, err := p.nodePorts(e.family)
		switch {
		case err != nil:
			e.log("cannot read the addresses for health check node ports", "error", err) // the old ones stay in use
		case nodePorts.MatchAll:
			servers.SetAddrs(nil)
		default:
			servers.SetAddrs(append([]netip.Addr{}, addrs...)) // an empty list must not become nil, which means all
		}
	}
	if err := servers.Open(ctx); err != nil {
		e.log("cannot open health check node ports", "error", err) // the next sync retries
	}
}

// localReady counts the ready addresses of a Service on this node. A pod with several ports counts as one address.
func localReady(svc *tracker.Service) int {
	addrs := map[netip.Addr]bool{}
	for _, port := range svc.Endpoints {
		for _, ep := range port.List {
			if ep.Local && ep.Ready {
				addrs[ep.Addr.Addr()] = true
			}
		}
	}
	return len(addrs)
}

func (p *postSync) close() {
	for _, servers := range p.servers {
		servers.Close()
	}
}

// Handler serves /healthz, /livez, /proxyMode and /metrics.
func (p *Proxier) Handler() http.Handler { return p.postSync.health.Handler() }
