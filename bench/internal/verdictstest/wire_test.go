package verdictstest

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/bench/verify/walk"
)

// wire sends real packets in a node's network namespace: into the node's device, as if from outside, or from the node
// itself through a raw socket. It reads the outcome from conntrack and from the counter of ICMP errors.
type wire struct {
	t      *testing.T
	world  walk.NodeAddresses
	frames int // socket for frames that arrive on node0
	toFar  unix.SockaddrLinklayer
	mac    []byte // of node0
	raw    int    // socket for packets from the node
}

// everywhere has all source and destination ranges of the tests' packets, except loopback.
var everywhere = []string{"10.0.0.0/8", "100.64.0.0/10", "192.0.2.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24"}

// newWire sets up the calling goroutine's namespace.
func newWire(t *testing.T, world walk.NodeAddresses) *wire {
	t.Helper()
	netns.Fresh(t)
	w := &wire{t: t, world: world}
	topology := netns.Topology{Node: world.Local}
	for _, text := range everywhere {
		topology.Sink = append(topology.Sink, netip.MustParsePrefix(text))
	}
	w.must((&netns.Lab{}).Connect(topology))
	for name, value := range map[string]string{
		"net/ipv4/ip_forward": "1", "net/ipv4/conf/all/rp_filter": "0", "net/ipv4/conf/node0/rp_filter": "0",
		"net/ipv4/conf/all/route_localnet": "1", "net/ipv4/conf/all/accept_local": "1",
		"net/ipv4/icmp_ratemask": "0", // no limit on ICMP errors
	} {
		w.must(os.WriteFile("/proc/sys/"+name, []byte(value), 0o644))
	}
	node, err := netlink.LinkByName(netns.NodeDevice)
	w.must(err)
	far, err := netlink.LinkByName(netns.NodeDevice + "-far")
	w.must(err)
	w.mac = node.Attrs().HardwareAddr
	w.frames, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	w.must(err)
	w.toFar = unix.SockaddrLinklayer{Ifindex: far.Attrs().Index, Halen: 6}
	copy(w.toFar.Addr[:], w.mac)
	w.raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	w.must(err)
	t.Cleanup(func() { unix.Close(w.frames); unix.Close(w.raw) })
	return w
}

func (w *wire) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// ipv4Packet returns the bytes of a packet: an IPv4 header with a UDP header or a TCP SYN.
func ipv4Packet(p *walk.Packet) []byte {
	var l4 []byte
	l4 = binary.BigEndian.AppendUint16(l4, p.Source.Port())
	l4 = binary.BigEndian.AppendUint16(l4, p.Destination.Port())
	if p.Protocol == walk.UDP {
		l4 = append(l4, 0, 8, 0, 0) // no checksum
	} else {
		l4 = append(l4, 0, 0, 0, 1, 0, 0, 0, 0, 5<<4, 2, 0xff, 0xff, 0, 0, 0, 0)
		src, dst := p.Source.Addr().As4(), p.Destination.Addr().As4()
		pseudo := append(append(append([]byte(nil), src[:]...), dst[:]...), 0, byte(walk.TCP), 0, byte(len(l4)))
		binary.BigEndian.PutUint16(l4[16:], checksum(append(pseudo, l4...)))
	}
	ip := []byte{0x45, 0, 0, byte(20 + len(l4)), 0, 1, 0, 0, 64, byte(p.Protocol), 0, 0}
	src, dst := p.Source.Addr().As4(), p.Destination.Addr().As4()
	ip = append(append(ip, src[:]...), dst[:]...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return append(ip, l4...)
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

func (w *wire) send(p *walk.Packet) {
	w.t.Helper()
	packet := ipv4Packet(p)
	if p.Input == "" {
		err := unix.Sendto(w.raw, packet, 0, &unix.SockaddrInet4{Addr: p.Destination.Addr().As4()})
		if err != nil && !errors.Is(err, unix.EPERM) { // EPERM: a rule rejected it
			w.t.Fatalf("%s: %v", p, err)
		}
		return
	}
	frame := append(append(append([]byte(nil), w.mac...), 2, 0, 0, 0, 0, 9), 0x08, 0x00)
	w.must(unix.Sendto(w.frames, append(frame, packet...), 0, &w.toFar))
}

// flows returns all entries of the conntrack table.
func (w *wire) flows() []*netlink.ConntrackFlow {
	w.t.Helper()
	all, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
	w.must(err)
	return all
}

func of(flows []*netlink.ConntrackFlow, p *walk.Packet) *netlink.ConntrackFlow {
	for _, f := range flows {
		if f.Forward.Protocol == uint8(p.Protocol) && netip.AddrPortFrom(addrOf(f.Forward.SrcIP), f.Forward.SrcPort) == p.Source &&
			netip.AddrPortFrom(addrOf(f.Forward.DstIP), f.Forward.DstPort) == p.Destination {
			return f
		}
	}
	return nil
}

func addrOf(ip []byte) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// unreachables returns the number of ICMP errors that the namespace has sent.
func (w *wire) unreachables() int {
	w.t.Helper()
	text, err := os.ReadFile("/proc/thread-self/net/snmp")
	w.must(err)
	var names []string
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if words[0] != "Icmp:" {
			continue
		}
		if names == nil {
			names = words
			continue
		}
		for i, name := range names {
			if name == "OutDestUnreachs" {
				n, err := strconv.Atoi(words[i])
				w.must(err)
				return n
			}
		}
	}
	w.t.Fatal("/proc/net/snmp has no OutDestUnreachs")
	return 0
}

// fence returns a packet that enters in the same way, and that no rule matches.
func (w *wire) fence(p *walk.Packet) *walk.Packet {
	return &walk.Packet{
		Input: p.Input, Protocol: walk.UDP, Source: netip.MustParseAddrPort("198.51.100.9:9"), Destination: netip.MustParseAddrPort("10.250.0.1:9"),
	}
}

// verdict sends a packet and returns its outcome.
func (w *wire) verdict(p *walk.Packet) walk.Outcome {
	w.t.Helper()
	w.must(netlink.ConntrackTableFlush(netlink.ConntrackTable))
	before := w.unreachables()
	w.send(p)
	// Incoming packets wait in a queue. When the fence has passed, the packet before it has passed too.
	fence := w.fence(p)
	w.send(fence)
	const patience = 1_000_000
	var flows []*netlink.ConntrackFlow
	for try := 0; ; try++ {
		if flows = w.flows(); of(flows, fence) != nil {
			break
		}
		if try == patience {
			w.t.Fatalf("%s: the fence packet never arrived", fence)
		}
	}
	refused := w.unreachables() > before
	f := of(flows, p)
	switch {
	// A packet from the node to itself has a conntrack entry before INPUT rejects it.
	case refused && (f == nil || p.Input == ""):
		return walk.Outcome{Kind: walk.Reject}
	case f == nil:
		return walk.Outcome{Kind: walk.Drop}
	}
	var o walk.Outcome
	if from := netip.AddrPortFrom(addrOf(f.Reverse.SrcIP), f.Reverse.SrcPort); from != p.Destination {
		o.To = from
	}
	to := netip.AddrPortFrom(addrOf(f.Reverse.DstIP), f.Reverse.DstPort)
	o.Masquerade = to != p.Source
	return o
}
