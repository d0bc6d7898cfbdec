package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/machine"
	"synclab/bench/lab/netns"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/internal/inet"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// purposeFlowProbe is the random stream for the order of a flow probe's flows.
const purposeFlowProbe = 4

// The measurements of a flow probe, as in Record.Method.
const (
	methodHandshake   = "handshake"   // TCP: from connect to the SYN-ACK
	methodEcho        = "echo"        // UDP: from the first packet of a flow to its answer
	methodEstablished = "established" // UDP: the second packet, which crosses no dispatch rules
)

// traverseFlows measures new flows of a client pod to pods that answer, in separate namespaces: probe method flow. The
// client's thread is pinned, as in MeasureTraversal. The kernel alone answers a handshake. Another process answers an
// echo, and the switch to it is part of the time. Position 0 is a pod's own address, which no rule translates.
func (r *Probes) traverseFlows(ctx context.Context, p *scenarios.Probe) error {
	if err := r.Flows.StartPods(ctx); err != nil {
		return err
	}
	if len(p.Kinds) > 0 {
		r.Messages.Send(pass.Message{Note: "probe method flow measures positions only: it skips kinds"})
	}
	for _, family := range r.Families {
		targets, err := r.flowTargets(family, p.Positions, corev1.ProtocolTCP, corev1.ProtocolUDP)
		if err != nil {
			return err
		}
		probe := &flowProbe{targets: targets, samples: p.Samples, random: r.Random(purposeFlowProbe), family: family}
		for _, addr := range r.Flows.Clients {
			if inet.FamilyOf(addr) == family {
				probe.clients = append(probe.clients, addr)
			}
		}
		if p.Trace && r.Rep == 1 {
			if err := r.trace(ctx, family, targets, probe.clients); err != nil {
				return err
			}
		}
		if err := r.measureFlows(ctx, probe); err != nil {
			return fmt.Errorf("probe %s: %w", family, err)
		}
	}
	return nil
}

// measureFlows measures one protocol after the other, since they need the pods' process on different CPUs. It answers an
// echo on the client's own CPU: a wake-up of another CPU takes as long as the echo, or not, depending on what this CPU
// did before. It stays away from handshakes, which the kernel answers: its accept would delay the client.
func (r *Probes) measureFlows(ctx context.Context, probe *flowProbe) error {
	cpus, err := machine.CPUs()
	if err != nil {
		return err
	}
	own, others := cpus[len(cpus)-1:], cpus[:len(cpus)-1]
	if len(others) == 0 {
		others = own
	}
	all := probe.targets
	for _, turn := range []struct {
		protocol corev1.Protocol
		pods     []int
	}{{corev1.ProtocolTCP, others}, {corev1.ProtocolUDP, own}} {
		probe.targets = slices.DeleteFunc(slices.Clone(all), func(t flowTarget) bool { return t.protocol != turn.protocol })
		if len(probe.targets) == 0 {
			continue
		}
		if err := r.Flows.Place(turn.pods); err != nil {
			return err
		}
		err := probe.measure(ctx, r.Flows.Rooms.Client, func(t *flowTarget, method string, d time.Duration) {
			r.Record(raw.Record{
				Metric: raw.FirstPacket, Value: d.Seconds(), Family: string(probe.family), Position: &t.position,
				Method: method, Protocol: string(t.protocol),
			})
		})
		if err != nil {
			return err
		}
	}
	return r.Flows.Place(cpus)
}

// flowTarget is one destination of a flow probe.
type flowTarget struct {
	position int
	protocol corev1.Protocol
	addr     netip.AddrPort
	to       sockaddr
}

// flowTargets picks Services of each protocol at positions from first to last in equal steps, and a pod.
func (r *Probes) flowTargets(family corev1.IPFamily, positions int, protocols ...corev1.Protocol) ([]flowTarget, error) {
	frontends, rules, err := r.Dispatch(family)
	if err != nil {
		return nil, err
	}
	pod, ok := r.anyPod(family)
	if !ok {
		return nil, fmt.Errorf("no %s endpoint exists", family)
	}
	var targets []flowTarget
	for _, protocol := range protocols {
		able := slices.DeleteFunc(slices.Clone(frontends), func(f iptables.Frontend) bool { return f.Protocol != protocol })
		if len(able) == 0 {
			r.Messages.Send(pass.Message{Note: fmt.Sprintf("probe: no %s Service of %s has endpoints", protocol, family)})
			continue
		}
		targets = append(targets, flowTarget{0, protocol, pod, sockaddrOf(pod)})
		for i := range positions {
			near := pass.Nearest(able, 1+i*(rules-1)/max(positions-1, 1))
			if targets[len(targets)-1].position != near.Position {
				targets = append(targets, flowTarget{near.Position, protocol, near.Addr, sockaddrOf(near.Addr)})
			}
		}
	}
	return targets, nil
}

// anyPod returns an endpoint's address and port.
func (r *Probes) anyPod(family corev1.IPFamily) (netip.AddrPort, bool) {
	for _, slice := range r.World.Objects().Slices {
		for _, ep := range slice.Endpoints {
			for _, port := range slice.Ports {
				addr, ok := inet.ParseAddr(ep.Addresses[0])
				if ok && inet.FamilyOf(addr) == family && port.Port != nil {
					return netip.AddrPortFrom(addr, uint16(*port.Port)), true
				}
			}
		}
	}
	return netip.AddrPort{}, false
}

// flowProbe is one measurement, in one thread.
type flowProbe struct {
	targets []flowTarget
	samples int
	random  *rand.Rand
	family  corev1.IPFamily
	clients []netip.Addr
	flows   int // so far: source addresses and ports follow from it
}

// flowBatch is the number of flows between two chances for garbage collection; flowPatience is the timeout of an answer.
const (
	flowBatch    = 100
	flowWarmUp   = 50
	flowPatience = time.Second
)

// round is the duration of one flow, in ns.
type round struct{ first, second int64 }

func (p *flowProbe) measure(ctx context.Context, client *netns.Namespace, emit func(*flowTarget, string, time.Duration)) error {
	schedule := make([]int, 0, len(p.targets)*p.samples)
	for i := range p.targets {
		schedule = append(schedule, slices.Repeat([]int{i}, p.samples)...)
	}
	p.random.Shuffle(len(schedule), func(i, j int) { schedule[i], schedule[j] = schedule[j], schedule[i] })
	warm := make([]int, flowWarmUp)
	for i := range warm {
		warm[i] = i % len(p.targets)
	}
	return client.Do(func() error {
		release, err := pin()
		if err != nil {
			return err
		}
		defer release()
		if _, err := p.batch(warm); err != nil {
			return err
		}
		for todo := range slices.Chunk(schedule, flowBatch) {
			if err := ctx.Err(); err != nil {
				return err
			}
			rounds, err := p.batch(todo)
			if err != nil {
				return err
			}
			for i, t := range todo {
				target := &p.targets[t]
				if target.protocol == corev1.ProtocolTCP {
					emit(target, methodHandshake, time.Duration(rounds[i].first))
					continue
				}
				emit(target, methodEcho, time.Duration(rounds[i].first))
				emit(target, methodEstablished, time.Duration(rounds[i].second))
			}
		}
		return nil
	})
}

func (p *flowProbe) batch(todo []int) ([]round, error) {
	rounds := make([]round, len(todo))
	defer quiet()()
	for i, t := range todo {
		target := &p.targets[t]
		flow := p.echo
		if target.protocol == corev1.ProtocolTCP {
			flow = p.handshake
		}
		var err error
		if rounds[i], err = flow(target); err != nil {
			return nil, fmt.Errorf("%s flow to %s (position %d): %w", target.protocol, target.addr, target.position, err)
		}
	}
	return rounds, nil
}

// socket returns a socket with a source address and port that no earlier flow had.
func (p *flowProbe) socket(kind int) (int, error) {
	domain := unix.AF_INET
	if p.family == corev1.IPv6Protocol {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	for range lastPort - firstPort {
		addr, port := p.clients[p.flows%len(p.clients)], lastPort-1-p.flows/len(p.clients)%(lastPort-firstPort)
		p.flows++
		if err = unix.Bind(fd, sockaddrFrom(domain, addr, uint16(port))); !errors.Is(err, unix.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("source port: %w", err)
	}
	return fd, nil
}

// handshake returns how long it takes to establish a connection.
func (p *flowProbe) handshake(t *flowTarget) (round, error) {
	fd, err := p.socket(unix.SOCK_STREAM | unix.SOCK_NONBLOCK)
	if err != nil {
		return round{}, err
	}
	defer unix.Close(fd)
	// Close with a reset, so that neither end keeps state.
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
		return round{}, err
	}
	wait := unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	patience := unix.NsecToTimespec(int64(flowPatience))
	before := machine.RawClock()
	_, _, errno := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&t.to.raw)), t.to.length)
	ready := uintptr(1)
	if errno == unix.EINPROGRESS {
		ready, _, errno = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&wait)), 1, uintptr(unsafe.Pointer(&patience)), 0, 0, 0)
	}
	took := machine.RawClock() - before
	switch {
	case errno != 0:
		return round{}, errno
	case ready == 0:
		return round{}, fmt.Errorf("no answer within %v", flowPatience)
	}
	if failed, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR); err != nil || failed != 0 {
		return round{}, errors.Join(err, unix.Errno(failed))
	}
	return round{first: took}, nil
}

// echo returns the round-trip times of a flow's first and second packet.
func (p *flowProbe) echo(t *flowTarget) (round, error) {
	fd, err := p.socket(unix.SOCK_DGRAM)
	if err != nil {
		return round{}, err
	}
	defer unix.Close(fd)
	patience := unix.NsecToTimeval(int64(flowPatience))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience); err != nil {
		return round{}, err
	}
	var took [2]int64
	for i := range took {
		var question, answer [32]byte
		before := machine.RawClock()
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&question)), 8, 0,
			uintptr(unsafe.Pointer(&t.to.raw)), t.to.length)
		if errno == 0 {
			_, _, errno = unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&answer)), uintptr(len(answer)), 0, 0, 0)
		}
		took[i] = machine.RawClock() - before
		if errno != 0 {
			return round{}, fmt.Errorf("packet %d: %w", i+1, errno)
		}
	}
	return round{took[0], took[1]}, nil
}
