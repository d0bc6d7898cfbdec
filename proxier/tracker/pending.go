package tracker

import "time"

// Pending is the rule of coalescing alone, without what the objects say: whatever happens to one key until it is taken
// becomes one entry, and what a failed sync gives back joins what came meanwhile. Tracker keeps Services by name in one;
// a simulation of many nodes keeps its own keys. The zero value is empty. It is not safe for concurrent use.
type Pending[K comparable] struct {
	dirty map[K]*Events
	// spent maps and entries, to be used again: see Done.
	spentMaps []map[K]*Events
	spent     []*Events
}

// Events is what is remembered of a key whose events are not installed yet.
type Events struct {
	// Triggers are the moments when its changes were due, where they are known.
	Triggers []time.Time
	// Queued is when the first of its events came.
	Queued time.Time
	// Services and Slices count the events on the Service itself, and on its slices.
	Services, Slices int
	// Retaken: a Take handed it out before and a sync failed on it. Who planned it then must hear of it again, also
	// when it is back to what is installed.
	Retaken bool
	// dropped: Drop was called, so triggers that are given back count no more either.
	dropped bool
}

// Drop forgets the trigger times so far.
func (e *Events) Drop() { e.Triggers, e.dropped = e.Triggers[:0], true }

// Mark makes a key dirty, at now if it is not already, and gives its entry: the caller counts the event there.
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

// Events counts the events of all dirty keys, on Services and on slices.
func (p *Pending[K]) Events() (services, slices int) {
	for _, e := range p.dirty {
		services += e.Services
		slices += e.Slices
	}
	return services, slices
}

// Take hands out what is dirty; nothing is, after it.
func (p *Pending[K]) Take() map[K]*Events {
	taken := p.dirty
	p.dirty = nil
	return taken
}

// GiveBack takes back what a Take handed out to a sync that failed: the first events and all trigger times stay.
func (p *Pending[K]) GiveBack(taken map[K]*Events) {
	for key, e := range taken {
		e.Retaken = true
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

// Done lets the memory of what a Take handed out be used again. Nobody may look at it any more. Calling it is never
// necessary.
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
