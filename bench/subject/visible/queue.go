package visible

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/mirror"
	"synclab/proxier/tracker"
)

// VisibleChange is one change that became visible in one family, in all ports of its Service with changed endpoints.
type VisibleChange struct {
	mirror.Change // as it was passed to Changed
	Visible       time.Time
	// Since is set if only a read revealed the commit. Then Visible is the end of that read. Since is the latest time
	// when the kernel was known not to have the change: when the change was made, or the previous read started.
	Since time.Time
	// Lacked is the start of the last read that found the change missing, or when it was made. With many pending ports, looks
	// skip most of them: then an earlier commit than the last one may have made the change, at any time since Lacked.
	Lacked time.Time
	// Polled is the last poll before the number that changes with each commit had changed: the commit came later.
	Polled time.Time
	// Read is the end of the read, at or after Visible: from then on, packets are certain to meet the change. It is
	// much later than Visible if the read took long, or if a table was replaced meanwhile by one of the same size.
	Read time.Time
	// Undone: no commit was necessary, because other changes reverted this one before a read saw it; or packets cannot
	// show it. Then Visible says nothing about the subject. A sync that took only this change may still write both.
	Undone bool
	// ByPackets: packets showed the change, and no rule was read.
	ByPackets bool
	Family    corev1.IPFamily
	Service   types.NamespacedName // empty if the Node's zone changed
}

// Uncertainty returns how much earlier than Visible the change may have been visible.
func (s VisibleChange) Uncertainty() time.Duration {
	from := s.Since
	if from.IsZero() {
		from = s.Due
		if s.Polled.After(from) {
			from = s.Polled
		}
	}
	return max(0, s.Visible.Sub(from))
}

// change is a change that is not visible in all ports yet.
type change struct {
	seen  VisibleChange
	made  time.Time
	ports int // number of ports that do not show it yet
	// written: it was not undone in at least one port.
	written bool
}

// portKey names a Service port in one family.
type portKey struct {
	family corev1.IPFamily
	tracker.ServicePortName
}

// port is one Service port with its awaited states.
type port struct {
	portKey
	shown want       // the state in the kernel when the port was last not pending
	queue []*awaited // oldest first
	// saw is the result of the last read; nil before the first. missed is the start of the last read that found no
	// state of the queue.
	saw    *State
	missed time.Time
	listed bool // by the Watcher
}

// awaited is a desired state of a port.
type awaited struct {
	want
	asked   time.Time // start of the wait
	changes []*change // that led to this state
	// names are the reader's names of the endpoints, sorted. The reading goroutine makes them on demand.
	names *State
}

// maxQueue bounds the states of a port that are distinguished. If a subject is further behind, the VisibleChanges of the oldest
// states come with a later one.
const maxQueue = 32

// tail returns the last desired state of the port.
func (p *port) tail() want {
	if len(p.queue) == 0 {
		return p.shown
	}
	return p.queue[len(p.queue)-1].want
}

// push appends a state. It reports whether the state equals the one shown before the queue began: the kernel may then
// have it without a further commit.
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

// lacked returns the latest time when the port was known not to be in a state that was found later.
func (p *port) lacked(a *awaited) time.Time {
	if p.missed.After(a.asked) {
		return p.missed
	}
	return a.asked
}

// undone reports whether a state equals the one shown before the queue began, with other states in between.
func (p *port) undone(a *awaited) bool { return a != p.queue[0] && a.equal(p.shown) }

// arrived ends the wait for a state and all states before it; at and since are as in VisibleChange. It returns the changes that
// are now visible in all ports. A change is never visible before it was made.
func (p *port) arrived(a *awaited, at, since time.Time) []*change {
	lacked := p.lacked(a)
	i := slices.Index(p.queue, a)
	undone := i > 0 && p.undone(a) || p.saw != nil && p.saw.Unseen
	var complete []*change
	for _, passed := range p.queue[:i+1] {
		for _, c := range passed.changes {
			c.ports--
			c.written = c.written || !undone
			c.seen.Undone = !c.written
			c.seen.ByPackets = p.saw != nil && !p.saw.At.IsZero()
			for _, t := range []time.Time{at, c.made} {
				if t.After(c.seen.Visible) {
					c.seen.Visible, c.seen.Since, c.seen.Lacked = t, since, lacked
				}
			}
			if c.ports == 0 && !c.seen.Due.IsZero() {
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

// matches reports whether a port's rules match a state. It calls dispatched only if the result matters.
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
