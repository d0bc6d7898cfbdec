package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime/debug"
	"slices"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/netns"
)

// Target is one destination of the traversal probe.
type Target struct {
	// Position is the dispatch position, as in Record: 1 the first Service, -1 a miss, 0 an empty ruleset.
	Position int
	Addr     netip.AddrPort
	// Kind is one of scenarios.Probe.Kinds; empty: a cluster IP, or a miss. Position is then the position of the cluster
	// IP.
	Kind string
	// From are the source addresses; nil: the address that the routes choose. They must be local; see netns.HoldRange.
	From *clients
}

// Protocols of first packets, in order of preference. UDP's sendto(2) does nothing but send the packet.
var Protocols = []corev1.Protocol{corev1.ProtocolUDP, corev1.ProtocolTCP}

// clients are source addresses.
type clients struct {
	addr netip.Addr
	// fresh: each packet has another source address, from addr on, as long as addresses are in within.
	fresh  bool
	within netip.Prefix
}

// take returns the source of the next packet.
func (c *clients) take() (netip.Addr, error) {
	if c == nil {
		return netip.Addr{}, nil
	}
	addr := c.addr
	if !addr.IsValid() || c.fresh && !c.within.Contains(addr) {
		return addr, fmt.Errorf("no client address is left in %s: use fewer samples", c.within)
	}
	if c.fresh {
		c.addr = addr.Next()
	}
	return addr, nil
}

// TraversalOptions are the packets to send. Targets and Rand are required.
type TraversalOptions struct {
	Targets []Target
	// Protocol of all packets: UDP (default), or TCP, whose first packet is the SYN of a non-blocking connect(2).
	Protocol corev1.Protocol
	// Samples is the number of packets per target. Default 500.
	Samples int
	// Batch is the number of packets between two flushes of conntrack. Default 2000, at most 20,000. A namespace may get
	// only a part of the machine's nf_conntrack_max, and each packet needs a separate source port.
	Batch int
	// Rand orders the packets, so that drift of the machine affects all positions alike.
	Rand *rand.Rand
}

const (
	defaultSamples = 500
	defaultBatch   = 2000
	maxBatch       = 20_000
	warmUp         = 200 // packets before the first sample, at least one per target, to warm module, route and branch caches
	batchWarmUp    = 20  // packets after each flush, which evicts caches

	firstPort, lastPort = 1025, 65535
)

// MeasureTraversal measures what crossing the rules costs the first packet of a flow: the duration of the system call
// that sends it, sendto(2) of UDP or connect(2) of TCP. Each packet is a new flow, sent from a thread pinned to one CPU, without garbage collection or preemption by the Go
// runtime. The clock is CLOCK_MONOTONIC_RAW. emit is called between batches, in the order of sending, with one of the
// targets. Compare times of one call only, or of calls with as many targets. See docs/design/first-packets.md.
func MeasureTraversal(ctx context.Context, o TraversalOptions, emit func(target *Target, d time.Duration)) error {
	p, err := newTraversal(o)
	if err != nil {
		return fmt.Errorf("traversal: %w", err)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("traversal: %w", err)
	}
	release, err := pin()
	if err != nil {
		return fmt.Errorf("traversal: %w", err)
	}
	defer release()
	if err := p.run(ctx, emit); err != nil {
		return fmt.Errorf("traversal: %w", err)
	}
	return nil
}

// traversal is one measurement. All its memory is allocated before the first packet.
type traversal struct {
	targets  []Target
	tcp      bool
	to       []sockaddr
	schedule []int // index of target, one for each packet
	batch    int
	took     []int64 // ns, of one batch
	port     uint16
}

// sockaddr is a destination in the form that sendto takes.
type sockaddr struct {
	raw    unix.RawSockaddrInet6 // large enough for either family
	length uintptr
	domain int
}

func newTraversal(o TraversalOptions) (*traversal, error) {
	if len(o.Targets) == 0 {
		return nil, errors.New("no targets")
	}
	if o.Rand == nil {
		return nil, errors.New("no source of randomness")
	}
	if o.Samples == 0 {
		o.Samples = defaultSamples
	}
	if o.Batch == 0 {
		o.Batch = defaultBatch
	}
	if o.Samples < 0 || o.Batch < 1 || o.Batch > maxBatch {
		return nil, fmt.Errorf("%d samples in batches of %d: want at least 1, and batches of at most %d",
			o.Samples, o.Batch, maxBatch)
	}
	p := &traversal{
		targets:  o.Targets,
		tcp:      o.Protocol == corev1.ProtocolTCP,
		schedule: make([]int, 0, len(o.Targets)*o.Samples),
		batch:    o.Batch,
		took:     make([]int64, o.Batch),
		port:     firstPort,
	}
	for i, target := range o.Targets {
		if !target.Addr.IsValid() {
			return nil, fmt.Errorf("position %d: no address", target.Position)
		}
		p.to = append(p.to, sockaddrOf(target.Addr))
		p.schedule = append(p.schedule, slices.Repeat([]int{i}, o.Samples)...)
	}
	o.Rand.Shuffle(len(p.schedule), func(i, j int) {
		p.schedule[i], p.schedule[j] = p.schedule[j], p.schedule[i]
	})
	return p, nil
}

func sockaddrOf(a netip.AddrPort) sockaddr {
	s := sockaddr{}
	port := [2]byte{byte(a.Port() >> 8), byte(a.Port())}
	if addr := a.Addr().Unmap(); addr.Is4() {
		in := (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
		in.Family, in.Addr = unix.AF_INET, addr.As4()
		*(*[2]byte)(unsafe.Pointer(&in.Port)) = port
		s.length, s.domain = unix.SizeofSockaddrInet4, unix.AF_INET
		return s
	}
	s.raw.Family, s.raw.Addr = unix.AF_INET6, a.Addr().As16()
	*(*[2]byte)(unsafe.Pointer(&s.raw.Port)) = port
	s.length, s.domain = unix.SizeofSockaddrInet6, unix.AF_INET6
	return s
}

func (p *traversal) run(ctx context.Context, emit func(target *Target, d time.Duration)) error {
	// At least one per target: for session affinity, the second packet of a client has an entry.
	warm := make([]int, max(warmUp, len(p.to)))
	for i := range warm {
		warm[i] = i % len(p.to)
	}
	if _, err := p.send(warm, make([]int64, len(warm))); err != nil {
		return err
	}
	scratch := make([]int64, batchWarmUp)
	for todo := range slices.Chunk(p.schedule, p.batch) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := forgetFlows(); err != nil {
			return err
		}
		if _, err := p.send(warm[:batchWarmUp], scratch); err != nil {
			return err
		}
		took, err := p.send(todo, p.took)
		if err != nil {
			return err
		}
		for i, target := range todo {
			emit(&p.targets[target], time.Duration(took[i]))
		}
	}
	return forgetFlows()
}

// send sends one packet to each target of todo and returns the durations, in ns.
func (p *traversal) send(todo []int, took []int64) ([]int64, error) {
	defer quiet()()
	payload := [1]byte{'x'}
	kind := unix.SOCK_DGRAM
	if p.tcp {
		kind = unix.SOCK_STREAM | unix.SOCK_NONBLOCK
	}
	for i, target := range todo {
		to := &p.to[target]
		from, err := p.targets[target].From.take()
		if err != nil {
			return nil, err
		}
		fd, err := p.socket(to.domain, kind, from)
		if err != nil {
			return nil, err
		}
		var errno unix.Errno
		before := machine.RawClock()
		if p.tcp {
			_, _, errno = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&to.raw)), to.length)
		} else {
			_, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&payload)), 1, 0,
				uintptr(unsafe.Pointer(&to.raw)), to.length)
		}
		took[i] = machine.RawClock() - before
		unix.Close(fd) // a connection in state SYN_SENT ends without a packet
		if !sent(errno, p.targets[target].Kind) {
			return nil, fmt.Errorf("send to %s: %w", &p.targets[target], errno)
		}
	}
	return took[:len(todo)], nil
}

// sent reports whether a result of the system call means that the packet met its rules. EINPROGRESS: the SYN is on its
// way. EPERM and ECONNREFUSED: a rule dropped or rejected the packet. EHOSTUNREACH: a program for sockets refused a
// destination without endpoints before there was a packet.
func sent(errno unix.Errno, kind string) bool {
	switch errno {
	case 0, unix.EINPROGRESS, unix.EPERM, unix.ECONNREFUSED:
		return true
	case unix.EHOSTUNREACH:
		return kind == kindReject
	}
	return false
}

// String describes the target for messages.
func (t *Target) String() string {
	text := fmt.Sprintf("%s (position %d", t.Addr, t.Position)
	if t.Kind != "" {
		text += ", " + t.Kind
	}
	return text + ")"
}

// socket returns a socket on the next source port, with the source address from if it is valid. A port chosen by the
// kernel could repeat before conntrack has forgotten its flow, and the choice would be part of the system call.
func (p *traversal) socket(domain, kind int, from netip.Addr) (int, error) {
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if from.IsValid() {
		if err := bindFreely(fd, domain); err != nil {
			unix.Close(fd)
			return 0, err
		}
	}
	for range lastPort - firstPort {
		own := sockaddrFrom(domain, from, p.port)
		if p.port++; p.port == lastPort {
			p.port = firstPort
		}
		if err = unix.Bind(fd, own); err == nil {
			return fd, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	unix.Close(fd)
	return 0, fmt.Errorf("source port: %w", err)
}

func sockaddrFrom(domain int, from netip.Addr, port uint16) unix.Sockaddr {
	addr := from.As16() // zero: any; IPv4 is mapped
	if domain == unix.AF_INET6 {
		return &unix.SockaddrInet6{Port: int(port), Addr: addr}
	}
	return &unix.SockaddrInet4{Port: int(port), Addr: [4]byte(addr[12:])}
}

// bindFreely allows a source address that no device has: IPv6's bind(2) ignores local routes.
func bindFreely(fd, domain int) error {
	level, option := unix.SOL_IP, unix.IP_FREEBIND
	if domain == unix.AF_INET6 {
		level, option = unix.SOL_IPV6, unix.IPV6_FREEBIND
	}
	if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
		return fmt.Errorf("source address: %w", err)
	}
	return nil
}

// forgetFlows empties the namespace's conntrack table.
func forgetFlows() error {
	if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
		return fmt.Errorf("flush conntrack: %w", err)
	}
	return nil
}

// pin makes the goroutine stay on the last allowed CPU: interrupts tend to use the first.
func pin() (release func(), err error) {
	cpus, err := machine.CPUs()
	if err != nil {
		return nil, err
	}
	return machine.Pin(cpus[len(cpus)-1])
}

// quiet prevents the Go runtime from interrupting the calling thread until restore is called. It disables garbage
// collection and blocks SIGURG, with which the runtime preempts a thread after 10 ms.
func quiet() (restore func()) {
	percent := debug.SetGCPercent(-1)
	var urgent, before unix.Sigset_t
	bits := 8 * int(unsafe.Sizeof(urgent.Val[0]))
	urgent.Val[(int(unix.SIGURG)-1)/bits] |= 1 << ((int(unix.SIGURG) - 1) % bits)
	blocked := unix.PthreadSigmask(unix.SIG_BLOCK, &urgent, &before) == nil
	return func() {
		if blocked {
			_ = unix.PthreadSigmask(unix.SIG_SETMASK, &before, nil)
		}
		debug.SetGCPercent(percent)
	}
}
