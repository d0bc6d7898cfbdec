package virtualtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"synclab/internal/inet"
	"synclab/proxier/conntrack"
)

// client has a UDP flow.
type client struct {
	family corev1.IPFamily
	flow   conntrack.Flow
	// stranger: the flow does not belong to a Service of the proxier.
	stranger bool
	// excused: its endpoint did not serve at some time, so the flow may have been deleted.
	excused bool
	// early: the flow began before its endpoint was installed. If the Service is deleted before that, the proxier never
	// wrote rules for it, and does not know it.
	early bool
	// orphan: the proxier was restarted since. The new one does not know Services that were deleted in between.
	orphan bool
}

// serving maps each endpoint of a frontend to whether it serves in some slices, and does not serve in some.
type serving map[netip.AddrPort]struct{ some, none bool }

// frontends returns the cluster IPs of UDP ports. It is for Worlds only: there, a cluster IP belongs to one Service,
// and only the endpoints of Services change.
func (k *soak) frontends(family corev1.IPFamily) map[netip.AddrPort]serving {
	all := map[netip.AddrPort]serving{}
	byService := map[string][]*discoveryv1.EndpointSlice{}
	for _, s := range k.state.slices {
		if string(s.AddressType) == string(family) {
			key := s.Namespace + "/" + s.Labels[discoveryv1.LabelServiceName]
			byService[key] = append(byService[key], s)
		}
	}
	for key, svc := range k.state.services {
		for _, port := range svc.Spec.Ports {
			if port.Protocol != corev1.ProtocolUDP {
				continue
			}
			for _, text := range svc.Spec.ClusterIPs {
				if addr, ok := inet.ParseAddrOf(family, text); ok {
					all[netip.AddrPortFrom(addr, uint16(port.Port))] = servingOf(family, port.Name, byService[key])
				}
			}
		}
	}
	return all
}

func servingOf(family corev1.IPFamily, port string, all []*discoveryv1.EndpointSlice) serving {
	found := serving{}
	for _, s := range all {
		i := slices.IndexFunc(s.Ports, func(p discoveryv1.EndpointPort) bool { return ptr.Deref(p.Name, "") == port })
		if i < 0 {
			continue
		}
		for _, e := range s.Endpoints {
			addr, ok := inet.ParseAddrOf(family, e.Addresses[0])
			if !ok {
				continue
			}
			ep := netip.AddrPortFrom(addr, uint16(ptr.Deref(s.Ports[i].Port, 0)))
			f := found[ep]
			if ptr.Deref(e.Conditions.Serving, true) {
				f.some = true
			} else {
				f.none = true
			}
			found[ep] = f
		}
	}
	return found
}

// talk adds flows of clients: to Services, and to other destinations.
func (k *soak) talk(a Action) {
	rng := rand.New(rand.NewPCG(a.Pick, 0x7a1c))
	family := k.setting.Families[a.Family%len(k.setting.Families)]
	address := func(v4, v6 string) netip.Addr {
		if family == corev1.IPv4Protocol {
			return netip.MustParseAddr(fmt.Sprintf(v4, 1+rng.IntN(250)))
		}
		return netip.MustParseAddr(fmt.Sprintf(v6, 1+rng.IntN(250)))
	}
	var frontends map[netip.AddrPort]serving
	if k.setting.World {
		frontends = k.frontends(family)
	}
	for range a.N {
		src := netip.AddrPortFrom(address("10.128.200.%d", "fd00:10:128:0:c8::%x"), uint16(20000+rng.IntN(40000)))
		c := &client{family: family, flow: conntrack.Flow{Src: src, ReplyDst: src}, stranger: true}
		c.flow.Dst = netip.AddrPortFrom(address("100.100.100.%d", "fd00:dead::%x"), 53)
		if c.flow.ReplySrc = c.flow.Dst; rng.IntN(2) == 0 {
			c.flow.ReplySrc = netip.AddrPortFrom(address("10.128.0.%d", "fd00:10:128::%x"), 53)
		}
		if to, ep, ok := pickServing(frontends, rng); ok && rng.IntN(4) > 0 {
			c.flow.Dst, c.flow.ReplySrc, c.stranger = to, ep, false
			c.early = k.disturbed || !k.idle() // the proxier may not know yet that the endpoint serves
			c.excused = c.early
		}
		k.flows[family].Add(c.flow)
		k.clients = append(k.clients, c)
	}
}

func (k *soak) idle() bool {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return k.proxier.WaitIdle(now) == nil
}

func pickServing(frontends map[netip.AddrPort]serving, rng *rand.Rand) (to, ep netip.AddrPort, ok bool) {
	keys := keysOf(frontends)
	if len(keys) == 0 {
		return to, ep, false
	}
	to = keys[rng.IntN(len(keys))]
	eps := keysOf(frontends[to])
	eps = slices.DeleteFunc(eps, func(ep netip.AddrPort) bool { f := frontends[to][ep]; return !f.some || f.none })
	if len(eps) == 0 {
		return to, ep, false
	}
	return to, eps[rng.IntN(len(eps))], true
}

func keysOf[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	keys := make([]netip.AddrPort, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, netip.AddrPort.Compare)
	return keys
}

// markClients excuses the flows whose endpoint may no longer serve.
func (k *soak) markClients() {
	all := map[corev1.IPFamily]map[netip.AddrPort]serving{}
	for _, c := range k.clients {
		if c.stranger || c.excused {
			continue
		}
		if all[c.family] == nil {
			all[c.family] = k.frontends(c.family)
		}
		f := all[c.family][c.flow.Dst][c.flow.ReplySrc]
		c.excused = !f.some || f.none
	}
}

// checkFlows compares the flows in the conntrack table with the expected ones.
func (k *soak) checkFlows() {
	for _, family := range k.setting.Families {
		there := map[conntrack.Flow]bool{}
		for _, f := range k.flows[family].Flows() {
			there[f] = true
		}
		frontends := k.frontends(family)
		for _, c := range k.clients {
			if c.family != family {
				continue
			}
			eps, exists := frontends[c.flow.Dst]
			switch f := eps[c.flow.ReplySrc]; {
			case c.stranger && !there[c.flow]:
				k.broken(flowsGone, fmt.Sprintf("%v was deleted, although it belongs to no Service", c.flow))
			case c.stranger:
			case !c.excused && !there[c.flow]:
				k.broken(flowsGone, fmt.Sprintf("%v was deleted, although its endpoint always served", c.flow))
			case there[c.flow] && !f.some && (exists || !c.orphan && !c.early):
				k.broken(flowsGone, fmt.Sprintf("%v was not deleted, although its endpoint does not serve (the Service exists: %v)", c.flow, exists))
			}
		}
	}
	k.forgetClients()
}

// mostClients is the most clients that are tracked.
const mostClients = 150

// forgetClients deletes all flows when there are too many.
func (k *soak) forgetClients() {
	if len(k.clients) < mostClients {
		return
	}
	for family, flows := range k.flows {
		if _, err := flows.DeleteUDP(context.Background(), family, func(conntrack.Flow) bool { return true }); err != nil {
			k.broken(lab, fmt.Sprintf("flows: %v", err))
		}
	}
	k.clients = nil
}
