// Package walktest makes input of package walk from what proxiers plan, for tests.
package walktest

import (
	"net/netip"
	"slices"

	"synclab/bench/verify/walk"
	"synclab/proxier/plan"
)

// PlannedFrontends returns the frontends of a plan.
func PlannedFrontends(ports []*plan.ServicePort) []walk.Frontend {
	all := make([]walk.Frontend, 0, len(ports))
	for _, p := range ports {
		f := walk.Frontend{
			Service: p.Name.NamespacedName.String(), Protocol: walk.ProtocolOf(p.Name.Protocol), Port: p.Port,
			Addresses: slices.Concat([]netip.Addr{p.ClusterIP}, p.ExternalIPs, p.LoadBalancerVIPs),
			NodePort:  p.NodePort, HealthCheck: p.HealthCheckNodePort, Ranges: p.SourceRanges, Sticky: p.AffinitySeconds > 0,
		}
		for _, ep := range p.Reachable {
			if to, err := netip.ParseAddrPort(ep.Text); err == nil {
				f.Endpoints = append(f.Endpoints, to)
			}
		}
		all = append(all, f)
	}
	return all
}
