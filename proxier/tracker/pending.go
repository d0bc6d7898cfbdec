package tracker

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// pending is the coalescing alone, without the objects' content. All events of a Service until the next Take become one
// entry. Entries of a failed sync are merged with newer ones. It is not safe for concurrent use.
type pending struct {
	dirty map[types.NamespacedName]*Events
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
func (p *pending) Mark(key types.NamespacedName, now time.Time) *Events {
	e := p.dirty[key]
	if e == nil {
		e = &Events{}
		e.Queued = now
		p.put(key, e)
	}
	return e
}

// Len is the number of dirty keys.
func (p *pending) Len() int { return len(p.dirty) }

// Events returns the number of events of all dirty keys, on Services and on slices.
func (p *pending) Events() (services, slices int) {
	for _, e := range p.dirty {
		services += e.Services
		slices += e.Slices
	}
	return services, slices
}

// Take returns all dirty keys. Afterwards no key is dirty.
func (p *pending) Take() map[types.NamespacedName]*Events {
	taken := p.dirty
	p.dirty = nil
	return taken
}

// Requeue requeues the keys of a Take whose sync failed. It keeps the first event times and all trigger times.
func (p *pending) Requeue(taken map[types.NamespacedName]*Events) {
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

func (p *pending) put(key types.NamespacedName, e *Events) {
	if p.dirty == nil {
		p.dirty = map[types.NamespacedName]*Events{}
	}
	p.dirty[key] = e
}
