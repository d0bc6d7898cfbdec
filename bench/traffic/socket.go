package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// monotonic is CLOCK_MONOTONIC, read without a system call. Its readings are comparable between processes.
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

// at converts a reading to a Time.
func (m monotonic) at(ns int64) time.Time { return m.base.Add(time.Duration(ns - m.ns)) }

// sourcePorts hands out source addresses and ports. Each pair repeats only after all others.
type sourcePorts struct {
	addrs []netip.Addr
	next  int
}

// Lower ports may be Service ports; the kernel gives higher ports to other sockets.
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

// Dial makes a socket in the calling thread's namespace, sets its options and starts to connect it. Closing a TCP socket sends
// a reset, so that neither the peer nor conntrack keeps the connection.
func Dial(protocol corev1.Protocol, from, to netip.AddrPort, options ...func(fd int) error) (int, error) {
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
	for _, set := range options {
		err = errors.Join(err, set(fd))
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
		// The packet crosses the node and the ICMP refusal returns within the connect system call, while connect has
		// locked the socket. The kernel then only stores the error (sk_err_soft), and would report it after a
		// retransmitted SYN is refused too. SO_ERROR returns it now.
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

// refusal converts a socket error to a flow's outcome. An open connection ends with Reset.
func refusal(err error, connected bool) string {
	switch {
	case connected && !errors.Is(err, unix.ETIMEDOUT):
		return Reset
	case errors.Is(err, unix.ETIMEDOUT):
		return TimedOut
	}
	return Refused // ECONNREFUSED, or EHOSTUNREACH and similar from ICMP
}
