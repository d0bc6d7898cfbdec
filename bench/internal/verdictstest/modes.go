package verdictstest

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/bench/verify/walk"
	"synclab/bench/verify/walk/walktest"
	"synclab/internal/inet"
	"synclab/proxier/config"
	"synclab/proxier/tracker"
	"synclab/sim"
)

// The intended differences of kube-proxy's mode nftables from mode iptables and from Synclab. Each entry predicts the
// verdict of mode nftables from Synclab's verdict.
const (
	// modeClusterIPs: packets to a cluster IP without that Service port are rejected. Packets to an unused address of
	// the Service CIDRs are dropped. In mode iptables both pass the rules and get no answer.
	modeClusterIPs = "mode: cluster IPs"
	// modeFromNode: an external address of a Service without endpoints also rejects packets from the node itself.
	modeFromNode = "mode: refuses the node"
	// modeNodePorts: a NodePort without endpoints rejects only at the addresses that accept NodePorts.
	modeNodePorts = "mode: NodePorts"
	// modeHairpin: a hairpin packet is masqueraded only if its endpoint is on this node, because no other hairpin
	// packets exist. An address may be on this node with one port and on another node with another port. Synclab's
	// nftables does the same.
	modeHairpin = "mode: hairpin"
	// modeFirewall: source ranges of a load balancer are checked before endpoints. Sources outside them get no
	// rejection, even if there are no endpoints.
	modeFirewall = "mode: source ranges first"
	// modeOwner: if several Services claim an address, a map has only one of them. If that Service has no endpoint for
	// a packet, the packet ends there. In mode iptables it continues to the next Service's rule.
	modeOwner = "mode: one owner"
	// modeShared: if several Services claim an address, the map of source ranges may have one and the map of endpoints
	// another, depending on order. Sources outside the first Service's ranges never reach the second Service.
	modeShared = "mode: source ranges of another claimer"
)

// inServiceCIDR reports whether an address is in one of the Service CIDRs that package conform gives to kube-proxy.
func inServiceCIDR(addr netip.Addr) bool {
	return slices.ContainsFunc(sim.DefaultServiceCIDRs(), func(cidr string) bool { return netip.MustParsePrefix(cidr).Contains(addr) })
}

// modeEntry returns the entry that predicts kube-proxy's verdict from Synclab's; empty if none does.
func (k *theirs) modeEntry(w *walk.Walker, world walk.NodeAddresses, d *Difference, ours walk.Result) (string, error) {
	theirs, to := d.Verdicts[0], d.Packet.Destination.Addr()
	local := world.IsLocal(to)
	if d.Packet.After != nil && len(k.claimers(d)) > 1 {
		if entry, err := k.forgotten(w, d); entry != "" || err != nil {
			return entry, err
		}
	}
	switch {
	case only(theirs, walk.Drop) && (only(ours, walk.Reject) || untouched(ours) && d.Packet.Input == "") && k.isShutOut(d, d.Packet.Destination):
		return modeFirewall, nil
	case only(theirs, walk.Drop) && len(k.claimers(d)) > 1 && k.isShutOut(d, d.Packet.Destination):
		return modeShared, nil
	case untouched(ours) && !local && k.isClusterIP(to) && only(theirs, walk.Reject):
		return modeClusterIPs, nil
	case untouched(ours) && !local && !k.isClusterIP(to) && inServiceCIDR(to) && only(theirs, walk.Drop):
		return modeClusterIPs, nil
	case untouched(ours) && d.Packet.Input == "":
		outside := d.Packet
		outside.Input = "eth0"
		v, err := w.Walk(&outside)
		if err == nil && v.Equal(theirs) && (only(v, walk.Reject) || only(v, walk.Drop)) {
			return modeFromNode, nil
		}
		return "", err
	case local && untouched(theirs) && (only(ours, walk.Reject) || only(ours, walk.Drop)) && !k.takesNodePorts(to):
		return modeNodePorts, nil
	case k.state.hairpinElsewhere(&d.Packet, ours, theirs):
		return modeHairpin, nil
	}
	return "", nil
}

// forgotten explains a verdict by the client's earlier packet: another Service got it, or source ranges rejected it. So
// the endpoint has no affinity for the client.
func (k *theirs) forgotten(w *walk.Walker, d *Difference) (string, error) {
	first := d.Packet
	first.After = nil
	v, err := w.Walk(&first)
	if err != nil || !v.Equal(d.Verdicts[0]) {
		return "", err
	}
	if k.isShutOut(d, d.Packet.After.Via) {
		return modeShared, nil
	}
	return modeOwner, nil
}

// isShutOut reports whether source ranges exclude a packet's source from a load balancer.
func (k *theirs) isShutOut(d *Difference, to netip.AddrPort) bool {
	from := d.Packet.Source.Addr()
	return slices.ContainsFunc(walk.ObjectFrontends(d.Family, k.state.Objects.Services, nil), func(f walk.Frontend) bool {
		return f.Protocol == d.Packet.Protocol && f.Port == to.Port() && slices.Contains(f.Addresses, to.Addr()) && len(f.Ranges) > 0 &&
			!slices.ContainsFunc(f.Ranges, func(p netip.Prefix) bool { return p.Contains(from) })
	})
}

// hairpinElsewhere reports whether two verdicts differ only in that a packet of an endpoint on another node, which goes
// back to it, is masqueraded.
func (s *State) hairpinElsewhere(p *walk.Packet, a, b walk.Result) bool {
	from := p.Source.Addr()
	return s.isElsewhere(from) && walktest.WithoutHairpin(a, from).Equal(walktest.WithoutHairpin(b, from))
}

// isElsewhere reports whether an endpoint on another node has the address.
func (s *State) isElsewhere(addr netip.Addr) bool {
	return slices.ContainsFunc(s.Objects.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return slices.ContainsFunc(slice.Endpoints, func(ep discoveryv1.Endpoint) bool {
			return ptr.Deref(ep.NodeName, "") != s.Node && slices.ContainsFunc(ep.Addresses, func(text string) bool { return isAddress(text, addr) })
		})
	})
}

func isAddress(text string, addr netip.Addr) bool {
	ip, ok := inet.ParseAddr(text)
	return ok && ip == addr
}

func untouched(v walk.Result) bool {
	return len(v.Outcomes) == 1 && v.Outcomes[0].Kind == walk.Pass && !v.Outcomes[0].To.IsValid()
}

func only(v walk.Result, kind walk.Kind) bool {
	return len(v.Outcomes) == 1 && v.Outcomes[0].Kind == kind
}

// isClusterIP reports whether a Service that kube-proxy handles has the address.
func (k *theirs) isClusterIP(addr netip.Addr) bool {
	return slices.ContainsFunc(k.state.Objects.Services, func(svc *corev1.Service) bool {
		_, anothers := svc.Labels[tracker.LabelProxyName]
		return !anothers && slices.ContainsFunc(append(svc.Spec.ClusterIPs, svc.Spec.ClusterIP), func(text string) bool { return isAddress(text, addr) })
	})
}

// takesNodePorts reports whether mode nftables accepts NodePorts at an address. It never does on loopback.
func (k *theirs) takesNodePorts(addr netip.Addr) bool {
	node, err := k.state.node()
	if err != nil || addr.IsLoopback() {
		return false
	}
	o := k.state.Setting.Options(node, k.state.Machine)
	ports, err := config.NodePortAddresses(o.Config, inet.FamilyOf(addr), o.NodeIPs)
	return err == nil && (ports.MatchAll || slices.ContainsFunc(ports.Prefixes, func(p netip.Prefix) bool { return p.Contains(addr) }))
}
