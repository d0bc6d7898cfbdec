package tracker

import "time"

// Pending is the coalescing alone, without the objects' content. All events of a key until the next Take become one
// entry. Entries of a failed sync are merged with newer ones. Tracker uses Service names as keys; a simulation of many
// nodes uses other keys. The zero value is empty. It is not safe for concurrent use.
type Pending[K comparable] struct {
	dirty map[K]*Events
	// spentMaps and spent are maps and entries for reuse, see Done.
	spentMaps []map[K]*Events
	spent     []*Events
}

// Events is the record of a key whose events are not installed yet.
type Events struct {
	// Triggers are the trigger times of its changes, where they are known.
	Triggers []time.Time
	// Queued is when the first of its events arrived.
	Queued time.Time
	// Services and Slices count the events of the Service and of its slices.
	Services, Slices int
	// Requeued: a Take returned the key before, and that sync failed. The sync planned the change, so the next Take must
	// return the key again, even if its state equals the installed one.
	Requeued bool
	// dropped: Drop was called, so requeued triggers do not count either.
	dropped bool
}

// Drop deletes all trigger times so far.
func (e *Events) Drop() { e.Triggers, e.dropped = e.Triggers[:0], true }

// Mark makes a key dirty, at now if it was clean, and returns its entry. The caller counts the event there.
func (p *Pending[K]) Mark(key K, now time.Time) *Events {
	e := p.dirty[key]
	if e == nil {
		e = p.entry()
		e.Queued = now
		p.put(key, e)
	}
	return e
}

// Len is the number of dirty keys.
func (p *Pending[K]) Len() int { return len(p.dirty) }

// Events returns the number of events of all dirty keys, on Services and on slices.
func (p *Pending[K]) Events() (services, slices int) {
	for _, e := range p.dirty {
		services += e.Services
		slices += e.Slices
	}
	return services, slices
}

// Take returns all dirty keys. Afterwards no key is dirty.
func (p *Pending[K]) Take() map[K]*Events {
	taken := p.dirty
	p.dirty = nil
	return taken
}

// Requeue requeues the keys of a Take whose sync failed. It keeps the first event times and all trigger times.
func (p *Pending[K]) Requeue(taken map[K]*Events) {
	for key, e := range taken {
		e.Requeued = true
		if later := p.dirty[key]; later != nil {
			e.Services += later.Services
			e.Slices += later.Slices
			if later.dropped {
				e.Drop()
			}
			e.Triggers = append(e.Triggers, later.Triggers...)
		}
		p.put(key, e)
	}
}

// Done allows reuse of the memory that a Take returned; taken must not be used any more. Calling it is optional.
func (p *Pending[K]) Done(taken map[K]*Events) {
	for _, e := range taken {
		*e = Events{Triggers: e.Triggers[:0]}
		p.spent = append(p.spent, e)
	}
	if taken != nil {
		clear(taken)
		p.spentMaps = append(p.spentMaps, taken)
	}
}

func (p *Pending[K]) put(key K, e *Events) {
	if p.dirty == nil {
		p.dirty = p.emptyMap()
	}
	p.dirty[key] = e
}

func (p *Pending[K]) emptyMap() map[K]*Events {
	last := len(p.spentMaps) - 1
	if last < 0 {
		return map[K]*Events{}
	}
	m := p.spentMaps[last]
	p.spentMaps = p.spentMaps[:last]
	return m
}

func (p *Pending[K]) entry() *Events {
	last := len(p.spent) - 1
	if last < 0 {
		return &Events{}
	}
	e := p.spent[last]
	p.spent = p.spent[:last]
	return e
}
