package proxier

import (
	"time"

	"synclab/proxier/tracker"
)

// refusals are the Service ports whose rules the kernel did not take, and when to offer them again although nothing
// changed: whatever is in the way may go, a module be loaded or memory be free, and no event tells of it. That takes a
// full sync, so each try in vain doubles the wait, up to fullSyncInterval. A Service port that changes, and any full
// sync, is a try as well.
type refusals struct {
	ports map[tracker.ServicePortName]bool
	wait  time.Duration
	due   time.Time
}

// note takes down what a sync was refused; shortest is the first wait.
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
		return // those of before, which were not tried
	}
	r.due = s.Written.Add(r.wait)
}

// retry says whether it is time to offer them again.
func (r *refusals) retry(now time.Time) bool { return len(r.ports) > 0 && !now.Before(r.due) }
