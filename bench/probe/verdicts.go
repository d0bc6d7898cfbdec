package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/flow"
	"synclab/bench/mirror"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/traffic"
	"synclab/proxier/tracker"
	"synclab/sim"
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
	kindOtherPort = "other-port" // of a cluster IP: no Service has it
	kindLocalhost = "node-port-localhost"
)

// verdictPatience is how long a packet of a verdict probe waits for its answer. TCP does not repeat its SYN within it.
const verdictPatience = 300 * time.Millisecond

// unusedPort is a port that no generated Service has.
const unusedPort = 9

// destination is an address to which a verdict probe sends packets.
type destination struct {
	kind      string
	service   tracker.ServicePortName
	addr      netip.AddrPort
	endpoints map[netip.AddrPort]bool // of the Service port: no other may answer
	local     bool                    // the traffic policy Local allows no endpoint, as other nodes have them all
}

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
	}
	return nil
}

// atOnce is the number of destinations that a verdict probe sends to at the same time: most of its time is patience.
const atOnce = 16

func (r *Probes) verdictsOf(ctx context.Context, family corev1.IPFamily) error {
	all := r.destinations(family)
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
				rec, err := r.verdictOf(family, d, source)
				if err := cmp.Or(err, ctx.Err()); err != nil {
					return fmt.Errorf("packet from %s to %s %s: %w", source, d.kind, d.addr, err)
				}
				found[i] = append(found[i], rec)
			}
			return nil
		})
	}
	err := group.Wait()
	for _, records := range found {
		for _, rec := range records {
			r.RecordAs(rec, raw.PacketVerdict, rec.Value)
		}
	}
	return err
}

// destinations lists the addresses of all Service ports of a family.
func (r *Probes) destinations(family corev1.IPFamily) []destination {
	var all []destination
	byPort, objects := r.endpointsByPort(family), r.World.Objects()
	desired := mirror.New(r.PlanNode(), family)
	desired.Load(objects.Services, objects.Slices, r.Clock.Now())
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			port := &svc.Spec.Ports[i]
			if port.Protocol == corev1.ProtocolSCTP {
				continue
			}
			name := flow.PortName(svc, port)
			p := desired.Port(family, name)
			add := func(kind, text string, number int32) {
				if addr, ok := sim.ParseAddr(text); ok && number > 0 && pass.FamilyOf(addr) == family {
					local := p != nil && p.HasEndpoints && !p.HasExternalEndpoints()
					if kind == kindClusterIP {
						local = p != nil && p.HasEndpoints && !p.HasInternalEndpoints()
					}
					all = append(all, destination{kind, name, netip.AddrPortFrom(addr, uint16(number)), byPort[name], local})
				}
			}
			for _, ip := range svc.Spec.ClusterIPs {
				add(kindClusterIP, ip, port.Port)
				if i == 0 {
					add(kindOtherPort, ip, unusedPort)
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
			}
			for _, ingress := range svc.Status.LoadBalancer.Ingress {
				add(kindLoadBalancer, ingress.IP, port.Port)
			}
		}
	}
	return all
}

// endpointsByPort returns all endpoints of each Service port, ready or not.
func (r *Probes) endpointsByPort(family corev1.IPFamily) map[tracker.ServicePortName]map[netip.AddrPort]bool {
	found := map[tracker.ServicePortName]map[netip.AddrPort]bool{}
	objects := r.World.Objects()
	for _, svc := range objects.Services {
		for i := range svc.Spec.Ports {
			name := flow.PortName(svc, &svc.Spec.Ports[i])
			found[name] = map[netip.AddrPort]bool{}
			for _, slice := range objects.Slices {
				if slice.Namespace != svc.Namespace || slice.Labels["kubernetes.io/service-name"] != svc.Name || string(slice.AddressType) != string(family) {
					continue
				}
				for _, port := range slice.Ports {
					if port.Port == nil || port.Name == nil || *port.Name != svc.Spec.Ports[i].Name {
						continue
					}
					for _, ep := range slice.Endpoints {
						if addr, ok := sim.ParseAddr(ep.Addresses[0]); ok {
							found[name][netip.AddrPortFrom(addr, uint16(*port.Port))] = true
						}
					}
				}
			}
		}
	}
	return found
}

// verdictOf sends flows from a source to a destination and returns the outcome.
func (r *Probes) verdictOf(family corev1.IPFamily, d *destination, source string) (rec raw.Record, err error) {
	rooms, from := r.Flows.Rooms, netip.Addr{}
	in := func(f func() error) error { return rooms.Client.Do(f) }
	switch source {
	case fromPod:
		i := slices.IndexFunc(r.Flows.Clients, func(a netip.Addr) bool { return pass.FamilyOf(a) == family })
		from = r.Flows.Clients[i]
	case fromOutside:
		from = r.Flows.Outside[family]
	default:
		in = func(f func() error) error { return f() } // the worker's own namespace
	}
	outcomes, reached := map[string]int{}, map[netip.AddrPort]bool{}
	var wrong []string
	for n := range max(8, min(4*len(d.endpoints), 40)) { // with four flows an endpoint, one that may answer is missed at times, but not its Service
		var by netip.AddrPort
		var outcome string
		err := in(func() (err error) {
			by, outcome, err = oneFlow(d.service.Protocol, from, d.addr)
			return err
		})
		if err != nil {
			return rec, err
		}
		outcomes[outcome]++
		if outcome == traffic.Answered {
			reached[by] = true
			if !d.endpoints[by] && !slices.Contains(wrong, by.String()) {
				wrong = append(wrong, by.String())
			}
		}
		if n == 1 && len(outcomes) == 1 && outcome != traffic.Answered {
			break // two are enough of what has no answer
		}
	}
	rec = raw.Record{
		Unit: "count", Value: float64(len(reached)), Family: string(family), Protocol: string(d.service.Protocol), Service: flow.ServiceText(d.service), Target: d.kind, Method: source,
		Outcome: outcomeText(outcomes),
	}
	if d.local {
		rec.Kind = subject.LocalWithoutEndpoint
	}
	if len(wrong) > 0 {
		rec.Error = "answered by " + strings.Join(wrong, ", ")
	}
	return rec, nil
}

// outcomeText names the outcomes of the flows to one destination: one word, or several if they differ.
func outcomeText(outcomes map[string]int) string {
	var words []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		if outcome == traffic.Answered {
			outcome = "answered"
		}
		words = append(words, outcome)
	}
	return strings.Join(words, " or ")
}

// oneFlow sends the first packet of a flow from the calling thread's namespace. Its outcome is one of bench/traffic's.
func oneFlow(protocol corev1.Protocol, from netip.Addr, to netip.AddrPort) (by netip.AddrPort, outcome string, err error) {
	dialer := net.Dialer{Timeout: verdictPatience}
	network := "tcp"
	if protocol == corev1.ProtocolUDP {
		network = "udp"
	}
	if from.IsValid() {
		if dialer.LocalAddr = net.Addr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))); network == "udp" {
			dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
		}
	}
	conn, err := dialer.Dial(network, to.String())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(verdictPatience))
		var b [64]byte
		if network == "udp" {
			if _, err = conn.Write(b[:8]); errors.Is(err, syscall.EPERM) { // a rule of OUTPUT drops it, which other proxiers do later
				return by, traffic.TimedOut, nil
			}
		}
		if err == nil {
			var n int
			if n, err = conn.Read(b[:]); err == nil {
				by, _, _ = traffic.ReadAnswer(b[:n])
				return by, traffic.Answered, nil
			}
		}
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), isTimeout(err):
		return by, traffic.TimedOut, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return by, traffic.Refused, nil
	case errors.Is(err, syscall.ECONNRESET):
		return by, traffic.Reset, nil
	}
	return by, "", err
}

func isTimeout(err error) bool {
	var failed net.Error
	return errors.As(err, &failed) && failed.Timeout()
}
