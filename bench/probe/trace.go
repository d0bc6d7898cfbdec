package probe

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/verify/walk"
	"synclab/proxier/conntrack"
)

// trace sends one UDP packet from a client pod to a Service and reports its way there and back, hop by hop. Routes are
// asked of each namespace's kernel. The translation is that of the node's conntrack entry. The rules are those that the
// ruleset evaluator matches on the way to that endpoint.
func (r *Probes) trace(ctx context.Context, family corev1.IPFamily, targets []flowTarget, clients []netip.Addr) error {
	i := slices.IndexFunc(targets, func(t flowTarget) bool { return t.position > 0 && t.protocol == corev1.ProtocolUDP })
	if i < 0 {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("trace: no UDP Service of %s has endpoints", family)})
		return nil
	}
	to := targets[i].addr
	rooms := r.Flows.Rooms
	var from netip.AddrPort
	err := rooms.Client.Do(func() (err error) {
		from, err = ask(clients[0], to)
		return err
	})
	if err != nil {
		return fmt.Errorf("trace: packet to %s: %w", to, err)
	}
	flow, err := flowOf(ctx, family, from, to)
	if err != nil {
		return err
	}
	rules, err := r.rulesTo(ctx, family, from, to, flow.ReplySrc)
	if err != nil {
		rules = []string{fmt.Sprintf("rules not known: %v", err)}
	}
	t := &tracer{}
	t.line("UDP %s → %s", from, to)
	t.hop("client pod", rooms.Client, to.Addr())
	for _, rule := range rules {
		t.line("  node: %s", rule)
	}
	t.line("  node: destination %s becomes %s (conntrack)", to, flow.ReplySrc)
	t.hop("node", nil, flow.ReplySrc.Addr())
	if rooms.Other != nil {
		t.hop("other node", rooms.Other, flow.ReplySrc.Addr())
	}
	t.hop("pod", rooms.Backends, flow.ReplySrc.Addr())
	t.line("and back: UDP %s → %s", flow.ReplySrc, flow.ReplyDst)
	t.hop("pod", rooms.Backends, flow.ReplyDst.Addr())
	if rooms.Other != nil {
		t.hop("other node", rooms.Other, flow.ReplyDst.Addr())
	}
	t.line("  node: source %s becomes %s (conntrack)", flow.ReplySrc, to)
	t.hop("node", nil, from.Addr())
	t.hop("client pod", rooms.Client, from.Addr())
	if t.err == nil {
		r.Messages.Send(pass.Message{Note: "trace of one packet\n" + strings.Join(t.lines, "\n")})
	}
	return t.err
}

// tracer collects lines; the first error ends its work.
type tracer struct {
	lines []string
	err   error
}

func (t *tracer) line(format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf(format, args...))
}

// hop adds the route to an address in a namespace; nil: the calling thread's.
func (t *tracer) hop(who string, at *netns.Namespace, to netip.Addr) {
	if t.err != nil {
		return
	}
	look := func() error {
		route, err := routeTo(to)
		if err == nil {
			t.line("  %s: %s", who, route)
		}
		return err
	}
	if at == nil {
		t.err = look()
	} else {
		t.err = at.Do(look)
	}
	if t.err != nil {
		t.err = fmt.Errorf("trace: %s: %w", who, t.err)
	}
}

// routeTo describes the route of the calling thread's namespace to an address.
func routeTo(to netip.Addr) (string, error) {
	routes, err := netlink.RouteGet(to.AsSlice())
	if err != nil || len(routes) == 0 {
		return "", fmt.Errorf("route to %s: %w", to, err)
	}
	link, err := netlink.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return "", fmt.Errorf("route to %s: device: %w", to, err)
	}
	if routes[0].Type == unix.RTN_LOCAL {
		return fmt.Sprintf("%s is local", to), nil
	}
	text := fmt.Sprintf("route to %s: device %s", to, link.Attrs().Name)
	if gateway := routes[0].Gw; gateway != nil {
		text += fmt.Sprintf(", next hop %s", gateway)
	}
	tunnel, isTunnel := link.(*netlink.Vxlan)
	if !isTunnel {
		return text, nil
	}
	entries, err := netlink.NeighList(tunnel.Index, unix.AF_BRIDGE)
	if err != nil {
		return "", fmt.Errorf("forwarding entries of %s: %w", tunnel.Name, err)
	}
	for _, entry := range entries {
		if entry.IP != nil {
			text += fmt.Sprintf("; VXLAN %d, UDP %s → %s:%d", tunnel.VxlanId, tunnel.SrcAddr, entry.IP, tunnel.Port)
			break
		}
	}
	return text, nil
}

// ask sends a packet from the calling thread's namespace and waits for the answer. It returns the packet's source.
func ask(from netip.Addr, to netip.AddrPort) (netip.AddrPort, error) {
	conn, err := net.DialUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(from, 0)), net.UDPAddrFromAddrPort(to))
	if err != nil {
		return netip.AddrPort{}, err
	}
	defer conn.Close()
	var b [64]byte
	if _, err := conn.Write(b[:8]); err != nil {
		return netip.AddrPort{}, err
	}
	_ = conn.SetReadDeadline(time.Now().Add(flowPatience))
	_, err = conn.Read(b[:])
	return conn.LocalAddr().(*net.UDPAddr).AddrPort(), err
}

// flowOf finds a flow in conntrack.
func flowOf(ctx context.Context, family corev1.IPFamily, from, to netip.AddrPort) (found conntrack.Flow, err error) {
	_, err = conntrack.NewKernel(vishnetns.None()).DeleteUDP(ctx, family, func(f conntrack.Flow) bool {
		if f.Src == from && f.Dst == to {
			found = f
		}
		return false
	})
	if err == nil && !found.ReplySrc.IsValid() {
		err = fmt.Errorf("trace: no conntrack entry of %s → %s", from, to)
	}
	return found, err
}

// rulesTo returns the rules that match on a packet's way to an endpoint, in order.
func (r *Probes) rulesTo(ctx context.Context, family corev1.IPFamily, from, to, endpoint netip.AddrPort) ([]string, error) {
	packet := walk.Packet{Input: netns.ClientDevice, Protocol: walk.UDP, Source: from, Destination: to}
	world := walk.NodeAddresses{Local: slices.Clone(r.Node)}
	rules, err := r.rulesInKernel(ctx, family, func(rules *walk.Rules) ([]walk.PacketPath, error) { return walk.New(rules, world).Paths(&packet) })
	if err != nil {
		return nil, err
	}
	paths, err := walk.New(rules, world).Paths(&packet)
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		if path.To != endpoint {
			continue
		}
		var lines []string
		for _, at := range path.Matched {
			lines = append(lines, fmt.Sprintf("table %s, chain %s, rule %d", at.Table, at.Chain, at.Number+1))
		}
		return lines, nil
	}
	return nil, fmt.Errorf("no path leads to %s", endpoint)
}
