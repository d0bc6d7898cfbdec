package simulator

import (
	"container/heap"
	"time"
)

// Kind is the kind of object that an Event changes.
type Kind uint8

const (
	// Endpoints of a Service change: one EndpointSlice.
	Endpoints Kind = iota
	// Services: the Service itself changes, or is created or deleted.
	Services
)

// Event is one change of one Service, as all nodes see it.
type Event struct {
	// Due is when it happens, counted from the beginning.
	Due time.Duration
	// Service is the number of the Service, from 0.
	Service int32
	// Weight is the number of changes that a Cost counts for it: 1 for an endpoint that comes or goes.
	Weight int32
	Kind   Kind
}

// Source returns Events one by one, in the order of Due. It may go on for ever: the caller decides when to stop. The
// memory of a Source does not grow with the number of Events that it has returned.
type Source interface {
	// Next returns false when there are no more Events.
	Next() (Event, bool)
}

// list is a Source of events that are known beforehand.
type list []Event

func (l *list) Next() (Event, bool) {
	if len(*l) == 0 {
		return Event{}, false
	}
	e := (*l)[0]
	*l = (*l)[1:]
	return e, true
}

// List returns a Source of events that are sorted by Due.
func List(events []Event) Source {
	l := list(events)
	return &l
}

// Merge merges the events of several Sources, in the order of Due. Events due together come in the order of the
// arguments.
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
func (m *merged) Push(any)      { panic("simulator: a merged Source takes no further Source") }

func (m *merged) Pop() any {
	last := len(m.heads) - 1
	h := m.heads[last]
	m.heads = m.heads[:last]
	return h
}

// Between returns the events of a Source with from ≤ Due < to.
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
