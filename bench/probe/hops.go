package probe

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/bench/traffic"
)

// How packets end to a port that no Service has, besides the outcomes of flows.
const (
	forwarded = "forwarded" // unchanged, by the default route
	looped    = "looped"    // it passed the node more than once, or was sent back to where it came from
)

// firstTTL is the TTL of packets to ports that no Service has. The node takes one from those that it forwards.
const firstTTL = 64

// hop is a packet at a device of the node.
type hop struct {
	device string
	out    bool
	ttl    int
}

// frontend is the destination of a packet.
type frontend struct {
	protocol corev1.Protocol
	addr     netip.AddrPort
}

// hops are the packets to some destinations, as the node's devices see them.
type hops struct {
	socket int

	mu      sync.Mutex
	seen    map[frontend][]hop // only of these destinations
	devices map[int]string
}

// hopsBuffer is for all packets of some 300 ms.
const hopsBuffer = 1 << 22

// watchHops begins to see packets at all devices of the calling thread's namespace.
func watchHops(to []frontend) (*hops, error) {
	h := &hops{seen: map[frontend][]hop{}, devices: map[int]string{}}
	for _, f := range to {
		h.seen[f] = nil
	}
	const all = unix.ETH_P_ALL<<8 | unix.ETH_P_ALL>>8 // in network byte order
	var err error
	if h.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, all&0xffff); err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	_ = unix.SetsockoptInt(h.socket, unix.SOL_SOCKET, unix.SO_RCVBUF, hopsBuffer) // as far as the machine allows
	return h, nil
}

func (h *hops) Close() error { return unix.Close(h.socket) }

// take returns the packets to a destination since the last call.
func (h *hops) take(f frontend) ([]hop, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.read(); err != nil {
		return nil, err
	}
	seen := h.seen[f]
	h.seen[f] = nil
	return seen, nil
}

// read takes all packets from the socket.
func (h *hops) read() error {
	var packet [128]byte
	for {
		n, from, err := unix.Recvfrom(h.socket, packet[:], 0)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ENETDOWN): // a device went down
			continue
		case err != nil:
			return fmt.Errorf("packet socket: %w", err)
		}
		at, isLink := from.(*unix.SockaddrLinklayer)
		to, ttl, ok := destinationOf(packet[:n])
		if !isLink || !ok {
			continue
		}
		if _, watched := h.seen[to]; watched {
			h.seen[to] = append(h.seen[to], hop{h.device(at.Ifindex), at.Pkttype == unix.PACKET_OUTGOING, ttl})
		}
	}
}

func (h *hops) device(index int) string {
	if h.devices[index] == "" {
		h.devices[index] = fmt.Sprintf("device %d", index)
		if found, err := net.InterfaceByIndex(index); err == nil {
			h.devices[index] = found.Name
		}
	}
	return h.devices[index]
}

// destinationOf reads the destination and the TTL of an IP packet of TCP or UDP.
func destinationOf(p []byte) (to frontend, ttl int, ok bool) {
	var header int
	var protocol byte
	var addr netip.Addr
	switch {
	case len(p) >= 20 && p[0]>>4 == 4:
		header, protocol, ttl, addr = int(p[0]&0xf)*4, p[9], int(p[8]), netip.AddrFrom4([4]byte(p[16:20]))
	case len(p) >= 40 && p[0]>>4 == 6:
		header, protocol, ttl, addr = 40, p[6], int(p[7]), netip.AddrFrom16([16]byte(p[24:40]))
	default:
		return to, 0, false
	}
	known := map[byte]corev1.Protocol{unix.IPPROTO_TCP: corev1.ProtocolTCP, unix.IPPROTO_UDP: corev1.ProtocolUDP}
	if known[protocol] == "" || len(p) < header+4 {
		return to, 0, false
	}
	return frontend{known[protocol], netip.AddrPortFrom(addr, binary.BigEndian.Uint16(p[header+2:]))}, ttl, true
}

// outcome returns how a flow without an answer ended, and adds to wrong what is wrong with that.
func (h *hops) outcome(d *destination, own bool, outcome string, wrong *[]string) (string, error) {
	seen, err := h.take(d.frontend())
	if err != nil {
		return "", err
	}
	ended, text := judgeHops(seen, own)
	if text != "" && !slices.Contains(*wrong, text) {
		*wrong = append(*wrong, text)
	}
	if ended == looped || outcome == traffic.TimedOut {
		return ended, nil
	}
	return outcome, nil
}

// setTTL makes a socket send with firstTTL.
func setTTL(network, _ string, conn syscall.RawConn) error {
	var err error
	failed := conn.Control(func(fd uintptr) {
		if strings.HasSuffix(network, "6") {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, firstTTL)
		} else {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TTL, firstTTL)
		}
	})
	return errors.Join(failed, err)
}

// judgeHops returns how a packet of firstTTL to a port that no Service has ended, if its sender got no answer, and what
// is wrong with that. own: the node itself sent it.
func judgeHops(seen []hop, own bool) (outcome, wrong string) {
	want, least := firstTTL-1, firstTTL
	if own {
		want++
	}
	left := map[string]int{}
	came := ""
	for _, p := range seen {
		least = min(least, p.ttl)
		if p.device == "lo" { // the node delivers it to itself
			continue
		}
		if p.out {
			left[p.device]++
		} else if came == "" {
			came = p.device
		}
	}
	passes := firstTTL - least
	if own {
		passes++
	}
	switch {
	case least < want:
		return looped, fmt.Sprintf("looped: it passed the node %d times, and its TTL fell from %d to %d", passes, firstTTL, least)
	case came != "" && left[came] > 0:
		return looped, fmt.Sprintf("looped: the node sent it back by %s, with TTL %d", came, least)
	}
	for device, times := range left {
		if times > 1 {
			return looped, fmt.Sprintf("looped: it left by %s %d times, with TTL %d", device, times, least)
		}
	}
	if left[netns.BeyondDevice] > 0 {
		return forwarded, ""
	}
	return traffic.TimedOut, ""
}
