package proxier

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/conntrack"
	"synclab/proxier/plan"
	"synclab/proxier/tracker"
)

// flows tells the conntrack cleaner what the rules now promise the UDP flows of one family.
type flows struct {
	cleaner   *conntrack.Cleaner
	frontends map[tracker.ServicePortName][]conntrack.Frontend
}

func newFlows(cleaner *conntrack.Cleaner) *flows {
	return &flows{cleaner: cleaner, frontends: map[tracker.ServicePortName][]conntrack.Frontend{}}
}

// update tells of the Service ports of changed Services: those that are gone, then those that are.
func (f *flows) update(changes tracker.Changes, p *plan.Plan) {
	for _, change := range changes.Services {
		for _, svc := range []*tracker.Service{change.Old, change.New} {
			if svc == nil {
				continue
			}
			for _, port := range svc.Ports {
				if port.Name.Protocol == corev1.ProtocolUDP {
					f.set(port.Name, p.Port(port.Name), change.New)
				}
			}
		}
	}
}

func (f *flows) set(name tracker.ServicePortName, port *plan.ServicePort, svc *tracker.Service) {
	var now []conntrack.Frontend
	if port != nil {
		now = frontendsOf(port)
	}
	for _, old := range f.frontends[name] {
		f.cleaner.Remove(old)
	}
	if port == nil {
		delete(f.frontends, name)
		return
	}
	f.frontends[name] = now
	serving := servingOf(svc.Endpoints[name.PortKey])
	for _, frontend := range now {
		f.cleaner.Set(frontend, serving)
	}
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
