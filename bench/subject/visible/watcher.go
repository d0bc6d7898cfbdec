package visible

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"

	"synclab/bench/mirror"
	"synclab/proxier/plan"
)

// Options of a Watcher. The fields document the meaning of zero values.
type Options struct {
	// Clock; default the real one.
	Clock clock.WithTicker
	// Families to watch. Default: IPv4.
	Families []corev1.IPFamily
	// Node of the subject. Default: "node-0", without a zone.
	Node plan.Node
	// RulesetReader is the reader's name; empty means that it is detected.
	RulesetReader string
	// EndpointLog is the file of RulesetReader Userspace; the reader makes it if necessary.
	EndpointLog string
	// Packets, if set, show the state of a detected reader if no reader knows the subject's rules.
	Packets *PacketOptions
	// Reader replaces RulesetReader, for rules that this package does not know. Close closes it.
	Reader RulesetReader
	// Seen receives each VisibleChange, on one goroutine, which waits for it.
	Seen func(VisibleChange)
	// Failed is called at most once, on that goroutine, if rules stay that this package cannot read: see Unrecognised.
	Failed func(error)
	// Period is the longest poll period while anything is pending; new changes are polled for more often. Default 1 ms:
	// a GETGEN or GET_INFO costs about a microsecond.
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
		o.Seen = func(VisibleChange) {}
	}
	if o.Failed == nil {
		o.Failed = func(error) {}
	}
	if o.Period == 0 {
		o.Period = time.Millisecond
	}
}

// Watcher waits for changes to become visible. It is safe for concurrent use.
type Watcher struct {
	opts   Options
	reader RulesetReader
	watch                      // of the reading goroutine
	sleep  func(time.Duration) // for periods too short for timers; nil if the clock is not the real one

	kick    chan struct{}
	asked   chan func()
	closing chan struct{}
	ended   chan struct{}

	mu      sync.Mutex
	cluster *mirror.Mirror
	ports   map[portKey]*port
	// listed are the pending ports in the order in which they became pending, and arrived ports that forget has not
	// removed yet: of these there are settled. total counts the pending ports since nothing was pending.
	listed         []*port
	settled, total int
	none           chan struct{} // closed when nothing is pending
	// force requests a read although nothing moved. tool is when the last tool ended that may have committed.
	force     bool
	tool      time.Time
	quieters  int
	lastMoved time.Time
	err       error // of the last poll
	// unreadable is closed when an unreadable rule has stayed too long; unrecognised describes it.
	unreadable   chan struct{}
	unrecognised *Unrecognised
}

// ErrClosed is the error of waits on a closed Watcher.
var ErrClosed = errors.New("the watcher is closed")

// New starts watching the calling thread's network namespace. The caller must close the Watcher.
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
	w := &Watcher{
		opts: opts, reader: opts.Reader,
		kick: make(chan struct{}, 1), asked: make(chan func()), closing: make(chan struct{}), ended: make(chan struct{}),
		cluster: mirror.New(opts.Node, opts.Families...), ports: map[portKey]*port{},
		none: make(chan struct{}), unreadable: make(chan struct{}),
	}
	close(w.none)
	if _, real := opts.Clock.(clock.RealClock); real {
		w.sleep = nanosleep
	}
	if w.reader == nil {
		var err error
		if w.reader, err = opts.newReader(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

// Close stops watching. Pending changes are never reported.
func (w *Watcher) Close() {
	close(w.closing)
	<-w.ended
	w.reader.Close()
}

// Changed records a change that is about to be made. Call it in the order of the changes, before the subject can know of
// them. It uses Services, EndpointSlices, and the zone of the subject's Node. With a zero Due, as for a cluster's initial
// state, the change is awaited but not reported. Changed reports whether the change is awaited; a change that alters no
// port's endpoints is not. The caller must not modify objects.
func (w *Watcher) Changed(c mirror.Change) (awaited bool) {
	now := w.opts.Clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	places, _ := w.reader.(placed)
	changes := map[corev1.IPFamily]*change{} // made for the first changed port of a family
	for _, about := range w.cluster.Changed(c.Op, c.Object, now) {
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
			changes[about.Family] = &change{made: now, seen: VisibleChange{Change: c, Family: about.Family, Service: mirror.ServiceOf(c.Object)}}
		}
		w.await(p, to, changes[about.Family])
	}
	if len(changes) > 0 {
		w.wake()
	}
	return len(changes) > 0
}

// await appends a state to a port's queue.
func (w *Watcher) await(p *port, to want, by *change) {
	if w.pending() == 0 {
		w.total, w.none = 0, make(chan struct{})
	}
	if len(p.queue) == 0 {
		w.total++
		if p.listed {
			w.settled--
		} else {
			w.listed, p.listed = append(w.listed, p), true
		}
	}
	now := w.opts.Clock.Now()
	if by != nil {
		now = by.made
	}
	if p.push(to, by, now) {
		w.force = true
	}
}

// ToolEnded reports when a tool of the subject ended that may have committed. If commits may leave the generation
// unchanged (iptables-legacy), a read follows. States that were not visible before count as visible from then.
func (w *Watcher) ToolEnded(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tool = at
	w.wake()
}

// Recheck awaits all ports again, without a scheduled time, after another process changed the rules.
func (w *Watcher) Recheck() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r, ok := w.reader.(interface{ recheck() }); ok {
		r.recheck()
	}
	for _, p := range w.ports {
		if len(p.queue) == 0 {
			w.await(p, p.shown, nil)
		}
	}
	w.force = true
	w.wake()
}

// Pending returns the number of awaited ports.
func (w *Watcher) Pending() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pending()
}

func (w *Watcher) pending() int { return len(w.listed) - w.settled }

// PendingSince returns the number of ports that have not reached all states due to changes, or a Recheck, up to moment.
func (w *Watcher) PendingSince(moment time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, p := range w.listed {
		if len(p.queue) > 0 && !p.queue[0].asked.After(moment) {
			n++
		}
	}
	return n
}

// Progress returns how many of the ports awaited since nothing was pending have reached their state.
func (w *Watcher) Progress() (visible, total int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total - w.pending(), w.total
}

// wake makes the reading goroutine read at once.
func (w *Watcher) wake() {
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

// settle ends the wait for a port whose last state has arrived.
func (w *Watcher) settle(p *port) {
	w.settled++
	p.saw = nil
	if p.shown.empty() {
		delete(w.ports, p.portKey)
	}
	if w.pending() == 0 {
		close(w.none)
	}
}

// forget removes ports that are no longer pending from the list. A look does so once: it may end the wait for each of
// many ports.
func (w *Watcher) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.settled == 0 {
		return
	}
	w.listed = slices.DeleteFunc(w.listed, func(p *port) bool {
		p.listed = len(p.queue) > 0
		return !p.listed
	})
	w.settled = 0
}
