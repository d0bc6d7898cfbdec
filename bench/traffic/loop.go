package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Loop is a closed loop: each client makes one TCP connection after the other, and begins the next one as soon as the last
// is closed. In each it reads the endpoint's identity, asks a question, reads the answer, and closes with a reset: neither
// end is left in TIME_WAIT. Source ports differ until all were used.
type Loop struct {
	To      netip.AddrPort
	From    []netip.Addr  // source addresses
	Clients int           // threads at once
	For     time.Duration // connections that are open then are still completed
	// Bulk: each client makes a single connection, and sends as much as the other end takes.
	Bulk bool
}

// Looped is what a Loop did.
type Looped struct {
	Connections int           // completed
	Bytes       int64         // that the other end has read, of a Bulk
	Took        time.Duration // from the begin until the last client has ended
	// CPU is the user and system time of the clients' threads and of the responder's. It includes the packets' way through
	// the node's rules: veth devices hand a packet on in a soft interrupt of the thread that sends it. Kernels with
	// CONFIG_IRQ_TIME_ACCOUNTING keep soft interrupts out of threads' times; then the machine's time in them is added, in
	// ticks. What the kernel moves to its ksoftirqd threads is missing, and so is a subject that forwards bytes itself.
	CPU    time.Duration
	Failed string // why it ended early
}

// sink is the question after which the responder reads and forgets all that comes.
const sink = 1<<64 - 1

// loopPatience is the timeout of each packet of a Loop.
const loopPatience = 5 * time.Second

// looper is a Loop that runs, in the clients' namespace.
type looper struct {
	Loop
	clock monotonic
	mu    sync.Mutex
	ports sourcePorts
	done  Looped
}

func (o Loop) run(clock monotonic, responder int) (Looped, error) {
	l := &looper{Loop: o, clock: clock, ports: sourcePorts{addrs: o.From, next: rand.IntN(1 << 20)}}
	apart, err := l.softirqsApart()
	if err != nil {
		return Looped{}, err
	}
	before, err := l.others(responder, apart)
	if err != nil {
		return Looped{}, err
	}
	var group errgroup.Group
	began := clock.now()
	for range o.Clients {
		group.Go(func() error { return onClient(func() error { return l.client(began) }) })
	}
	err = group.Wait()
	l.done.Took = time.Duration(clock.now() - began)
	after, err2 := l.others(responder, apart)
	l.done.CPU += after - before
	return l.done, errors.Join(err, err2)
}

// client is one thread of the loop.
func (l *looper) client(began int64) error {
	before, err := threadTime(0)
	if err != nil {
		return err
	}
	each := l.connection
	if l.Bulk {
		each = l.bulk
	}
	n, sent := 0, int64(0)
	for until := began + int64(l.For); l.clock.now() < until && (n == 0 || !l.Bulk); n++ {
		bytes, err := each(uint64(n), until)
		if err != nil {
			return fmt.Errorf("connection to %s: %w", l.To, err)
		}
		sent += bytes
	}
	after, err := threadTime(0)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done.Connections, l.done.Bytes, l.done.CPU = l.done.Connections+n, l.done.Bytes+sent, l.done.CPU+after-before
	return err
}

// open returns a connection whose endpoint has answered.
func (l *looper) open() (int, error) {
	for range 8 { // another socket may use the port
		l.mu.Lock()
		from := l.ports.take()
		l.mu.Unlock()
		fd, err := dial(corev1.ProtocolTCP, from, l.To)
		if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) {
			continue
		}
		if err == nil {
			if _, err = await(fd); err != nil {
				unix.Close(fd)
			}
		}
		return fd, err
	}
	return -1, unix.EADDRINUSE
}

func (l *looper) connection(number uint64, _ int64) (int64, error) {
	fd, err := l.open()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd, number); err != nil {
		return 0, err
	}
	answered, err := await(fd)
	if err == nil && answered != number {
		err = fmt.Errorf("question %d has the answer of question %d", number, answered)
	}
	return 0, err
}

// bulk sends until a time, then waits until the other end has read everything and closes.
func (l *looper) bulk(_ uint64, until int64) (sent int64, err error) {
	fd, err := l.open()
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd, sink); err != nil {
		return 0, err
	}
	block := make([]byte, 1<<17)
	for l.clock.now() < until {
		n, err := unix.Write(fd, block)
		if errors.Is(err, unix.EAGAIN) {
			n, err = 0, poll(fd, unix.POLLOUT)
		}
		if err != nil {
			return 0, err
		}
		sent += int64(n)
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		return 0, err
	}
	if _, err := await(fd); !errors.Is(err, errEnded) {
		return 0, fmt.Errorf("end of %d bytes: %w", sent, err)
	}
	return sent, nil
}

// await reads the next answer.
func await(fd int) (question uint64, err error) {
	if err := poll(fd, unix.POLLIN); err != nil {
		return 0, err
	}
	_, question, err = hear(fd)
	return question, err
}

func poll(fd int, events int16) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(loopPatience/time.Millisecond))
		switch {
		case errors.Is(err, unix.EINTR):
		case err == nil && n == 0:
			return unix.ETIMEDOUT
		default:
			return err
		}
	}
}

// others returns the CPU time so far that is not the clients'.
func (l *looper) others(responder int, apart bool) (time.Duration, error) {
	spent, err := threadTime(responder)
	if err != nil || !apart {
		return spent, err
	}
	soft, err := softirqTime()
	return spent + soft, err
}

// softirqsApart reports whether the kernel keeps the time of soft interrupts out of the time of the thread that they
// interrupt. To open a connection takes hardly any other time, so that the thread's time is far below the clock's in each.
func (l *looper) softirqsApart() (apart bool, err error) {
	apart = true
	err = onClient(func() error {
		for range 50 {
			began := l.clock.now()
			before, err := threadTime(0)
			if err != nil {
				return err
			}
			fd, err := dial(corev1.ProtocolTCP, l.ports.take(), l.To)
			if errors.Is(err, unix.EADDRINUSE) {
				continue
			}
			if err != nil {
				return fmt.Errorf("connection to %s: %w", l.To, err)
			}
			after, err := threadTime(0)
			took := time.Duration(l.clock.now() - began)
			unix.Close(fd)
			if err != nil {
				return err
			}
			apart = apart && float64(after-before) < 0.7*float64(took)
		}
		return nil
	})
	return apart, err
}

// threadTime returns the user and system time of a thread of this process; 0: of the calling one.
func threadTime(thread int) (time.Duration, error) {
	clock := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if thread != 0 {
		const perThread, scheduler = 4, 2 // CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED; see pthread_getcpuclockid(3)
		clock = int32(^thread<<3 | perThread | scheduler)
	}
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("CPU time of a thread: %w", err)
	}
	return time.Duration(t.Nano()), nil
}

// softirqTime returns the machine's time in soft interrupts so far, in ticks of 10 ms.
func softirqTime() (time.Duration, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) < 8 {
		return 0, fmt.Errorf("/proc/stat: %q: no time of soft interrupts", line)
	}
	ticks, err := strconv.ParseInt(fields[7], 10, 64)
	return time.Duration(ticks) * 10 * time.Millisecond, err
}
