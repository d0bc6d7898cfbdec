package proxier

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"synclab/proxier/conntrack"
	"synclab/proxier/plan"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// flows is the conntrack cleanup of one family. It passes to the cleaner where the rules now send UDP flows.
type flows struct {
	cleaner *conntrack.Cleaner
	// wait is the wait after the last failed retry, and retryAt when the next one runs; zero: the last cleanup
	// succeeded.
	wait    time.Duration
	retryAt time.Time
	failed  chan struct{} // has one token when a retry is pending

	frontends map[tracker.ServicePortName][]conntrack.Frontend
	// claims lists the Service ports of each frontend, in plan order: several Services may share an external IP and
	// port.
	claims map[conntrack.Frontend][]claim
}

// claim is one Service port of a frontend, with the endpoints that may keep its flows.
type claim struct {
	port    *plan.ServicePort
	serving conntrack.Endpoints
}

func newFlows(cleaner *conntrack.Cleaner) *flows {
	return &flows{
		cleaner:   cleaner,
		failed:    make(chan struct{}, 1),
		frontends: map[tracker.ServicePortName][]conntrack.Frontend{},
		claims:    map[conntrack.Frontend][]claim{},
	}
}

// cleanFlows deletes stale flows if there may be any. A failure does not affect the rules, which are in the kernel. It
// is logged, and retried by retryFlows or by the next sync that brings new work.
func (e *engine) cleanFlows(ctx context.Context) {
	f := e.flows
	if f == nil || !f.cleaner.Pending() {
		return
	}
	start, fresh := e.clock.Now(), f.cleaner.Fresh()
	if !fresh && start.Before(f.retryAt) {
		return
	}
	pass, err := f.cleaner.Clean(ctx)
	now := e.clock.Now()
	e.postSync.metrics[e.family].ConntrackCleaned(now.Sub(start), pass.Deleted)
	switch {
	case err == nil:
		f.wait, f.retryAt = 0, time.Time{}
	case ctx.Err() != nil: // the proxier ends
	case !fresh || f.retryAt.IsZero():
		if f.wait == 0 {
			klog.ErrorS(err, "cannot delete stale UDP conntrack entries, will retry", "family", e.family)
		}
		f.wait = min(max(runner.DefaultFirstRetry, 2*f.wait), e.opts.RetryInterval)
		f.retryAt = now.Add(f.wait)
		e.log("cannot delete stale UDP conntrack entries", "error", err, "retryIn", f.wait)
		select {
		case f.failed <- struct{}{}:
		default:
		}
	}
}

// retryFlows retries the cleanup after each failure, until ctx ends.
func (e *engine) retryFlows(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-e.flows.failed:
		}
		for {
			wait := e.cleanAgain(ctx)
			if wait <= 0 {
				break
			}
			select {
			case <-ctx.Done():
				return
			case <-e.clock.After(wait):
			}
		}
	}
}

// cleanAgain runs the cleanup if a retry is due and returns the wait before the next retry; 0: no retry is pending.
func (e *engine) cleanAgain(ctx context.Context) time.Duration {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	e.cleanFlows(ctx)
	if ctx.Err() != nil || e.flows.retryAt.IsZero() {
		return 0
	}
	return e.flows.retryAt.Sub(e.clock.Now())
}

// update passes the frontends of changed Services to the cleaner. It first collects all claims on them, because a
// frontend that moves from one Service to another is neither gone nor new.
func (f *flows) update(changes tracker.Changes, p *plan.Plan) {
	touched := map[conntrack.Frontend]bool{}
	for _, change := range changes.Services {
		for name := range udpPorts(change) {
			for _, old := range f.frontends[name] {
				f.disclaim(old, name)
				touched[old] = true
			}
			delete(f.frontends, name)
			port := p.Port(name)
			if port == nil {
				continue
			}
			f.frontends[name] = frontendsOf(port)
			serving := servingOf(change.New.EndpointsOf(name.PortKey))
			for _, now := range f.frontends[name] {
				f.claim(now, claim{port, serving})
				touched[now] = true
			}
		}
	}
	for frontend := range touched {
		if claims := f.claims[frontend]; len(claims) > 0 {
			f.cleaner.Set(frontend, winner(claims).serving)
		} else {
			f.cleaner.Remove(frontend)
		}
	}
}

// recall records the flows that a failed sync may have redirected: all, some or none. The tracker hands the changes out
// again, but perhaps merged with newer ones, so this record must keep the old endpoints.
func (f *flows) recall(changes tracker.Changes, p *plan.Plan) {
	for _, change := range changes.Services {
		for name := range udpPorts(change) {
			port := p.Port(name)
			if port == nil {
				continue
			}
			serving := servingOf(change.New.EndpointsOf(name.PortKey))
			for _, frontend := range frontendsOf(port) {
				f.cleaner.Recall(frontend, serving)
			}
		}
	}
}

// inherit records, once, where the rules of an earlier proxier send flows. What a proxier that still runs beside this one writes
// later is not covered.
func (e *engine) inherit() error {
	if e.flows == nil || e.inherited {
		return nil
	}
	inherited, err := e.backend.Inherited()
	if err != nil {
		return fmt.Errorf("reading the previous UDP frontends: %w", err)
	}
	e.inherited = true
	for _, i := range inherited {
		frontend := conntrack.Frontend{Addr: i.Frontend.Addr(), Port: i.Frontend.Port()}
		e.flows.cleaner.Recall(frontend, conntrack.NewEndpoints(i.Endpoints...))
	}
	return nil
}

// udpPorts returns the names of the UDP ports that a Service has or had.
func udpPorts(change tracker.Change) map[tracker.ServicePortName]bool {
	names := map[tracker.ServicePortName]bool{}
	for _, svc := range []*tracker.Service{change.Old, change.New} {
		if svc == nil {
			continue
		}
		for _, port := range svc.Ports {
			if port.Name.Protocol == corev1.ProtocolUDP {
				names[port.Name] = true
			}
		}
	}
	return names
}

func (f *flows) claim(frontend conntrack.Frontend, c claim) {
	claims := f.claims[frontend]
	i, _ := slices.BinarySearchFunc(claims, c, inPlanOrder)
	f.claims[frontend] = slices.Insert(claims, i, c)
}

func (f *flows) disclaim(frontend conntrack.Frontend, name tracker.ServicePortName) {
	left := slices.DeleteFunc(f.claims[frontend], func(c claim) bool { return c.port.Name == name })
	if len(left) == 0 {
		delete(f.claims, frontend)
		return
	}
	f.claims[frontend] = left
}

func inPlanOrder(a, b claim) int { return plan.Compare(a.port, b.port) }

// winner is the claim whose rule packets meet first. A Service port without endpoints has no rule in nat.
func winner(claims []claim) claim {
	for _, c := range claims {
		if c.port.HasEndpoints {
			return c
		}
	}
	return claims[0]
}

func frontendsOf(port *plan.ServicePort) []conntrack.Frontend {
	frontends := []conntrack.Frontend{{Addr: port.ClusterIP, Port: port.Port}}
	for _, addrs := range [2][]netip.Addr{port.ExternalIPs, port.LoadBalancerVIPs} {
		for _, addr := range addrs {
			frontends = append(frontends, conntrack.Frontend{Addr: addr, Port: port.Port})
		}
	}
	if port.NodePort != 0 {
		frontends = append(frontends, conntrack.NodePort(port.NodePort))
	}
	return frontends
}

// servingOf returns the endpoints that may keep their flows. Traffic policies and topology do not matter. A terminating
// endpoint keeps its flows while it serves.
func servingOf(endpoints []*tracker.Endpoint) conntrack.Endpoints {
	var addrs []netip.AddrPort
	for _, ep := range endpoints {
		if ep.Serving {
			addrs = append(addrs, ep.Addr)
		}
	}
	return conntrack.NewEndpoints(addrs...)
}
