package proxier

import (
	"context"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"synclab/proxier/backend"
	"synclab/proxier/conntrack"
	"synclab/proxier/plan"
	"synclab/proxier/runner"
	"synclab/proxier/tracker"
)

// flows tells the conntrack cleaner what the rules now promise the UDP flows of one family.
type flows struct {
	cleaner *conntrack.Cleaner
	// wait after the last failed retry, and when the next one is due; zero: the last cleaning succeeded.
	wait    time.Duration
	retryAt time.Time
	failed  chan struct{} // holds one token once a retry is due

	frontends map[tracker.ServicePortName][]conntrack.Frontend
	// claims on each frontend, in plan order: several Services may have one external IP and port.
	claims map[conntrack.Frontend][]claim
}

// claim is what one Service port would do with the flows of a frontend.
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

// cleanFlows deletes stale flows, if there may be any. A failure says nothing of the rules, which are in the kernel: it is
// logged and retried, on its own or by the next sync that gives the cleaner more to do.
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
	e.after.cleaned(e, now.Sub(start), pass)
	switch {
	case err == nil:
		f.wait, f.retryAt = 0, time.Time{}
	case ctx.Err() != nil: // the proxier ends
	case !fresh || f.retryAt.IsZero():
		if f.wait == 0 {
			klog.ErrorS(err, "stale UDP flows remain until a retry succeeds", "family", e.family)
		}
		f.wait = min(max(runner.DefaultFirstRetry, 2*f.wait), e.opts.RetryInterval)
		f.retryAt = now.Add(f.wait)
		e.log("stale UDP flows remain", "error", err, "retryIn", f.wait)
		select {
		case f.failed <- struct{}{}:
		default:
		}
	}
}

// retryFlows cleans again after each failure, until ctx ends.
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

// cleanAgain cleans if a retry is due, and says how long to wait for the next one; 0: there is none.
func (e *engine) cleanAgain(ctx context.Context) time.Duration {
	e.syncing.Lock()
	defer e.syncing.Unlock()
	e.cleanFlows(ctx)
	if ctx.Err() != nil || e.flows.retryAt.IsZero() {
		return 0
	}
	return e.flows.retryAt.Sub(e.clock.Now())
}

// update tells of the frontends of changed Services, once all claims on them are known: what moves from one Service to
// another is neither gone nor new.
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

// recall takes note of what a sync that failed may have led flows to: all of it, some, or nothing. The changes come
// again, but perhaps with others, and then nobody else remembers.
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

// inherit takes note of what an earlier proxier's rules led flows to.
func (f *flows) inherit(inherited []backend.Inherited) {
	for _, i := range inherited {
		frontend := conntrack.Frontend{Addr: i.Frontend.Addr(), Port: i.Frontend.Port()}
		f.cleaner.Recall(frontend, conntrack.NewEndpoints(i.Endpoints...))
	}
}

// udpPorts names the UDP ports that a Service has or had.
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

// winner is the claim whose rule packets meet first: a Service port without endpoints has no rule in nat.
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

// servingOf are the endpoints that may keep their flows: traffic policies and topology do not matter, and one that
// terminates keeps its flows while it serves.
func servingOf(endpoints []*tracker.Endpoint) conntrack.Endpoints {
	var addrs []netip.AddrPort
	for _, ep := range endpoints {
		if ep.Serving {
			addrs = append(addrs, ep.Addr)
		}
	}
	return conntrack.NewEndpoints(addrs...)
}
