package proxier

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

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

func newAftercare(opts *Options) (*postSync, error) {
	a := &postSync{
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
	a.health, err = health.New(health.Options{
		SyncPeriod: opts.settings.SyncPeriod, Families: opts.Families, Clock: opts.Clock,
		Mode: mode(opts.Backend), Gatherer: opts.Registry, HealthzTotal: all.HealthzTotal, LivezTotal: all.LivezTotal,
	})
	if err != nil {
		return nil, err
	}
	for _, family := range opts.Families {
		a.metrics[family] = all.For(family)
		if opts.ServeHealthChecks {
			if a.servers[family], err = health.NewServiceServers(health.ServiceOptions{Family: family, Healthy: a.health.Healthy}); err != nil {
				return nil, err
			}
		}
	}
	return a, nil
}

// mode returns kube-proxy's name for the proxy mode of a backend.
func mode(kind BackendKind) string {
	if kind == Nftables || kind == Userspace {
		return string(kind)
	}
	return string(Iptables)
}

// flowsOf makes the conntrack cleanup of a family's UDP flows; nil when cleanup is off. Backend Userspace has none: its
// rules translate to no endpoint, so all flows would seem stale.
func (a *postSync) flowsOf(family corev1.IPFamily) (*flows, error) {
	if a.opts.Conntrack == nil || a.opts.Backend == Userspace {
		return nil, nil
	}
	table, err := a.opts.Conntrack(family)
	if err != nil {
		return nil, fmt.Errorf("conntrack: %w", err)
	}
	cleaner, err := conntrack.NewCleaner(conntrack.Options{Table: table, Family: family, Local: a.nodeLocal(family)})
	if err != nil {
		return nil, err
	}
	return newFlows(cleaner), nil
}

// nodeLocal returns a function that reads which addresses take NodePorts.
func (a *postSync) nodeLocal(family corev1.IPFamily) func() (func(netip.Addr) bool, error) {
	return func() (func(netip.Addr) bool, error) {
		nodePorts, addrs, err := a.nodePorts(family)
		if err != nil {
			return nil, err
		}
		return conntrack.NodeLocal(addrs, nodePorts.Localhost), nil
	}
}

// nodePorts returns a family's NodePort settings and the node's current addresses that match them.
func (a *postSync) nodePorts(family corev1.IPFamily) (config.NodePorts, []netip.Addr, error) {
	nodePorts, err := config.NodePortAddresses(a.opts.Config, family, a.opts.NodeIPs)
	if err != nil {
		return nodePorts, nil, err
	}
	addrs, err := a.opts.Addresses()
	if err != nil {
		return nodePorts, nil, fmt.Errorf("read the node's addresses: %w", err)
	}
	if !nodePorts.MatchAll {
		addrs, _ = nodePorts.Select(addrs)
	}
	return nodePorts, addrs, nil
}

func (a *postSync) queued(e *engine) {
	a.health.QueuedUpdate(e.family)
	a.metrics[e.family].Queued(e.clock.Now())
}

func (a *postSync) started(e *engine) { a.health.SyncStarted(e.family) }

func (a *postSync) drifted(e *engine, what string) { a.health.Drifted(e.family, what) }

func (a *postSync) node(node *corev1.Node) { a.health.SyncNode(node) }

func (a *postSync) nodeGone() { a.health.SyncNode(nil) }

// committed records changes that are in the kernel now. They stay there even if the post-sync work fails.
func (a *postSync) committed(e *engine, changes tracker.Changes) {
	a.metrics[e.family].Changed(changes.ServiceEvents, changes.SliceEvents)
	servers := a.servers[e.family]
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

func (a *postSync) cleaned(e *engine, took time.Duration, pass conntrack.Pass) {
	a.metrics[e.family].ConntrackCleaned(took, pass.Deleted)
}

// synced reports the result of a sync's write to metrics, health and the health check servers.
func (a *postSync) synced(ctx context.Context, e *engine, s *Sync) {
	m := a.metrics[e.family]
	m.Pending(e.tracker.PendingEvents())
	a.writes(e, s)
	if s.Err != nil {
		a.health.Failed(e.family, s.Err)
		return
	}
	for table, total := range s.Installed {
		m.Rules(string(table), total.Rules, s.Sent[table].Rules)
	}
	for _, due := range s.TriggerTimes {
		m.Programmed(s.Written.Sub(due))
	}
	a.refused(e, s)
	a.health.Updated(e.family)
	m.LastSynced(e.clock.Now())
	m.NoLocalEndpoints(e.plan.NoLocalEndpoints())
	a.serve(ctx, e)
}

// writes counts the failed restores or transactions of a sync as one failure, as kube-proxy does. It counts them even
// if the same sync then succeeded by a full write or by isolating a Service port. Other failures of a sync do not
// count.
func (a *postSync) writes(e *engine, s *Sync) {
	refused := slices.ContainsFunc(s.Runs, func(r backend.Run) bool { return r.ExitCode != 0 })
	if a.opts.Backend == Nftables {
		failed := (*nftables.TransactionError)(nil)
		if errors.As(s.Err, &failed) || refused {
			a.metrics[e.family].TransactionFailed(failed != nil && failed.Cleanup)
		}
		return
	}
	failed := (*iptables.RestoreError)(nil)
	if errors.As(s.Err, &failed) || refused {
		a.metrics[e.family].RestoreFailed(e.began == Full)
	}
}

// ended counts the duration of a finished sync. As in kube-proxy, it includes synced and the cleanup of flows.
func (a *postSync) ended(e *engine, s *Sync) {
	a.metrics[e.family].Synced(s.Kind == Full, s.Duration())
}

// refused reports Service ports whose rules the kernel refused. The kernel has all other rules, so the proxier is
// healthy. The health checks of those Services report unhealthy.
func (a *postSync) refused(e *engine, s *Sync) {
	a.metrics[e.family].Refused(len(s.Refused))
	var ports []string
	services := map[types.NamespacedName]bool{}
	for _, refusal := range s.Refused {
		ports = append(ports, fmt.Sprintf("%s %s: %v", refusal.Port, refusal.Port.Protocol, refusal.Err))
		services[refusal.Port.NamespacedName] = true
	}
	a.health.Refused(e.family, ports)
	if servers := a.servers[e.family]; servers != nil {
		servers.Refuse(services)
	}
}

// serve opens the health check node ports that are not open yet. Like NodePort addresses, their addresses are read
// after every full sync.
func (a *postSync) serve(ctx context.Context, e *engine) {
	servers := a.servers[e.family]
	if servers == nil {
		return
	}
	if e.moved {
		e.moved = false
		nodePorts, addrs, err := a.nodePorts(e.family)
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

func (a *postSync) close() {
	for _, servers := range a.servers {
		servers.Close()
	}
}

// Handler serves /healthz, /livez, /proxyMode and /metrics.
func (p *Proxier) Handler() http.Handler { return p.after.health.Handler() }
