package pass

import (
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/subject"
	"synclab/internal/inet"
	"synclab/proxier/iptables"
	"synclab/proxier/kernel"
	"synclab/proxier/tracker"
	"synclab/proxier/userspace"
	"synclab/sim"
)

// Dispatch reads the order of the Services' dispatch rules from the kernel: not every proxier sorts them. Where a map or
// a tree finds Services, the index among the frontends is the position, and should not matter.
func (r *Env) Dispatch(family corev1.IPFamily) (frontends []iptables.Frontend, rules int, err error) {
	all := frontendsOf(r.World.Objects(), family)
	switch {
	case r.About.Carrier == subject.Relay:
		return portals(family, r.About.Variant, all)
	case !r.Current().Classic():
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

// portals returns the frontends in the order of the rules of backend userspace.
func portals(family corev1.IPFamily, variant iptables.Variant, all []frontend) (frontends []iptables.Frontend, rules int, err error) {
	chains, err := iptables.Installed{Variant: variant, Family: family}.Rules(iptables.NAT, userspace.PortalsOwn)
	if err != nil {
		return nil, 0, err
	}
	type key struct {
		protocol string
		addr     netip.AddrPort
	}
	at := map[key]int{}
	for i, r := range slices.Backward(chains[userspace.PortalsOwn]) {
		at[key{r.Proto.String(), netip.AddrPortFrom(r.Dst.Addr(), r.DstPorts.First)}] = i + 1
	}
	for _, f := range all {
		if f.Position = at[key{strings.ToLower(string(f.Protocol)), f.Addr}]; f.Position > 0 {
			frontends = append(frontends, f.Frontend)
		}
	}
	return frontends, len(chains[userspace.PortalsOwn]), nil
}

// frontend is a cluster IP and the chains that its rule may jump to.
type frontend struct {
	iptables.Frontend
	chains iptables.PortChains
}

// Served reports whether a Service of a family and a protocol has ready endpoints that packets of the lab may ask.
func Served(o *sim.Objects, family corev1.IPFamily, protocol corev1.Protocol) bool {
	return slices.ContainsFunc(frontendsOf(o, family), func(f frontend) bool { return f.Protocol == protocol })
}

// frontendsOf returns the frontends of all Services that have ready endpoints of the family. It omits Services with an
// endpoint on the proxier's own node, such as default/kubernetes of a cluster with one node: there, no pod answers.
func frontendsOf(objects *sim.Objects, family corev1.IPFamily) []frontend {
	onNode := map[types.NamespacedName]bool{}
	var node []string
	if len(objects.Nodes) > 0 {
		for _, address := range objects.Nodes[0].Status.Addresses {
			node = append(node, address.Address)
		}
	}
	served := map[types.NamespacedName]bool{}
	for _, slice := range objects.Slices {
		if string(slice.AddressType) != string(family) {
			continue
		}
		for _, endpoint := range slice.Endpoints {
			name := types.NamespacedName{Namespace: slice.Namespace, Name: slice.Labels["kubernetes.io/service-name"]}
			if endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready {
				served[name] = true
			}
			if slices.ContainsFunc(endpoint.Addresses, func(text string) bool { return slices.Contains(node, text) }) {
				onNode[name] = true
			}
		}
	}
	var found []frontend
	for _, svc := range objects.Services {
		name := types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}
		i := slices.IndexFunc(svc.Spec.ClusterIPs, func(ip string) bool {
			addr, ok := inet.ParseAddr(ip)
			return ok && inet.FamilyOf(addr) == family
		})
		if i < 0 || !served[name] || onNode[name] {
			continue
		}
		addr, _ := inet.ParseAddr(svc.Spec.ClusterIPs[i])
		for _, port := range svc.Spec.Ports {
			at := iptables.Frontend{Protocol: port.Protocol, Addr: netip.AddrPortFrom(addr, uint16(port.Port))}
			key := tracker.ServicePortName{NamespacedName: name, PortKey: tracker.PortKey{Name: port.Name, Protocol: port.Protocol}}
			found = append(found, frontend{at, iptables.ChainsOf(key)})
		}
	}
	return found
}

// dispatchedChains returns the chains that rules of KUBE-SERVICES jump to, in order.
func (r *Env) dispatchedChains(family corev1.IPFamily) ([]string, error) {
	rules, err := r.dispatchRules(family)
	var chains []string
	for _, rule := range rules {
		if rule.Jump != "" {
			chains = append(chains, rule.Jump)
		}
	}
	return chains, err
}

func (r *Env) dispatchRules(family corev1.IPFamily) ([]kernel.Rule, error) {
	dispatch := iptables.DispatchChains[0]
	if r.About.Legacy() {
		tables, err := kernel.OpenLegacy(family)
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

func Nearest(frontends []iptables.Frontend, position int) iptables.Frontend {
	return slices.MinFunc(frontends, func(a, b iptables.Frontend) int {
		return abs(a.Position-position) - abs(b.Position-position)
	})
}

func abs(n int) int { return max(n, -n) }
