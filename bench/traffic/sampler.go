package traffic

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
)

// Sampler sends new flows to a changing set of targets, in turn, and never more of them than its rate. It runs on a
// thread of this process, so that each result arrives at once.
type Sampler struct {
	stream *stream
	ended  chan struct{}
	err    atomic.Pointer[error]
}

// SamplerOptions are all required.
type SamplerOptions struct {
	Namespace *netns.Namespace // of the clients
	Clients   []netip.Addr     // source addresses, two at least in each family; no other flow may use them
	Rate      float64          // new flows a second
	Result    func(Result)     // receives the results, on the sampler's thread
}

// NewSampler starts a sampler without targets. The caller must close it.
func NewSampler(o SamplerOptions) (*Sampler, error) {
	p, err := newSampler(o)
	if err != nil {
		return nil, fmt.Errorf("sampler: %w", err)
	}
	go func() {
		defer close(p.ended)
		if err := o.Namespace.Do(p.stream.run); err != nil {
			err = fmt.Errorf("sampler: %w", err)
			p.err.Store(&err)
		}
	}()
	return p, nil
}

func newSampler(o SamplerOptions) (*Sampler, error) {
	clock, err := newMonotonic()
	if err != nil {
		return nil, err
	}
	s, err := newStream(Stream{Focus: o.Rate, Clients: o.Clients, sampled: true}, clock, o.Result)
	if err != nil {
		return nil, err
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &Sampler{stream: s, ended: make(chan struct{})}, s.watch(s.wake)
}

// want says whether flows to a target are wanted.
type want struct {
	target int
	more   bool
}

// Add adds targets. They are numbered from 0.
func (p *Sampler) Add(targets ...Target) { p.stream.inbox.put(targets, nil, nil) }

// Want begins to send flows to a target, or stops to.
func (p *Sampler) Want(target int, more bool) {
	in := &p.stream.inbox
	in.mu.Lock()
	in.wants = append(in.wants, want{target, more})
	in.mu.Unlock()
	if more {
		one := [8]byte{1} // in native byte order, any value except 0
		_, _ = unix.Write(p.stream.wake, one[:])
	}
}

// At converts a Result's time.
func (p *Sampler) At(ns int64) time.Time { return p.stream.clock.at(ns) }

// Err returns why the sampler stopped by itself; nil if it did not.
func (p *Sampler) Err() error {
	if err := p.err.Load(); err != nil {
		return *err
	}
	return nil
}

// Stop ends the sampler without waiting for it.
func (p *Sampler) Stop() { p.stream.end() }

// Close ends the sampler. Afterwards no results arrive.
func (p *Sampler) Close() {
	p.Stop()
	<-p.ended
	unix.Close(p.stream.wake)
}

// lateSample is how late flows of a Sampler may be. Later ones are left out: they would follow each other without a
// pause.
const lateSample = 100 * time.Millisecond

// sample takes what is wanted from the inbox. Its last word about a target counts.
func (s *stream) sample(now int64) {
	s.next = max(s.next, now-int64(lateSample))
	if len(s.inbox.wants) == 0 {
		return
	}
	more := map[int]bool{}
	for _, w := range s.inbox.wants {
		more[w.target] = w.more
	}
	s.inbox.wants = nil
	s.focus = slices.DeleteFunc(s.focus, func(f focused) bool {
		wanted, said := more[f.target]
		delete(more, f.target) // it is there already
		return said && !wanted
	})
	for _, target := range slices.Sorted(maps.Keys(more)) {
		if more[target] {
			s.focus = append(s.focus, focused{target: target})
		}
	}
}
