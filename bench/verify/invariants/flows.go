package invariants

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"synclab/proxier/config"
	"synclab/proxier/conntrack"
	"synclab/proxier/plan"
)

// checkFlows: no UDP flow to a Service goes to an endpoint that does not serve it. No redirected flow goes to an
// address that belongs to no Service. The sentinels' flows are still there.
func checkFlows(_ context.Context, e *Evidence, r *report) error {
	for _, family := range e.Families {
		want, err := e.expectation(family)
		if err != nil {
			return err
		}
		var planted []conntrack.Flow
		if e.Planted != nil {
			planted = e.Planted.Flows[family]
		}
		for _, f := range e.Flows[family] {
			r.checked++
			service, known := want.owner(f)
			switch {
			case slices.ContainsFunc(planted, func(p conntrack.Flow) bool { return sameFlow(p, f) }):
			case known && want.Stale(f):
				r.violated(service, "%s: UDP flow %v -> %v still goes to %v, which does not serve it", family, f.Src, f.Dst, f.ReplySrc)
			case !known && f.Redirected():
				r.violated("", "%s: UDP flow %v -> %v still goes to %v, and no Service has that address any more", family, f.Src, f.Dst, f.ReplySrc)
			}
		}
		for _, p := range planted {
			r.checked++
			if !slices.ContainsFunc(e.Flows[family], func(f conntrack.Flow) bool { return sameFlow(p, f) }) {
				r.violated("", "%s: UDP flow %v -> %v, which belongs to no Service, was deleted", family, p.Src, p.Dst)
			}
		}
	}
	if t := e.Traffic; t != nil {
		r.checked += t.LongLived
		if t.LongLivedLost > 0 {
			r.violated("", "%d of %d long-lived flows ended", t.LongLivedLost, t.LongLived)
		}
	}
	return nil
}

func sameFlow(a, b conntrack.Flow) bool { return a.Src == b.Src && a.Dst == b.Dst }

// serving describes the UDP flows that may stay.
type serving struct {
	conntrack.Expectation
	owners map[conntrack.Frontend]string
}

// owner returns the Service port that a flow goes to.
func (s *serving) owner(f conntrack.Flow) (service string, known bool) {
	if service, known = s.owners[conntrack.Frontend{Addr: f.Dst.Addr(), Port: f.Dst.Port()}]; known {
		return service, true
	}
	service, known = s.owners[conntrack.NodePort(f.Dst.Port())]
	return service, known && s.Local(f.Dst.Addr())
}

// expectation returns where UDP flows may go, according to the objects.
func (e *Evidence) expectation(family corev1.IPFamily) (*serving, error) {
	local, err := e.nodePortAddresses(family)
	if err != nil {
		return nil, err
	}
	s := &serving{
		Expectation: conntrack.Expectation{Serving: map[conntrack.Frontend]conntrack.Endpoints{}, Local: local},
		owners:      map[conntrack.Frontend]string{},
	}
	p := e.plan(family)
	for _, port := range p.Ports() {
		if port.Name.Protocol != corev1.ProtocolUDP {
			continue
		}
		var addrs []netip.AddrPort
		for _, ep := range p.Services()[port.Name.NamespacedName].EndpointsOf(port.Name.PortKey) {
			if ep.Serving {
				addrs = append(addrs, ep.Addr)
			}
		}
		for _, f := range frontendsOf(port) {
			// Several Service ports may have the same frontend. The order of the rules decides between them.
			s.Serving[f] = conntrack.NewEndpoints(append(slices.Clone(addrs), s.Serving[f]...)...)
			s.owners[f] = serviceOf(port)
		}
	}
	return s, nil
}

func frontendsOf(port *plan.ServicePort) []conntrack.Frontend {
	frontends := []conntrack.Frontend{{Addr: port.ClusterIP, Port: port.Port}}
	for _, addr := range slices.Concat(port.ExternalIPs, port.LoadBalancerVIPs) {
		frontends = append(frontends, conntrack.Frontend{Addr: addr, Port: port.Port})
	}
	if port.NodePort != 0 {
		frontends = append(frontends, conntrack.NodePort(port.NodePort))
	}
	return frontends
}

// nodePortAddresses returns a function that reports whether an address accepts NodePorts.
func (e *Evidence) nodePortAddresses(family corev1.IPFamily) (func(netip.Addr) bool, error) {
	cfg := e.Options.Config
	ports, err := config.NodePortAddresses(cfg, family, e.Options.NodeIPs)
	if err != nil {
		return nil, err
	}
	all := e.Options.NodeIPs
	if e.Options.Addresses != nil {
		if all, err = e.Options.Addresses(); err != nil {
			return nil, err
		}
	}
	selected, _ := ports.Select(all)
	return conntrack.NodeLocal(selected, ptr.Deref(cfg.IPTables.LocalhostNodePorts, true)), nil
}
