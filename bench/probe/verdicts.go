package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/traffic"
	"synclab/bench/traffic/flow"
	"synclab/internal/inet"
	"synclab/proxier/tracker"
)

// The sources of packets of a verdict probe, as in Record.Method.
const (
	fromPod     = "pod"     // a pod of this node
	fromNode    = "node"    // the node itself
	fromOutside = "outside" // a host outside of the cluster, whose packets enter the node
)

// The kinds of destinations that a verdict probe has besides the traversal's.
const (
	kindClusterIP = "cluster-ip"
	kindLocalhost = "node-port-localhost"
	// Ports that no Service has: of a cluster IP, of an externalIP, and of a load balancer's address. Packets to the last
	// two leave the node by its default route, unless it refuses or drops them.
	kindOtherPort         = "other-port"
	kindExternalOtherPort = "external-ip-other-port"
	kindBalancerOtherPort = "load-balancer-other-port"
)

// verdictPatience is how long the first two packets of a verdict probe wait for their answer. Of an address that has endpoints
// or has answered, one without an answer counts after slowPatience only. TCP does not repeat its SYN within either.
const verdictPatience, slowPatience = 300 * time.Millisecond, 900 * time.Millisecond

// unusedPort returns the lowest port, from 9, that no Service has.
func unusedPort(services []*corev1.Service) int32 {
	used := map[int32]bool{}
	for _, svc := range services {
		for i := range svc.Spec.Ports {
			used[svc.Spec.Ports[i].Port], used[svc.Spec.Ports[i].NodePort] = true, true
		}
		used[svc.Spec.HealthCheckNodePort] = true
	}
	port := int32(9)
	for used[port] {
		port++
	}
	return port
}

// destination is an address to which a verdict probe sends packets.
type destination struct {
	kind      string
	service   tracker.ServicePortName
	addr      netip.AddrPort
	endpoints map[netip.AddrPort]bool // of the Service port: no other may answer
	local     bool                    // the traffic policy Local allows no endpoint, as other nodes have them all
	beyond    bool                    // packets may leave the node
	shared    int                     // endpoints with equal shares of TCP connections; 0: not known
}

func (d *destination) frontend() frontend { return frontend{d.service.Protocol, d.addr} }

// verdicts sends real packets to every address of every Service, TCP and UDP, from a pod, from the node and from outside.
// It records how each was answered, so that subjects can be compared whose rules cannot.
func (r *Probes) verdicts(ctx context.Context) error {
	if err := r.Flows.StartPods(ctx); err != nil {
		return err
	}
	for _, family := range r.Families {
		if err := r.verdictsOf(ctx, family); err != nil {
			return err
		}
		if err := r.shares(ctx, family); err != nil {
			return err
		}
	}
	return nil
}

// mostShared bounds the Services of a family whose shares are recorded.
const mostShared = 20

// shares makes 1,000 connections to the cluster IPs of some TCP Services, and records how many each endpoint got.
func (r *Probes) shares(ctx context.Context, family corev1.IPFamily) error {
	onNode := func(ep netip.AddrPort) bool { return slices.Contains(r.Node, ep.Addr()) } // no pod answers there
	all := slices.DeleteFunc(r.destinations(family), func(d destination) bool {
		return d.shared < 2 || slices.ContainsFunc(slices.Collect(maps.Keys(d.endpoints)), onNode)
	})
	for i := range min(mostShared, len(all)) {
		d := all[i*len(all)/min(mostShared, len(all))]
		done, err := r.Flows.Loop(family, traffic.Loop{To: d.addr, Clients: 2, Most: 500, For: verdictPatience * 100})
		if err := cmp.Or(ctx.Err(), forgetFlows()); err != nil {
			return err
		}
		if err != nil { // the packets' verdicts show what does not answer
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("shares of endpoints not measured from %s on: %v", d.service, err)})
			return nil
		}
		counts := slices.Collect(maps.Values(done.By))
		for _, n := range append(counts, make([]int, max(0, d.shared-len(counts)))...) {
			r.RecordAs(raw.Record{Family: string(family), Protocol: string(d.service.Protocol), Service: flow.ServiceText(d.service)}, raw.EndpointShare, float64(n))
		}
	}
	return nil
}

// atOnce is the number of destinations that a verdict probe sends to at the same time: most of its time is patience.
const atOnce = 16

func (r *Probes) verdictsOf(ctx context.Context, family corev1.IPFamily) error {
	all := r.destinations(family)
	beyond, watched, err := r.beyond(all)
	if err != nil {
		return err
	}
	defer watched.Close()
	v := &packetProbe{r, family, watched, firstEndpoint(all, r.Node)}
	found := make([][]raw.Record, len(all))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range all {
		d := &all[i]
		group.Go(func() error {
			for _, source := range []string{fromPod, fromNode, fromOutside} {
				if d.kind == kindLocalhost && source != fromNode {
					continue // no packet to 127.0.0.1 enters a node
				}
				rec, err := v.verdict(d, source)
				if err := cmp.Or(err, ctx.Err()); err != nil {
					return fmt.Errorf("packet from %s to %s %s: %w", source, d.kind, d.addr, err)
				}
				found[i] = append(found[i], rec)
			}
			return nil
		})
	}
	err = errors.Join(group.Wait(), beyond.Close())
	for _, records := range found {
		for _, rec := range records {
			r.RecordAs(rec, raw.PacketVerdict, rec.Value)
		}
	}
	return err
}

// beyond lets packets to ports of external addresses that no Service has leave the node, and watches them.
func (r *Probes) beyond(all []destination) (*netns.Beyond, *hops, error) {
	var addrs []netip.Addr
	var to []frontend
	for i := range all {
		if d := &all[i]; d.beyond {
			addrs, to = append(addrs, d.addr.Addr()), append(to, d.frontend())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	beyond, err := r.Lab.ConnectBeyond(slices.Compact(addrs))
	if err != nil {
		return nil, nil, err
	}
	watched, err := watchHops(to)
	if err != nil {
		return nil, nil, errors.Join(err, beyond.Close())
	}
	return beyond, watched, nil
}

// destinations lists the addresses of all Service ports of a family.
func (r *Probes) destinations(family corev1.IPFamily) []destination {
	var all []destination
	objects := r.World.Objects()
	desired := mirror.New(r.PlanNode(), family)
	desired.Load(objects.Services, objects.Slices, r.Clock.Now())
	unused, others := unusedPort(objects.Services), map[frontend]bool{}
	inside := map[netip.Addr]bool{} // these addresses have routes that must stay
	for _, addr := range r.Node {
		inside[addr] = true
	}
	for _, slice := range objects.Slices {
		for _, ep := range slice.Endpoints {
			if addr, ok := inet.ParseAddr(ep.Addresses[0]); ok {
				inside[addr] = true
			}
		}
	}
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			if port.Protocol == corev1.ProtocolSCTP {
				continue
			}
			name := flow.PortName(svc, port)
			p, endpoints := desired.Of(family).Port(name), map[netip.AddrPort]bool{}
			if p != nil {
				for _, ep := range desired.Of(family).Services()[name.NamespacedName].EndpointsOf(name.PortKey) { // ready or not
					endpoints[ep.Addr] = true
				}
			}
			add := func(kind, text string, number int32) {
				if addr, ok := inet.ParseAddr(text); ok && number > 0 && inet.FamilyOf(addr) == family {
					local := p != nil && p.HasEndpoints && !p.HasExternalEndpoints()
					if kind == kindClusterIP {
						local = p != nil && p.HasEndpoints && !p.HasInternalEndpoints()
					}
					shared := 0
					if kind == kindClusterIP && p != nil && p.AffinitySeconds == 0 && port.Protocol == corev1.ProtocolTCP {
						if shared = len(p.Cluster); p.InternalPolicyLocal {
							shared = len(p.Local)
						}
					}
					all = append(all, destination{kind, name, netip.AddrPortFrom(addr, uint16(number)), endpoints, local, false, shared})
				}
			}
			other := func(kind, text string) { // once for each address, which Services may share
				addr, ok := inet.ParseAddr(text)
				d := destination{kind: kind, service: name, addr: netip.AddrPortFrom(addr, uint16(unused)), beyond: true}
				if ok && inet.FamilyOf(addr) == family && !others[d.frontend()] && !inside[addr] {
					others[d.frontend()] = true
					all = append(all, d)
				}
			}
			for _, ip := range svc.Spec.ClusterIPs {
				add(kindClusterIP, ip, port.Port)
				if i == 0 {
					add(kindOtherPort, ip, unused)
				}
			}
			if node := r.NodeAddress(family); node.IsValid() {
				add(kindNodePort, node.String(), port.NodePort)
			}
			if family == corev1.IPv4Protocol {
				add(kindLocalhost, "127.0.0.1", port.NodePort)
			}
			for _, ip := range svc.Spec.ExternalIPs {
				add(kindExternalIP, ip, port.Port)
				other(kindExternalOtherPort, ip)
			}
			for _, ingress := range svc.Status.LoadBalancer.Ingress {
				add(kindLoadBalancer, ingress.IP, port.Port)
				other(kindBalancerOtherPort, ingress.IP)
			}
		}
	}
	return all
}
