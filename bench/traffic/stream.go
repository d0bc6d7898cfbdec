package traffic

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/internal/inet"
)

// stream is the open loop: one thread in the clients' namespace.
type stream struct {
	Stream
	clock  monotonic
	tell   func(Result)
	epoll  int
	timer  int
	wake   int // eventfd, of a Sampler
	random *rand.Rand

	began   int64
	made    int    // number of flows of Rate
	asked   uint64 // number of new flows
	round   []int  // of targets, in sending order
	sources map[corev1.IPFamily]*sourcePorts
	open    map[int]*flow // by descriptor
	waiting [2][]*flow    // in order of deadline: UDP, TCP
	held    []*longLivedFlow
	// controlled has the time of the last control flow.
	controlled map[controlKind]int64
	heldBy     map[int]*longLivedFlow
	ending     atomic.Bool

	inbox inbox
	rest  int // number of Targets in a round: those from the start
	focus []focused
	turns int   // turns through focus
	next  int64 // scheduled time of the next flow of Focus
	// unanswered are a Sampler's flows by target, oldest first, until ready drops those that are over.
	unanswered map[int][]*flow
}

// A target of a Sampler gets its next flow after 1/patience of the time that its oldest flow has waited for an answer. At a
// constant rate, a busy machine's queues would grow until no flow is answered in time.
const patience = 8

// inbox has the parent's messages for the running stream.
type inbox struct {
	mu    sync.Mutex
	add   []Target
	focus []int
	seen  []int
	wants []want // of a Sampler
}

// controlKind are the flows that a control flow can excuse.
type controlKind struct {
	family   corev1.IPFamily
	protocol corev1.Protocol
}

// focused is a target that has just changed; until is the end of its focus.
type focused struct {
	target int
	until  int64
}

// If targets changed in the last focusFor, flows go to the last focusMost of them: Focus a second, or every second flow. They go
// to more if each of these gets focusEach flows a second.
// Among thousands of Services, a random sample would hardly ever observe a change.
const (
	focusMost = 10
	focusEach = 100
	focusFor  = 5 * time.Second
	// focusAfter: flows of Focus go on for a while after the tables have shown a change, as packets may see it later.
	focusAfter = 100 * time.Millisecond
)

// flow is a new flow that has not ended.
type flow struct {
	fd     int
	result Result
	over   bool
	limit  int64
}

func newStream(o Stream, clock monotonic, tell func(Result)) (*stream, error) {
	s := &stream{
		Stream: o, clock: clock, tell: tell, random: rand.New(rand.NewPCG(o.Seed, 0)),
		rest: len(o.Targets), sources: map[corev1.IPFamily]*sourcePorts{}, open: map[int]*flow{}, heldBy: map[int]*longLivedFlow{},
		controlled: map[controlKind]int64{}, unanswered: map[int][]*flow{},
	}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	if s.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("timer: %w", err)
	}
	if err := s.watch(s.timer); err != nil {
		return nil, err
	}
	byFamily := map[corev1.IPFamily][]netip.Addr{}
	for _, addr := range o.Clients {
		family := inet.FamilyOf(addr)
		byFamily[family] = append(byFamily[family], addr)
	}
	holder := map[corev1.IPFamily]*sourcePorts{}
	for family, addrs := range byFamily {
		last := len(addrs) - 1
		if last < 1 {
			return nil, fmt.Errorf("%d clients of %s: want 2 at least", len(addrs), family)
		}
		s.sources[family], holder[family] = &sourcePorts{addrs: addrs[:last]}, &sourcePorts{addrs: addrs[last:]}
	}
	s.holdFlows(holder)
	return s, nil
}

func (s *stream) watch(fd int) error {
	return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(fd)})
}

// end stops the stream: no more flows start, and run returns when the open flows are over.
func (s *stream) end() { s.ending.Store(true) }

// run sends until end is called.
func (s *stream) run() error {
	defer s.close()
	var events [64]unix.EpollEvent
	s.began = s.clock.now()
	s.startHeld()
	for {
		now := s.clock.now()
		ending := s.ending.Load()
		s.listen(now)
		if !ending {
			for due := s.due(); due <= now; due = s.due() {
				if err := s.begin(due, s.pick()); err != nil {
					return err
				}
			}
			for ; s.focused() && s.next <= now; s.next += int64(float64(time.Second) / s.Focus) {
				target, ready := s.inFocus(s.clock.now())
				if !ready {
					continue
				}
				if err := s.begin(s.next, target); err != nil {
					return err
				}
			}
			s.tickHeld(s.clock.now())
		}
		s.expire(s.clock.now())
		if ending && (len(s.open) == 0 || s.sampled) {
			return nil
		}
		if err := s.arm(ending); err != nil {
			return err
		}
		// All that has arrived is read before more is sent.
		for n, wait := len(events), -1; n == len(events); wait = 0 {
			var err error
			if n, err = unix.EpollWait(s.epoll, events[:], wait); err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("stream: %w", err)
			}
			for i := range max(n, 0) {
				s.happened(int(events[i].Fd))
			}
		}
	}
}

// happened reads what has arrived on a descriptor.
func (s *stream) happened(fd int) {
	if fd == s.timer || s.sampled && fd == s.wake {
		var count [8]byte
		_, _ = unix.Read(fd, count[:])
	} else if h := s.heldBy[fd]; h != nil {
		s.hear(h)
	} else if f := s.open[fd]; f != nil {
		s.answer(f)
	}
}

// due returns the scheduled time of the next flow.
func (s *stream) due() int64 {
	if s.Rate == 0 {
		return math.MaxInt64
	}
	return s.began + int64(float64(s.made)/s.Rate*float64(time.Second))
}

// heartbeat is the longest sleep of the stream, so that it notices end.
const heartbeat = int64(50 * time.Millisecond)

// arm sets the timer to the next event.
func (s *stream) arm(ending bool) error {
	next := s.clock.now() + heartbeat
	if !ending {
		next = min(next, s.due(), s.nextHeld())
		if s.focused() {
			next = min(next, s.next)
		}
	}
	for _, queue := range s.waiting {
		if len(queue) > 0 {
			next = min(next, queue[0].limit)
		}
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(max(next, 1))}
	if err := unix.TimerfdSettime(s.timer, unix.TFD_TIMER_ABSTIME, &at, nil); err != nil {
		return fmt.Errorf("timer: %w", err)
	}
	return nil
}

// put adds targets to the stream, numbers of targets that are about to change, and of those that have changed.
func (b *inbox) put(add []Target, focus, seen []int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add = append(b.add, add...)
	b.focus = append(b.focus, focus...)
	b.seen = append(b.seen, seen...)
}

// listen processes the inbox.
func (s *stream) listen(now int64) {
	s.inbox.mu.Lock()
	defer s.inbox.mu.Unlock()
	if len(s.focus) == 0 {
		s.next = now
	}
	s.Targets = append(s.Targets, s.inbox.add...)
	if s.sampled {
		s.inbox.add = nil
		s.sample(now)
		return
	}
	for _, target := range s.inbox.focus {
		s.focus = slices.DeleteFunc(s.focus, func(f focused) bool { return f.target == target })
		s.focus = append(s.focus, focused{target, now + int64(focusFor)})
	}
	for i := range s.focus {
		if f := &s.focus[i]; s.Focus > 0 && slices.Contains(s.inbox.seen, f.target) {
			f.until = min(f.until, now+int64(focusAfter))
		}
	}
	s.inbox.add, s.inbox.focus, s.inbox.seen = nil, nil, nil
	s.focus = slices.DeleteFunc(s.focus, func(f focused) bool { return f.until <= now })
	s.focus = s.focus[max(len(s.focus)-max(focusMost, int(s.Focus)/focusEach), 0):]
}

// pick returns the next target: each once a round, in a new random order every round, alternating with targets in
// focus.
func (s *stream) pick() int {
	if s.made%2 == 1 && len(s.focus) > 0 && s.Focus == 0 {
		s.made++
		target, _ := s.inFocus(s.clock.now())
		return target
	}
	s.made++
	if len(s.round) == 0 {
		s.round = s.random.Perm(s.rest)
	}
	target := s.round[len(s.round)-1]
	s.round = s.round[:len(s.round)-1]
	return target
}

// focused reports whether flows of Focus are to be sent.
func (s *stream) focused() bool { return s.Focus > 0 && len(s.focus) > 0 }

// inFocus returns the next target in focus; false: the next ones wait for answers.
func (s *stream) inFocus(now int64) (target int, ready bool) {
	const most = 64 // of thousands, that wait after one flow each
	for range min(most, len(s.focus)) {
		s.turns++
		if target = s.focus[s.turns%len(s.focus)].target; s.ready(target, now) {
			return target, true
		}
	}
	return target, false
}

// ready reports whether a target may get another flow.
func (s *stream) ready(target int, now int64) bool {
	open := s.unanswered[target]
	for len(open) > 0 && open[0].over {
		open = open[1:]
	}
	if len(open) == 0 {
		delete(s.unanswered, target)
		return true
	}
	s.unanswered[target] = open
	return patience*(now-open[len(open)-1].result.Sent) >= now-open[0].result.Sent
}

// begin sends the first packet of a new flow to a target, right after that of its control flow.
func (s *stream) begin(due int64, index int) error {
	number := s.asked
	s.asked++
	target := &s.Targets[index]
	sources := s.sources[target.Family]
	if sources == nil {
		return fmt.Errorf("no client with an %s address to send from", target.Family)
	}
	if target.Direct.IsValid() && s.controls(target) {
		if err := s.send(&flow{result: Result{Target: index, Control: true, Due: due}}, target.Protocol, sources, target.Direct, number); err != nil {
			return err
		}
	}
	return s.send(&flow{result: Result{Target: index, Due: due}}, target.Protocol, sources, target.Addr, number)
}

// controlRate bounds the control flows a second of each family and protocol. A busy machine delays packets for much
// longer than the pause between two of them.
const controlRate = 100

// controls reports whether a control flow goes with the next flow to a target.
func (s *stream) controls(t *Target) bool {
	kind, now := controlKind{t.Family, t.Protocol}, s.clock.now()
	if last, sent := s.controlled[kind]; sent && now-last < int64(time.Second/controlRate) {
		return false
	}
	s.controlled[kind] = now
	return true
}

// send sends the first packet of a flow.
func (s *stream) send(f *flow, protocol corev1.Protocol, sources *sourcePorts, to netip.AddrPort, number uint64) error {
	f.result.Sent = s.clock.now()
	var err error
	for range 8 { // another socket may use the port
		f.fd, err = Dial(protocol, sources.take(), to)
		if !errors.Is(err, unix.EADDRINUSE) && !errors.Is(err, unix.EADDRNOTAVAIL) {
			break
		}
	}
	if err == nil && protocol == corev1.ProtocolUDP {
		if err = ask(f.fd, number); err != nil {
			unix.Close(f.fd)
		}
	}
	if err != nil {
		if !atOnce(err) {
			return fmt.Errorf("flow to %s: %w", to, err)
		}
		f.fd = -1
		s.finish(f, refusal(err, false))
		return nil
	}
	queue, limit := 0, udpLimit
	if protocol == corev1.ProtocolTCP {
		queue, limit = 1, tcpLimit
	}
	f.limit = f.result.Sent + int64(limit)
	s.open[f.fd] = f
	s.waiting[queue] = append(s.waiting[queue], f)
	if s.sampled {
		s.unanswered[f.result.Target] = append(s.unanswered[f.result.Target], f)
	}
	return s.watch(f.fd)
}

// atOnce reports whether an error of connect or send is an answer of the network.
func atOnce(err error) bool {
	answers := []error{unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.EACCES, unix.EPERM, unix.ECONNRESET}
	return slices.ContainsFunc(answers, func(answer error) bool { return errors.Is(err, answer) })
}

// answer reads the answer or the error of a new flow.
func (s *stream) answer(f *flow) {
	by, _, err := hear(f.fd)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return
	case err != nil:
		s.finish(f, refusal(err, errors.Is(err, unix.ECONNRESET) || errors.Is(err, errEnded)))
	default:
		f.result.By = by
		s.finish(f, Answered)
	}
}

func (s *stream) expire(now int64) {
	for i, queue := range s.waiting {
		for len(queue) > 0 && (queue[0].over || queue[0].limit <= now) {
			switch f := queue[0]; {
			case f.over:
			case now > f.limit+int64(lateWatch):
				s.finish(f, Unwatched)
			default:
				s.finish(f, TimedOut)
			}
			queue[0] = nil
			queue = queue[1:]
		}
		s.waiting[i] = queue
	}
}

func (s *stream) finish(f *flow, outcome string) {
	f.result.End, f.result.Outcome = s.clock.now(), outcome
	f.over = true
	if f.fd >= 0 {
		delete(s.open, f.fd)
		unix.Close(f.fd)
	}
	if outcome != TimedOut && outcome != Unwatched { // what was sent before it is lost, not late
		open := s.unanswered[f.result.Target]
		delete(s.unanswered, f.result.Target)
		if later := open[slices.Index(open, f)+1:]; len(later) > 0 {
			s.unanswered[f.result.Target] = later
		}
	}
	s.tell(f.result)
}

func (s *stream) close() {
	for fd := range s.open {
		unix.Close(fd)
	}
	for fd := range s.heldBy {
		unix.Close(fd)
	}
	unix.Close(s.timer)
	unix.Close(s.epoll)
}
