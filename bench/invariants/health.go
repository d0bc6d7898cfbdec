package invariants

import (
	"context"
	"net/http"
	"time"
)

// checkAlive: once faults stopped, the subject gets in sync by itself.
func checkAlive(_ context.Context, e *Evidence, r *report) error {
	r.checked++
	if e.Settled != nil {
		r.violated("", "not in sync, although nothing changed any more: %v", e.Settled)
	}
	return nil
}

// unhealthyAfter is how many sync periods something may be missing before /healthz has to say so.
const unhealthyAfter = 2

// checkHealth: /healthz says 200 when everything is in sync, and something else once something has been missing for long.
func checkHealth(_ context.Context, e *Evidence, r *report) error {
	r.checked++
	late := e.Missing > unhealthyAfter*e.SyncPeriod
	switch healthy := e.Health == http.StatusOK; {
	case e.Missing == 0 && e.Settled == nil && !healthy:
		r.violated("", "/healthz says %d, and everything is in sync", e.Health)
	case late && healthy:
		r.violated("", "/healthz says %d, and something has been missing for %v, with a sync period of %v",
			e.Health, e.Missing.Round(time.Millisecond), e.SyncPeriod)
	}
	return nil
}
