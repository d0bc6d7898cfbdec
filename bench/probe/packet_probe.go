package probe

import (
	"errors"
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

	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/traffic"
	"synclab/bench/traffic/flow"
	"synclab/internal/inet"
)

// packetProbe sends packets to the addresses of Services, in one family.
type packetProbe struct {
	*Probes
	family  corev1.IPFamily
	watched *hops
	control netip.AddrPort // an endpoint; zero: there is none
}

// firstEndpoint returns the lowest endpoint of all destinations that is not on the node, where no pod answers.
func firstEndpoint(all []destination, node []netip.Addr) (first netip.AddrPort) {
	for i := range all {
		for ep := range all[i].endpoints {
			if !slices.Contains(node, ep.Addr()) && (!first.IsValid() || ep.Compare(first) < 0) {
				first = ep
			}
		}
	}
	return first
}

// verdict sends flows from a source to a destination and returns the outcome.
func (r *packetProbe) verdict(d *destination, source string) (rec raw.Record, err error) {
	family, rooms, from := r.family, r.Flows.Rooms, netip.Addr{}
	in := func(f func() error) error { return rooms.Client.Do(f) }
	switch source {
	case fromPod:
		i := slices.IndexFunc(r.Flows.Clients, func(a netip.Addr) bool { return inet.FamilyOf(a) == family })
		from = r.Flows.Clients[i]
	case fromOutside:
		from = r.Flows.Outside[family]
	default:
		in = func(f func() error) error { return f() } // the worker's own namespace
	}
	outcomes, reached := map[string]int{}, map[netip.AddrPort]bool{}
	var wrong []string
	patience, last := verdictPatience, 1 // two flows are enough of what has no answer
	if len(d.endpoints) > 0 {
		last = 3
	}
	for n := range max(8, min(4*len(d.endpoints), 40)) { // with four flows an endpoint, one that may answer is missed at times, but not its Service
		if n == 2 {
			patience = slowPatience
			if outcomes[traffic.Answered]+len(d.endpoints) > 0 { // with more patience, these may have been answered
				delete(outcomes, traffic.TimedOut)
				delete(outcomes, raw.TooBusy)
			}
		}
		by, outcome, err := r.withControl(in, d, from, patience)
		if err == nil && d.beyond && outcome != traffic.Answered {
			outcome, err = r.watched.outcome(d, source == fromNode, outcome, &wrong)
		}
		if err != nil {
			return rec, err
		}
		outcomes[outcome]++
		if outcome == traffic.Answered {
			reached[by] = true
			if text := "answered by " + by.String(); !d.endpoints[by] && !slices.Contains(wrong, text) {
				wrong = append(wrong, text)
			}
		}
		if n == last && len(outcomes) == 1 && outcome != traffic.Answered {
			break
		}
	}
	rec = raw.Record{
		Value: float64(len(reached)), Family: string(family), Protocol: string(d.service.Protocol), Service: flow.ServiceText(d.service), Target: d.kind, Method: source,
		Outcome: outcomeText(outcomes),
	}
	switch {
	case d.local:
		rec.Kind = subject.LocalWithoutEndpoint
	case d.beyond:
		rec.Kind = subject.ClusterIPOnNode
	}
	rec.Error = strings.Join(wrong, ", ")
	return rec, nil
}

// controlTries is how often a flow is sent before the machine counts as too busy.
const controlTries = 3

// withControl sends a flow, and at the same time one straight to an endpoint, which no rule translates. If both time
// out, it sends them again.
func (r *packetProbe) withControl(in func(func() error) error, d *destination, from netip.Addr, patience time.Duration) (by netip.AddrPort, outcome string, err error) {
	for range controlTries {
		if _, err := r.watched.take(d.frontend()); err != nil { // packets of an earlier try
			return by, "", err
		}
		var control string
		var both errgroup.Group
		if r.control.IsValid() {
			both.Go(func() error {
				return in(func() (err error) {
					_, control, err = oneFlow(d.service.Protocol, from, r.control, patience)
					return err
				})
			})
		}
		both.Go(func() error {
			return in(func() (err error) {
				by, outcome, err = oneFlow(d.service.Protocol, from, d.addr, patience)
				return err
			})
		})
		if err = both.Wait(); err != nil || outcome != traffic.TimedOut || control != traffic.TimedOut {
			return by, outcome, err
		}
	}
	return by, raw.TooBusy, nil
}

// outcomeText names the outcomes of the flows to one destination: one word, or several if they differ. Flows of a moment
// in which the machine was too busy do not count beside others.
func outcomeText(outcomes map[string]int) string {
	var words []string
	for _, outcome := range slices.Sorted(maps.Keys(outcomes)) {
		if outcome == raw.TooBusy && len(outcomes) > 1 {
			continue
		}
		if outcome == traffic.Answered {
			outcome = "answered"
		}
		words = append(words, outcome)
	}
	return strings.Join(words, " or ")
}

// oneFlow sends the first packet of a flow from the calling thread's namespace. Its outcome is one of bench/traffic's.
func oneFlow(protocol corev1.Protocol, from netip.Addr, to netip.AddrPort, patience time.Duration) (by netip.AddrPort, outcome string, err error) {
	dialer := net.Dialer{Timeout: patience, Control: setTTL}
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
		_ = conn.SetDeadline(time.Now().Add(patience))
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
	case os.IsTimeout(err):
		return by, traffic.TimedOut, nil
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		return by, traffic.Refused, nil
	case errors.Is(err, syscall.ECONNRESET):
		return by, traffic.Reset, nil
	}
	return by, "", err
}
