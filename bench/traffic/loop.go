package traffic

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
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
	Most    int           // connections of each client; 0: no limit
	// Bulk: each client makes a single connection, and sends as much as the other end takes.
	Bulk bool
}

// Looped is what a Loop did.
type Looped struct {
	Connections int                    // completed
	By          map[netip.AddrPort]int // connections by the endpoint that answered
	Bytes       int64                  // that the other end has read, of a Bulk
	Took        time.Duration          // from the begin until the last client has ended
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
	l := &looper{Loop: o, clock: clock, ports: sourcePorts{addrs: o.From, next: rand.IntN(1 << 20)}, done: Looped{By: map[netip.AddrPort]int{}}}
	apart, err := l.softirqsApart()
	if _, readable := threadClock(responder); err == nil && readable != nil {
		err = fmt.Errorf("CPU time of the responder's thread: %w", readable)
	}
	if err != nil {
		return Looped{}, err
	}
	before := spent(responder, apart)
	var group errgroup.Group
	began := clock.now()
	for range o.Clients {
		group.Go(func() error { return onClient(func() error { return l.client(began) }) })
	}
	err = group.Wait()
	l.done.Took = time.Duration(clock.now() - began)
	l.done.CPU += spent(responder, apart) - before
	return l.done, err
}

// client is one thread of the loop.
func (l *looper) client(began int64) error {
	before := threadTime(0)
	each := l.connection
	if l.Bulk {
		each = l.bulk
	}
	n, sent, answers := 0, int64(0), map[netip.AddrPort]int{}
	until := began + int64(l.For)
	for more := true; more; more = !l.Bulk && l.clock.now() < until && (l.Most == 0 || n < l.Most) { // at least one, on a busy machine too
		by, bytes, err := each(uint64(n), until)
		if err != nil {
			return fmt.Errorf("connection to %s: %w", l.To, err)
		}
		n, sent = n+1, sent+bytes
		answers[by]++
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for by, answered := range answers {
		l.done.By[by] += answered
	}
	l.done.Connections, l.done.Bytes, l.done.CPU = l.done.Connections+n, l.done.Bytes+sent, l.done.CPU+threadTime(0)-before
	return nil
}

// open returns a connection whose endpoint, by, has answered.
func (l *looper) open() (fd int, by netip.AddrPort, err error) {
	for range 8 { // another socket may use the port
		l.mu.Lock()
		from := l.ports.take()
		l.mu.Unlock()
		fd, err = Dial(corev1.ProtocolTCP, from, l.To)
		if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL) {
			continue
		}
		if err == nil {
			if by, _, err = await(fd); err != nil {
				unix.Close(fd)
			}
		}
		return fd, by, err
	}
	return -1, by, unix.EADDRINUSE
}

func (l *looper) connection(number uint64, _ int64) (by netip.AddrPort, _ int64, err error) {
	fd, by, err := l.open()
	if err != nil {
		return by, 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd, number); err != nil {
		return by, 0, err
	}
	_, answered, err := await(fd)
	if err == nil && answered != number {
		err = fmt.Errorf("question %d has the answer of question %d", number, answered)
	}
	return by, 0, err
}

// bulk sends until a time, then waits until the other end has read everything and closes.
func (l *looper) bulk(_ uint64, until int64) (by netip.AddrPort, sent int64, err error) {
	fd, by, err := l.open()
	if err != nil {
		return by, 0, err
	}
	defer unix.Close(fd)
	if err := ask(fd, sink); err != nil {
		return by, 0, err
	}
	block := make([]byte, 1<<17)
	for l.clock.now() < until {
		n, err := unix.Write(fd, block)
		if errors.Is(err, unix.EAGAIN) {
			n, err = 0, poll(fd, unix.POLLOUT)
		}
		if err != nil {
			return by, 0, err
		}
		sent += int64(n)
	}
	if err := unix.Shutdown(fd, unix.SHUT_WR); err != nil {
		return by, 0, err
	}
	if _, _, err := await(fd); !errors.Is(err, errEnded) {
		return by, 0, fmt.Errorf("end of %d bytes: %w", sent, err)
	}
	return by, sent, nil
}

// await reads the next answer.
func await(fd int) (by netip.AddrPort, question uint64, err error) {
	if err := poll(fd, unix.POLLIN); err != nil {
		return by, 0, err
	}
	return hear(fd)
}

func poll(fd int, events int16) error {
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: events}}, int(loopPatience/time.Millisecond))
		if err == nil && n == 0 {
			err = unix.ETIMEDOUT
		}
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// spent returns the CPU time so far that is not the clients'.
func spent(responder int, apart bool) time.Duration {
	if apart {
		return threadTime(responder) + softirqTime()
	}
	return threadTime(responder)
}

// softirqsApart reports whether the kernel keeps the time of soft interrupts out of the time of the thread that they
// interrupt. To open a connection takes hardly any other time, so that the thread's time is far below the clock's in each.
func (l *looper) softirqsApart() (apart bool, err error) {
	apart = true
	err = onClient(func() error {
		for range 50 {
			began, before := l.clock.now(), threadTime(0)
			fd, err := Dial(corev1.ProtocolTCP, l.ports.take(), l.To)
			used, took := threadTime(0)-before, time.Duration(l.clock.now()-began)
			switch {
			case err == nil:
				unix.Close(fd)
				apart = apart && float64(used) < 0.7*float64(took)
			case !errors.Is(err, unix.EADDRINUSE):
				return fmt.Errorf("connection to %s: %w", l.To, err)
			}
		}
		return nil
	})
	return apart, err
}

// threadTime returns the user and system time of a thread of this process; thread 0: the calling one. It may be 0 for some
// ms where the kernel counts in ticks, as User-mode Linux does.
func threadTime(thread int) time.Duration {
	t, _ := threadClock(thread)
	return t
}

// threadClock is threadTime with an error, of a thread that is not there.
func threadClock(thread int) (time.Duration, error) {
	clock := int32(unix.CLOCK_THREAD_CPUTIME_ID)
	if thread != 0 {
		const perThread, scheduler = 4, 2 // CPUCLOCK_PERTHREAD_MASK and CPUCLOCK_SCHED; see pthread_getcpuclockid(3)
		clock = int32(^thread<<3 | perThread | scheduler)
	}
	var t unix.Timespec
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// softirqTime returns the machine's time in soft interrupts so far, in ticks of 10 ms.
func softirqTime() time.Duration {
	var cpu string
	var user, nice, system, idle, iowait, irq, softirq time.Duration
	text, _ := os.ReadFile("/proc/stat") // always there; see proc_stat(5)
	_, _ = fmt.Sscan(string(text), &cpu, &user, &nice, &system, &idle, &iowait, &irq, &softirq)
	return softirq * 10 * time.Millisecond
}
