package visible

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"synclab/bench/mirror"
	"synclab/proxier/plan"
	"synclab/sim"
)

// Options of a Watcher. Zero values mean what the fields say.
type Options struct {
	// Clock; default the real one.
	Clock clock.WithTicker
	// Families to watch. Default IPv4.
	Families []corev1.IPFamily
	// Node that the subject runs on. Default "node-0", without a zone.
	Node plan.Node
	// Dialect by name; empty: whichever is found in the kernel.
	Dialect string
	// Reader replaces Dialect: for rules that this package does not know. Close closes it.
	Reader Dialect
	// Seen is told of each Sight, from one goroutine, which it holds up.
	Seen func(Sight)
	// Failed is called at most once, from that goroutine: when rules stay that this package cannot read, see Unrecognised.
	Failed func(error)
	// Period of polling while anything is pending, at most: what came just now is polled for more often. Default 1 ms: a
	// GETGEN or GET_INFO costs about a microsecond.
	Period time.Duration
}

func (o *Options) setDefaults() {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if len(o.Families) == 0 {
		o.Families = []corev1.IPFamily{corev1.IPv4Protocol}
	}
	if o.Node.Name == "" {
		o.Node.Name = "node-0"
	}
	if o.Seen == nil {
		o.Seen = func(Sight) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Period == 0 {
		o.Period = time.Millisecond
	}
}

func (o *Options) validate() error {
	for _, family := range o.Families {
		if family != corev1.IPv4Protocol && family != corev1.IPv6Protocol {
			return fmt.Errorf("family %q: want IPv4 or IPv6", family)
		}
	}
	if o.Period < 0 {
		return fmt.Errorf("period %v: want more than 0", o.Period)
	}
	return nil
}

// Watcher waits for changes to become visible. Its methods may be called from any goroutine.
type Watcher struct {
	opts    Options
	dialect Dialect
	watch                       // of the goroutine that looks
	sleep   func(time.Duration) // for periods that are too short for timers; nil: the clock is not the real one

	kick    chan struct{}
	asked   chan func()
	closing chan struct{}
	ended   chan struct{}

	mu      sync.Mutex
	cluster *mirror.Mirror
	ports   map[portKey]*port
	// pending ports in the order in which they became so; total of them since there were none.
	pending []*port
	total   int
	none    chan struct{} // closed when nothing is pending
	// force asks for a look although nothing moved; tool is when a tool ended last that may have committed.
	force     bool
	tool      time.Time
	quieters  int
	lastMoved time.Time
	err       error // of the last poll
	// unreadable is closed once a rule has stayed that cannot be read: unrecognised.
	unreadable   chan struct{}
	unrecognised *Unrecognised
}

// ErrClosed is why a closed Watcher waits no more.
var ErrClosed = errors.New("the watcher is closed")

// New begins to watch the network namespace of the calling thread. The caller closes it.
func New(opts Options) (*Watcher, error) {
	w, err := newWatcher(opts)
	if err != nil {
		return nil, fmt.Errorf("visible: %w", err)
	}
	go w.run()
	return w, nil
}

func newWatcher(opts Options) (*Watcher, error) {
	opts.setDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	w := &Watcher{
		opts: opts, dialect: opts.Reader,
		kick: make(chan struct{}, 1), asked: make(chan func()), closing: make(chan struct{}), ended: make(chan struct{}),
		cluster: mirror.New(opts.Node, opts.Families...), ports: map[portKey]*port{},
		none: make(chan struct{}), unreadable: make(chan struct{}),
	}
	close(w.none)
	if _, real := opts.Clock.(clock.RealClock); real {
		w.sleep = nanosleep
	}
	if w.dialect == nil {
		var err error
		if w.dialect, err = NewDialect(opts.Dialect, opts.Families); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Close stops watching. What is pending then is never reported.
func (w *Watcher) Close() {
	close(w.closing)
	<-w.ended
	w.dialect.Close()
}

// Changed takes a change that is about to be made: calls come in the order in which changes are made, before the
// subject can know of them. Services and EndpointSlices are taken, and of the subject's own Node the zone. due is when the change
// was meant to be made; without it, as for the first state of a cluster, it is waited for but not reported. The answer
// says whether it is waited for: a change that alters no port's endpoints is not. Objects must not change any more.
func (w *Watcher) Changed(op sim.Op, object runtime.Object, due time.Time) (awaited bool) {
	now := w.opts.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	places, _ := w.dialect.(placed)
	changes := map[corev1.IPFamily]*change{} // made when the first port of a family needs one
	for _, about := range w.cluster.Changed(op, object, now) {
		if places != nil {
			places.place(about.Family, about.Name, about.After)
		}
		key, to := portKey{about.Family, about.Name}, wanted(about.After)
		p := w.ports[key]
		if p == nil && to.empty() || p != nil && p.tail().equal(to) {
			continue
		}
		if p == nil {
			p = &port{portKey: key}
			w.ports[key] = p
		}
		if changes[about.Family] == nil {
			changes[about.Family] = &change{made: now, sight: Sight{Due: due, Family: about.Family, Service: mirror.ServiceOf(object), Op: op, Object: object}}
		}
		w.await(p, to, changes[about.Family])
	}
	if len(changes) > 0 {
		w.wake()
	}
	return len(changes) > 0
}

// await puts a state into a port's queue.
func (w *Watcher) await(p *port, to want, by *change) {
	if len(w.pending) == 0 {
		w.total, w.none = 0, make(chan struct{})
	}
	if len(p.queue) == 0 {
		w.pending = append(w.pending, p)
		w.total++
	}
	now := w.opts.Clock.Now()
	if by != nil {
		now = by.made
	}
	if p.push(to, by, now) {
		w.force = true
	}
}

// ToolEnded tells that a tool of the subject ended which may have committed something, at a time: where commits may
// leave the generation as it was (iptables-legacy), a look follows. What was not visible before then is as of then.
func (w *Watcher) ToolEnded(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tool = at
	w.wake()
}

// Recheck awaits all ports again, without a due time: after somebody else changed the rules.
func (w *Watcher) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.ports {
		if len(p.queue) == 0 {
			w.await(p, p.shown, nil)
		}
	}
	w.force = true
	w.wake()
}

// Pending is the number of ports that are waited for.
func (w *Watcher) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.pending)
}

// PendingSince is the number of ports that have not come to all that they should have come to by changes, or a Recheck, of
// a moment and before.
func (w *Watcher) PendingSince(moment time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, p := range w.pending {
		if len(p.queue) > 0 && !p.queue[0].asked.After(moment) {
			n++
		}
	}
	return n
}

// Progress is how many ports, of those waited for since nothing was pending last, have come to what they should.
func (w *Watcher) Progress() (visible, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total - len(w.pending), w.total
}

// wake makes the goroutine that looks do so at once.
func (w *Watcher) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// forget drops what is no longer pending, and ports that are gone.
func (w *Watcher) forget() {
	if len(w.pending) == 0 {
		return
	}
	w.pending = slices.DeleteFunc(w.pending, func(p *port) bool {
		if len(p.queue) > 0 {
			return false
		}
		p.saw = nil
		if p.shown.empty() {
			delete(w.ports, p.portKey)
		}
		return true
	})
	if len(w.pending) == 0 {
		close(w.none)
	}
}
