package bench

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
	"synclab/sim"
)

// dispatch reads from the kernel in which order the rules of Services stand: not every proxier has an order of its own.
// Where Services are found by a map, or by a tree, their place among the frontends stands for the position, and should not matter.
func (r *repetition) dispatch(family corev1.IPFamily) (frontends []iptables.Frontend, rules int, err error) {
	all := r.frontends(family)
	if r.variant == "" || r.layout == iptables.Tree {
		for i := range all {
			all[i].Position = i + 1
			frontends = append(frontends, all[i].Frontend)
		}
		return frontends, len(all), nil
	}
	chains, err := r.dispatchedChains(family)
	if err != nil {
		return nil, 0, err
	}
	positions := make(map[string]int, len(chains))
	for i, chain := range chains {
		positions[chain] = i + 1
	}
	for _, f := range all {
		if f.Position = max(positions[f.chains.Cluster], positions[f.chains.Local]); f.Position > 0 {
			frontends = append(frontends, f.Frontend)
		}
	}
	return frontends, len(chains), nil
}

// frontend is a cluster IP with the chains that its rule may lead to.
type frontend struct {
	iptables.Frontend
	chains iptables.PortChains
}

// frontends are those of all Services that have endpoints to send to.
func (r *repetition) frontends(family corev1.IPFamily) []frontend {
	objects := r.world.Objects()
	served := map[types.NamespacedName]bool{}
	for _, slice := range objects.Slices {
		for _, endpoint := range slice.Endpoints {
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				served[types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels["kubernetes.io/service-name"]}] = true
			}
		}
	}
	var found []frontend
	for _, svc := range objects.Services {
		name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		i := slices.IndexFunc(svc.Spec.ClusterIPs, func(ip string) bool {
			addr, ok := sim.ParseAddr(ip)
			return ok && familyOf(addr) == family
		})
		if i < 0 || !served[name] {
			continue
		}
		addr, _ := sim.ParseAddr(svc.Spec.ClusterIPs[i])
		for _, port := range svc.Spec.Ports {
			at := iptables.Frontend{Protocol: port.Protocol, Addr: netip.AddrPortFrom(addr, uint16(port.Port))}
			key := tracker.ServicePortName{NamespacedName: name, PortKey: tracker.PortKey{Name: port.Name, Protocol: port.Protocol}}
			found = append(found, frontend{at, iptables.ChainsOf(key)})
		}
	}
	return found
}

// dispatchedChains are those that the rules of KUBE-SERVICES lead to, in order.
func (r *repetition) dispatchedChains(family corev1.IPFamily) ([]string, error) {
	rules, err := r.dispatchRules(family)
	var chains []string
	for _, rule := range rules {
		if rule.Jump != "" {
			chains = append(chains, rule.Jump)
		}
	}
	return chains, err
}

func (r *repetition) dispatchRules(family corev1.IPFamily) ([]kernel.Rule, error) {
	dispatch := iptables.DispatchChains[0]
	if r.variant == iptables.Legacy {
		tables, err := kernel.OpenLegacy()
		if err != nil {
			return nil, err
		}
		defer tables.Close()
		jumps, err := tables.Jumps(family, string(iptables.NAT))
		if err != nil {
			return nil, err
		}
		defer jumps.Close()
		return jumps.Rules(dispatch), nil
	}
	nft, err := kernel.OpenNftables()
	if err != nil {
		return nil, err
	}
	defer nft.Close()
	return nft.Rules(family, string(iptables.NAT), dispatch)
}
