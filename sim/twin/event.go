package twin

import (
	"container/heap"
	"time"
)

// Kind of an Event: which object it changes.
type Kind uint8

const (
	// Endpoints of a Service change: one EndpointSlice.
	Endpoints Kind = iota
	// Services: the Service itself changes, comes or goes.
	Services
)

// Event is one change of one Service, as all nodes see it.
type Event struct {
	// Due is when it happens, from the beginning.
	Due time.Duration
	// Service is its number, from 0.
	Service int32
	// Weight is how many changes a Cost counts it as: 1 for an endpoint that comes or goes.
	Weight int32
	Kind   Kind
}

// Source gives Events one by one, none due before the one before it. It may go on for ever: whoever asks decides when to
// stop. What a Source holds does not grow with how many it has given.
type Source interface {
	// Next is false when there is none any more.
	Next() (Event, bool)
}

// list is a Source of what is known beforehand.
type list []Event

func (l *list) Next() (Event, bool) {
	if len(*l) == 0 {
		return Event{}, false
	}
	e := (*l)[0]
	*l = (*l)[1:]
	return e, true
}

// List gives events that are sorted by Due.
func List(events []Event) Source {
	l := list(events)
	return &l
}

// Merge gives the events of several Sources, in the order of Due; of those due together, those of the Source that comes
// first in the arguments.
func Merge(sources ...Source) Source {
	m := &merged{}
	for i, s := range sources {
		if e, ok := s.Next(); ok {
			m.heads = append(m.heads, head{e, i, s})
		}
	}
	heap.Init(m)
	return m
}

// head is the next event of a source.
type head struct {
	Event
	rank   int
	source Source
}

type merged struct{ heads []head }

func (m *merged) Next() (Event, bool) {
	if len(m.heads) == 0 {
		return Event{}, false
	}
	first := m.heads[0].Event
	if e, ok := m.heads[0].source.Next(); ok {
		m.heads[0].Event = e
		heap.Fix(m, 0)
	} else {
		heap.Pop(m)
	}
	return first, true
}

// merged is a heap.Interface over its heads.
func (m *merged) Len() int { return len(m.heads) }

func (m *merged) Less(i, j int) bool {
	a, b := &m.heads[i], &m.heads[j]
	return a.Due < b.Due || a.Due == b.Due && a.rank < b.rank
}

func (m *merged) Swap(i, j int) { m.heads[i], m.heads[j] = m.heads[j], m.heads[i] }
func (m *merged) Push(any)      { panic("twin: no source joins while events are given") }

func (m *merged) Pop() any {
	last := len(m.heads) - 1
	h := m.heads[last]
	m.heads = m.heads[:last]
	return h
}

// Between gives the events of a Source that are due from one time on and before another.
func Between(s Source, from, to time.Duration) Source { return &between{s, from, to} }

type between struct {
	source   Source
	from, to time.Duration
}

func (b *between) Next() (Event, bool) {
	for {
		e, ok := b.source.Next()
		if !ok || e.Due >= b.to {
			return Event{}, false
		}
		if e.Due >= b.from {
			return e, true
		}
	}
}
