package proxier

import (
	"time"

	"synclab/proxier/tracker"
)

// refusals are the Service ports whose rules the kernel refused, and when to retry them without a change. The cause may
// go away without an event: a module is loaded, or memory is free. Each retry is a full sync, so each failed retry
// doubles the wait, up to fullSyncInterval. A change of the Service port and every full sync retry it as well.
type refusals struct {
	ports map[tracker.ServicePortName]bool
	wait  time.Duration
	due   time.Time
}

// note records what a sync was refused; shortest is the first wait.
func (r *refusals) note(s *Sync, shortest time.Duration) {
	known := r.ports
	r.ports = nil
	fresh := false
	for _, refusal := range s.Refused {
		if r.ports == nil {
			r.ports = make(map[tracker.ServicePortName]bool, len(s.Refused))
		}
		r.ports[refusal.Port] = true
		fresh = fresh || !known[refusal.Port]
	}
	switch {
	case fresh:
		r.wait = shortest
	case s.Kind == Full:
		r.wait = min(2*r.wait, fullSyncInterval)
	default:
		return // known refusals, which this sync did not retry
	}
	r.due = s.Written.Add(r.wait)
}

// retry reports whether the next retry is due.
func (r *refusals) retry(now time.Time) bool { return len(r.ports) > 0 && !now.Before(r.due) }
