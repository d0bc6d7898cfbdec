package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// monotonic is a clock whose readings mean the same in all processes: CLOCK_MONOTONIC, without a system call.
type monotonic struct {
	base time.Time
	ns   int64 // at base
}

func newMonotonic() (monotonic, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return monotonic{}, fmt.Errorf("clock: %w", err)
	}
	return monotonic{time.Now(), ts.Nano()}, nil
}

func (m monotonic) now() int64 { return m.ns + int64(time.Since(m.base)) }

// at is a reading as a Time.
func (m monotonic) at(ns int64) time.Time { return m.base.Add(time.Duration(ns - m.ns)) }

// sourcePorts gives flows source addresses and ports, each pair again only after all others.
type sourcePorts struct {
	addrs []netip.Addr
	next  int
}

// Ports below may be services' own, above is what the kernel gives to others.
const firstSource, lastSource = 1024, 65000

func (s *sourcePorts) take() netip.AddrPort {
	addr := s.addrs[s.next%len(s.addrs)]
	port := firstSource + s.next/len(s.addrs)%(lastSource-firstSource)
	s.next++
	return netip.AddrPortFrom(addr, uint16(port))
}

func sockaddrOf(a netip.AddrPort) unix.Sockaddr {
	if a.Addr().Is4() {
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}
	}
	return &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
}

// dial makes a socket of the calling thread's namespace and begins to connect it. A TCP socket ends with a reset when it
// is closed, so that neither end nor conntrack remembers it.
func dial(protocol corev1.Protocol, from, to netip.AddrPort) (int, error) {
	domain, kind := unix.AF_INET, unix.SOCK_STREAM
	if to.Addr().Is6() {
		domain = unix.AF_INET6
	}
	if protocol == corev1.ProtocolUDP {
		kind = unix.SOCK_DGRAM
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if kind == unix.SOCK_STREAM {
		err = errors.Join(unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}),
			unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
	}
	if err == nil {
		err = unix.Bind(fd, sockaddrOf(from))
	}
	if err == nil {
		if err = unix.Connect(fd, sockaddrOf(to)); errors.Is(err, unix.EINPROGRESS) {
			err = nil
		}
	}
	if err == nil && kind == unix.SOCK_STREAM {
		// A refusal by ICMP comes while connect still holds the socket, as the packet crosses the node and the answer comes
		// back inside that very system call: the kernel then only notes it (sk_err_soft), and would tell after the SYN is
		// sent again and refused again. Asked for it, it says so now.
		var noted int
		if noted, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err == nil && noted != 0 {
			err = unix.Errno(noted)
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// refusal says what an error of a socket means for its flow. A connection that was there ends with a reset.
func refusal(err error, connected bool) string {
	switch {
	case connected && !errors.Is(err, unix.ETIMEDOUT):
		return Reset
	case errors.Is(err, unix.ETIMEDOUT):
		return TimedOut
	}
	return Refused // ECONNREFUSED; EHOSTUNREACH and its like, by ICMP
}
