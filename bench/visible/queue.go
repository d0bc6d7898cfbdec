package visible

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"synclab/proxier/tracker"
	"synclab/sim"
)

// Sight is one change that became visible, in one family: in all ports of its Service whose endpoints it altered.
type Sight struct {
	Due, Visible time.Time
	// Since is set where nothing told of the commit and only reading showed it: then Visible is the end of that read, and
	// Since the latest moment when the kernel was known not to have it: the beginning of the read before, or when the
	// change was made.
	Since time.Time
	// Polled is when the number that moves with each commit was last seen before it moved: the commit came after it.
	Polled time.Time
	// Read is when the kernel had been read, at or after Visible: the latest moment from which packets meet the change. The two
	// lie apart where the look took long, and where a table was replaced during it by one of the same size.
	Read time.Time
	// Undone says that nothing had to be committed: before any look saw it, other changes brought back what the kernel
	// had. Visible says nothing about the subject then, and a sync that took the one and not yet the other may still write
	// both.
	Undone  bool
	Family  corev1.IPFamily
	Service types.NamespacedName // none: the Node's zone changed
	Op      sim.Op               // what was done to the Service, to the EndpointSlice or to the Node
	Object  runtime.Object       // the very one that Changed was told of
}

// Uncertainty is how much earlier than Visible the change may have been visible.
func (s Sight) Uncertainty() time.Duration {
	from := s.Since
	if from.IsZero() {
		from = s.Due
		if s.Polled.After(from) {
			from = s.Polled
		}
	}
	return max(0, s.Visible.Sub(from))
}

// change is a change that is not visible everywhere yet.
type change struct {
	sight Sight
	made  time.Time
	ports int // that do not show it yet
	// written: in some port it was not undone.
	written bool
}

// portKey names a Service port in one family.
type portKey struct {
	family corev1.IPFamily
	tracker.ServicePortName
}

// port is one Service port with what it should come to.
type port struct {
	portKey
	shown want       // what the kernel showed when nothing was pending last
	queue []*awaited // oldest first
	// saw is what the last look found; nil: none looked. missed is the beginning of the last one that found none of the queue.
	saw    *State
	missed time.Time
}

// awaited is a state that a port should come to.
type awaited struct {
	want
	asked   time.Time // since when it is waited for
	changes []*change // that led to it
	// names are those of the endpoints, as the dialect has them, sorted; made when they are needed, by the goroutine
	// that looks.
	names *State
}

// maxQueue is how many states of a port are told apart. A subject that is further behind passes the oldest by, or its
// Sights of them come with a later one.
const maxQueue = 32

// tail is what the port should come to in the end.
func (p *port) tail() want {
	if len(p.queue) == 0 {
		return p.shown
	}
	return p.queue[len(p.queue)-1].want
}

// push appends a state. It reports whether the state is the one that was shown before the queue began: then the kernel
// may have it without any further commit.
func (p *port) push(to want, by *change, now time.Time) (shown bool) {
	a := &awaited{want: to, asked: now}
	if by != nil {
		by.ports++
		a.changes = []*change{by}
	}
	shown = len(p.queue) > 0 && to.equal(p.shown)
	p.queue = append(p.queue, a)
	if len(p.queue) > maxQueue {
		oldest, next := p.queue[0], p.queue[1]
		next.asked, next.changes = oldest.asked, append(oldest.changes, next.changes...)
		p.queue = slices.Delete(p.queue, 0, 1)
	}
	return shown
}

// lacked is the latest moment when a port was known not to be in a state that was found later.
func (p *port) lacked(a *awaited) time.Time {
	if p.missed.After(a.asked) {
		return p.missed
	}
	return a.asked
}

// undone says that a state is what the kernel showed before the queue began, which other states came between.
func (p *port) undone(a *awaited) bool { return a != p.queue[0] && a.equal(p.shown) }

// arrived ends the wait for a state and all before it, as of a moment; since is as in Sight. It gives the changes that are
// visible in all ports now; a change is never visible before it was made.
func (p *port) arrived(a *awaited, at, since time.Time) []*change {
	i := slices.Index(p.queue, a)
	undone := i > 0 && p.undone(a)
	var complete []*change
	for _, passed := range p.queue[:i+1] {
		for _, c := range passed.changes {
			c.ports--
			c.written = c.written || !undone
			c.sight.Undone = !c.written
			for _, t := range []time.Time{at, c.made} {
				if t.After(c.sight.Visible) {
					c.sight.Visible, c.sight.Since = t, since
				}
			}
			if c.ports == 0 && !c.sight.Due.IsZero() {
				complete = append(complete, c)
			}
		}
	}
	if i >= 0 {
		p.shown = a.want
		p.queue = slices.Delete(p.queue, 0, i+1)
	}
	return complete
}

// matches says whether a port's rules are those of a state. dispatched is asked only if that decides.
func (a *awaited) matches(saw State, name func(*tracker.Endpoint) string, dispatched func() (cluster, local bool, err error)) (bool, error) {
	hasCluster, hasLocal := len(a.cluster) > 0 && !saw.Hidden.Cluster, len(a.local) > 0 && !saw.Hidden.Local
	if hasCluster && len(a.cluster) != len(saw.Cluster) || hasLocal && len(a.local) != len(saw.Local) {
		return false, nil
	}
	if a.names == nil && !a.empty() {
		a.names = &State{Cluster: namesOf(a.cluster, name), Local: namesOf(a.local, name)}
	}
	if hasCluster && !slices.Equal(a.names.Cluster, saw.Cluster) || hasLocal && !slices.Equal(a.names.Local, saw.Local) {
		return false, nil
	}
	if len(saw.Cluster) == 0 && len(saw.Local) == 0 {
		return true, nil
	}
	cluster, local, err := dispatched()
	fits := func(wanted, hidden bool, seen int, dispatched bool) bool {
		return hidden || wanted && dispatched || !wanted && (seen == 0 || !dispatched)
	}
	return fits(hasCluster, saw.Hidden.Cluster, len(saw.Cluster), cluster) && fits(hasLocal, saw.Hidden.Local, len(saw.Local), local), err
}

func namesOf(endpoints []*tracker.Endpoint, name func(*tracker.Endpoint) string) []string {
	names := make([]string, len(endpoints))
	for i, ep := range endpoints {
		names[i] = name(ep)
	}
	slices.Sort(names)
	return names
}
