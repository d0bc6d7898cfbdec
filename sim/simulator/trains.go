package simulator

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// A train is several events with one cause: a rolling update, the loss of a Node. Causes come as a Poisson process, or
// once each at given times; trains that run at the same time are merged.

// Causes determine when trains begin.
type Causes struct {
	// Rate of causes. PerSecond 0: only those of At.
	Rate Rate
	// At are the times of causes, sorted.
	At []time.Duration
}

func (c Causes) validate() error {
	if c.Rate.PerSecond == 0 && len(c.At) == 0 {
		return fmt.Errorf("no causes: want a rate or times")
	}
	for i := 1; i < len(c.At); i++ {
		if c.At[i] < c.At[i-1] {
			return fmt.Errorf("times %v and %v are not sorted", c.At[i-1], c.At[i])
		}
	}
	if c.Rate.PerSecond == 0 {
		return nil
	}
	return c.Rate.validate()
}

// Bursts are many changes of different Services in a short time.
type Bursts struct {
	Population
	Causes
	// Changes of each burst.
	Changes int
	// Within is how long a burst lasts; changes are evenly spaced in it.
	Within time.Duration
}

// Source returns the Source of a seed.
func (b Bursts) Source(seed uint64) (Source, error) {
	if b.Changes < 1 || b.Within < 0 {
		return nil, fmt.Errorf("bursts: %d changes within %v: want at least 1 change and no negative time", b.Changes, b.Within)
	}
	return newTrains("bursts", seed, b.Population, b.Causes, func(start time.Duration, c *chooser, add adder) {
		gap := b.Within / time.Duration(b.Changes)
		add(steps{at: start, count: b.Changes, step: func(i int) (time.Duration, Event) {
			return time.Duration(i) * gap, Event{Service: c.pick(), Weight: 1}
		}})
	})
}

// Rollouts are rolling updates in waves, as sim/world plans them. At the start of a wave the surge's new pods
// are ready. A third of the interval later as many old ones terminate; at two thirds they are gone.
type Rollouts struct {
	Population
	Causes
	// Endpoints of a Service.
	Endpoints int
	// Surge is the share of pods that a wave replaces. 0: a quarter.
	Surge float64
	// Interval between waves: the time that new pods take to become ready. 0: 10 s.
	Interval time.Duration
	// Together is the number of Services that one cause rolls out: above 1 it is a deploy storm. 0: 1.
	Together int
	// Within is the time from the first to the last start of these Services.
	Within time.Duration
}

// Source returns the Source of a seed.
func (r Rollouts) Source(seed uint64) (Source, error) {
	if r.Surge == 0 {
		r.Surge = 0.25
	}
	if r.Interval == 0 {
		r.Interval = 10 * time.Second
	}
	r.Together = max(1, r.Together)
	if r.Endpoints < 1 || r.Surge < 0 || r.Surge > 1 || r.Interval < 0 || r.Within < 0 {
		return nil, fmt.Errorf("rollouts: %d endpoints, surge %g, interval %v within %v: out of range", r.Endpoints, r.Surge, r.Interval, r.Within)
	}
	return newTrains("rollouts", seed, r.Population, r.Causes, func(start time.Duration, c *chooser, add adder) {
		for range r.Together {
			at := start
			if r.Within > 0 {
				at += time.Duration(c.rng.Int64N(int64(r.Within)))
			}
			add(r.train(at, c.pick()))
		}
	})
}

func (r Rollouts) train(at time.Duration, service int32) steps {
	wave := max(1, int(math.Ceil(r.Surge*float64(r.Endpoints))))
	waves := (r.Endpoints + wave - 1) / wave
	return steps{at: at, count: 3 * waves, step: func(i int) (time.Duration, Event) {
		pods := min(wave, r.Endpoints-i/3*wave)
		return time.Duration(i/3)*r.Interval + time.Duration(i%3)*r.Interval/3, Event{Service: service, Weight: int32(pods)}
	}}
}

// NodeLosses are losses of Nodes: their pods become not ready, Service by Service, and are evicted later.
type NodeLosses struct {
	Population
	Causes
	// Pods on a Node, each of another Service if there are enough.
	Pods int
	// Gap between changes of two EndpointSlices: the controller's workers handle about a thousand a second. 0: 1 ms.
	Gap time.Duration
	// EvictAfter is the time until pods are removed. 0: 5 minutes, Kubernetes' default.
	EvictAfter time.Duration
}

// Source returns the Source of a seed.
func (n NodeLosses) Source(seed uint64) (Source, error) {
	if n.Gap == 0 {
		n.Gap = time.Millisecond
	}
	if n.EvictAfter == 0 {
		n.EvictAfter = 5 * time.Minute
	}
	if n.Pods < 1 || n.Gap < 0 || n.EvictAfter < 0 {
		return nil, fmt.Errorf("node losses: %d pods, gap %v, evicted after %v: out of range", n.Pods, n.Gap, n.EvictAfter)
	}
	return newTrains("node losses", seed, n.Population, n.Causes, func(start time.Duration, c *chooser, add adder) {
		hit := make([]int32, n.Pods)
		for i := range hit {
			hit[i] = c.pick()
		}
		evicted := max(n.EvictAfter, time.Duration(n.Pods)*n.Gap)
		add(steps{at: start, count: 2 * n.Pods, step: func(i int) (time.Duration, Event) {
			after := time.Duration(i%n.Pods) * n.Gap
			if i >= n.Pods {
				after += evicted
			}
			return after, Event{Service: hit[i%n.Pods], Weight: 1}
		}})
	})
}

// steps is one train of count events; step returns the time of the i-th after the start. Times do not decrease.
type steps struct {
	at    time.Duration
	count int
	step  func(i int) (time.Duration, Event)

	next   Event
	done   int
	number int // of the train, to order trains with events due together
}

func (s *steps) advance() bool {
	if s.done == s.count {
		return false
	}
	after, e := s.step(s.done)
	e.Due = s.at + after
	s.next = e
	s.done++
	return true
}

type adder func(steps)

// trains merges trains that run at the same time. It holds only the running ones.
type trains struct {
	causes arrivals
	at     []time.Duration
	random bool // causes come at a rate, too
	next   time.Duration
	begin  func(start time.Duration, c *chooser, add adder)
	chooser
	running []*steps // a heap by next event
	begun   int
}

func newTrains(what string, seed uint64, p Population, c Causes, begin func(time.Duration, *chooser, adder)) (Source, error) {
	if err := p.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	t := &trains{
		causes: arrivals{rate: c.Rate, rng: rand.New(rand.NewPCG(seed, forTrains^uint64(len(what))<<32))},
		at:     c.At, random: c.Rate.PerSecond > 0, begin: begin,
	}
	t.chooser = p.chooser(t.causes.rng)
	if t.random {
		t.next = t.causes.next()
	}
	return t, nil
}

// cause returns the time of the next cause.
func (t *trains) cause() (at time.Duration, given, ok bool) {
	given = len(t.at) > 0 && (!t.random || t.at[0] <= t.next)
	switch {
	case given:
		return t.at[0], true, true
	case t.random:
		return t.next, false, true
	}
	return 0, false, false
}

func (t *trains) Next() (Event, bool) {
	for {
		at, given, ok := t.cause()
		if !ok || len(t.running) > 0 && t.running[0].next.Due < at {
			break
		}
		if given {
			t.at = t.at[1:]
		} else {
			t.next = t.causes.next()
		}
		t.begin(at, &t.chooser, t.add)
	}
	if len(t.running) == 0 {
		return Event{}, false
	}
	e := t.running[0].next
	if t.running[0].advance() {
		heap.Fix(t, 0)
	} else {
		heap.Pop(t)
	}
	return e, true
}

func (t *trains) add(s steps) {
	t.begun++
	s.number = t.begun
	if s.advance() {
		heap.Push(t, &s)
	}
}

// trains is a heap.Interface over the running trains.
func (t *trains) Len() int { return len(t.running) }

func (t *trains) Less(i, j int) bool {
	a, b := t.running[i], t.running[j]
	return a.next.Due < b.next.Due || a.next.Due == b.next.Due && a.number < b.number
}

func (t *trains) Swap(i, j int) { t.running[i], t.running[j] = t.running[j], t.running[i] }
func (t *trains) Push(s any)    { t.running = append(t.running, s.(*steps)) }

func (t *trains) Pop() any {
	last := len(t.running) - 1
	s := t.running[last]
	t.running[last] = nil
	t.running = t.running[:last]
	return s
}
