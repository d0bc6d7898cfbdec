package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// responder simulates all pods on the server side: one thread, no allocation for a packet.
type responder struct {
	epoll int
	// kind and port of each descriptor that is a socket of the responder. active is the sweep in which a connection
	// last received data.
	kind   [maxDescriptor]byte
	port   [maxDescriptor]uint16
	active [maxDescriptor]uint16
	turn   uint16
	thread atomic.Int32 // that answers

	// asked are more ports to listen on, wake is the eventfd that announces them, and listens gets the result. ended is
	// closed when the responder has exited.
	asked   chan []Port
	wake    int
	listens chan error
	ended   chan struct{}

	name    unix.RawSockaddrInet6 // large enough for either family
	control [8]uint64             // aligned as the kernel's headers are
	packet  [64]byte
	out     [answerSize]byte
	bulk    [1 << 17]byte
	iov     unix.Iovec
	message unix.Msghdr
}

// maxDescriptor is above the number of files that one process of Synclab opens. Further connections are closed at once.
const maxDescriptor = 1 << 16

const (
	listener4 = 1 + iota
	listener6
	datagram4
	datagram6
	connection
	sunk // a connection after the question sink
	waker
)

// A connection without data for sweepTurns sweeps is closed: its client's reset was lost.
const (
	sweepEvery = 10 * time.Second
	sweepTurns = 3
)

// newResponder returns a responder without ports.
func newResponder() (*responder, error) {
	r := &responder{asked: make(chan []Port, 1), listens: make(chan error, 1), ended: make(chan struct{})}
	var err error
	if r.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if r.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return r, r.watch(r.wake, waker, 0)
}

// answerOn makes the responder listen on ports of every address, and returns when it does. Only one goroutine at a time
// may call it.
func (r *responder) answerOn(ports []Port) error {
	r.asked <- ports
	one := [8]byte{1} // in native byte order, any value except 0
	if _, err := unix.Write(r.wake, one[:]); err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	select {
	case err := <-r.listens:
		return err
	case <-r.ended:
		return errors.New("the responder exited")
	}
}

// listenMore handles a request of answerOn.
func (r *responder) listenMore() {
	var count [8]byte
	_, _ = unix.Read(r.wake, count[:])
	select {
	case ports := <-r.asked:
		r.listens <- r.listenAll(ports)
	default:
	}
}

func (r *responder) listenAll(ports []Port) error {
	for _, port := range ports {
		if err := r.listen(port); err != nil {
			return fmt.Errorf("listen on %s port %d of %s: %w", port.Protocol, port.Number, port.Family, err)
		}
	}
	return nil
}

func (r *responder) listen(p Port) error {
	domain, kind, listener, datagram := unix.AF_INET, unix.SOCK_STREAM, byte(listener4), byte(datagram4)
	var any unix.Sockaddr = &unix.SockaddrInet4{Port: int(p.Number)}
	if p.Family == corev1.IPv6Protocol {
		domain, listener, datagram, any = unix.AF_INET6, listener6, datagram6, &unix.SockaddrInet6{Port: int(p.Number)}
	}
	if p.Protocol == corev1.ProtocolUDP {
		kind, listener = unix.SOCK_DGRAM, datagram
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	options := [][3]int{{unix.SOL_SOCKET, unix.SO_REUSEADDR, 1}}
	if domain == unix.AF_INET6 {
		// Freebind: the kernel does not accept an address of a local range as a source address without it.
		options = append(options, [3]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1}, [3]int{unix.IPPROTO_IPV6, unix.IPV6_FREEBIND, 1},
			[3]int{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1})
	} else {
		options = append(options, [3]int{unix.IPPROTO_IP, unix.IP_FREEBIND, 1}, [3]int{unix.IPPROTO_IP, unix.IP_PKTINFO, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(fd, o[0], o[1], o[2]); err != nil {
			return fmt.Errorf("option %d: %w", o[1], err)
		}
	}
	if err := unix.Bind(fd, any); err != nil {
		return err
	}
	if kind == unix.SOCK_STREAM {
		if err := unix.Listen(fd, 4096); err != nil {
			return err
		}
	}
	return r.watch(fd, listener, p.Number)
}

func (r *responder) watch(fd int, kind byte, port uint16) error {
	if fd >= maxDescriptor {
		return errors.New("too many descriptors")
	}
	r.kind[fd], r.port[fd], r.active[fd] = kind, port, r.turn
	return unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// place makes the responder's thread run on some CPUs only.
func (r *responder) place(cpus []int) error {
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(int(r.thread.Load()), &set); err != nil {
		return fmt.Errorf("CPUs %v: %w", cpus, err)
	}
	return nil
}

// run answers until the process exits, in the calling thread's namespace.
func (r *responder) run() error {
	r.thread.Store(int32(unix.Gettid()))
	var events [128]unix.EpollEvent
	swept := time.Now()
	for {
		n, err := unix.EpollWait(r.epoll, events[:], int(sweepEvery/time.Millisecond))
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("responder: %w", err)
		}
		for i := range max(n, 0) {
			fd := int(events[i].Fd)
			switch r.kind[fd] {
			case listener4, listener6:
				r.accept(fd)
			case datagram4, datagram6:
				r.datagrams(fd)
			case connection:
				r.questions(fd)
			case sunk:
				r.forget(fd)
			case waker:
				r.listenMore()
			}
		}
		if time.Since(swept) > sweepEvery {
			swept = time.Now()
			r.sweep()
		}
	}
}

// accept accepts waiting connections, and sends each the address that it reached.
func (r *responder) accept(fd int) {
	for range 64 {
		conn, _, errno := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
		if errno != 0 {
			return
		}
		c := int(conn)
		if r.watch(c, connection, r.port[fd]) != nil {
			unix.Close(c)
			continue
		}
		r.identify(c)
		clear(r.out[identitySize:])
		r.write(c)
	}
}

// identify puts a connection's local address into the answer.
func (r *responder) identify(fd int) {
	size := uint32(unsafe.Sizeof(r.name))
	unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&r.name)), uintptr(unsafe.Pointer(&size)))
	addr := r.name.Addr
	if r.name.Family == unix.AF_INET {
		addr = netip.AddrFrom4((*unix.RawSockaddrInet4)(unsafe.Pointer(&r.name)).Addr).As16()
	}
	putIdentity(r.out[:], addr, r.port[fd])
}

func (r *responder) write(fd int) {
	unix.RawSyscall(unix.SYS_WRITE, uintptr(fd), uintptr(unsafe.Pointer(&r.out)), answerSize)
}

// questions answers the questions on a long-lived connection, or closes one that has ended.
func (r *responder) questions(fd int) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&r.packet)), uintptr(len(r.packet)))
	switch {
	case errno == unix.EAGAIN:
		return
	case errno != 0 || n == 0:
		r.close(fd)
		return
	}
	r.active[fd] = r.turn
	r.identify(fd)
	for at := 0; at+questionSize <= int(n); at += questionSize {
		if binary.BigEndian.Uint64(r.packet[at:]) == sink {
			r.kind[fd] = sunk // what is left in the packet counts as read
			return
		}
		copy(r.out[identitySize:], r.packet[at:at+questionSize])
		r.write(fd)
	}
}

// forget reads what has come, and closes a connection that has ended.
func (r *responder) forget(fd int) {
	n, _, errno := unix.RawSyscall(unix.SYS_READ, uintptr(fd), uintptr(unsafe.Pointer(&r.bulk)), uintptr(len(r.bulk)))
	if errno != unix.EAGAIN && (errno != 0 || n == 0) {
		r.close(fd)
	}
}

func (r *responder) close(fd int) {
	r.kind[fd] = 0
	unix.Close(fd)
}

func (r *responder) sweep() {
	r.turn++
	for fd := range r.kind {
		if r.kind[fd] == connection && r.turn-r.active[fd] > sweepTurns {
			r.close(fd)
		}
	}
}

// datagrams answers waiting packets, each from its destination address.
func (r *responder) datagrams(fd int) {
	for range 64 {
		r.iov.Base, r.message.Name, r.message.Control, r.message.Iov = &r.packet[0], (*byte)(unsafe.Pointer(&r.name)), (*byte)(unsafe.Pointer(&r.control)), &r.iov
		r.iov.SetLen(len(r.packet))
		r.message.Namelen = uint32(unsafe.Sizeof(r.name))
		r.message.SetControllen(int(unsafe.Sizeof(r.control)))
		r.message.SetIovlen(1)
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.message)), 0)
		if errno == unix.EAGAIN {
			return
		}
		if errno != 0 || n < questionSize || !r.address(fd) {
			continue
		}
		copy(r.out[identitySize:], r.packet[:questionSize])
		r.iov.Base = &r.out[0]
		r.iov.SetLen(answerSize)
		r.message.Flags = 0
		unix.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&r.message)), 0)
	}
}

// address reads the packet's destination from the control message and puts it into the answer. It then changes the
// control message to send the answer from that address.
func (r *responder) address(fd int) bool {
	header := (*unix.Cmsghdr)(unsafe.Pointer(&r.control))
	body := unsafe.Add(unsafe.Pointer(&r.control), unix.CmsgLen(0))
	switch {
	case r.kind[fd] == datagram4 && header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO:
		about := (*unix.Inet4Pktinfo)(body)
		putIdentity(r.out[:], netip.AddrFrom4(about.Addr).As16(), r.port[fd])
		about.Spec_dst, about.Ifindex = about.Addr, 0
		r.message.SetControllen(unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	case r.kind[fd] == datagram6 && header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO:
		about := (*unix.Inet6Pktinfo)(body)
		putIdentity(r.out[:], about.Addr, r.port[fd])
		about.Ifindex = 0
		r.message.SetControllen(unix.CmsgSpace(unix.SizeofInet6Pktinfo))
	default:
		return false
	}
	return true
}
