package invariants

import (
	"context"
	"net/http"
	"time"
)

// checkAlive: the subject converges without an event once faults have stopped.
func checkAlive(_ context.Context, e *Evidence, r *report) error {
	r.checked++
	if e.Settled != nil {
		r.violated("", "not converged, although the cluster no longer changes: %v", e.Settled)
	}
	return nil
}

// unhealthyAfter is the number of sync periods after which /healthz must report that something is missing.
const unhealthyAfter = 2

// checkHealth: /healthz returns 200 if the subject has converged, and another status if something has been missing for
// long.
func checkHealth(_ context.Context, e *Evidence, r *report) error {
	r.checked++
	late := e.Missing > unhealthyAfter*e.SyncPeriod
	switch healthy := e.Health == http.StatusOK; {
	case e.Missing == 0 && e.Settled == nil && !healthy:
		r.violated("", "/healthz returns %d, although the subject has converged", e.Health)
	case late && healthy:
		r.violated("", "/healthz returns %d, although rules have been missing for %v (sync period %v)",
			e.Health, e.Missing.Round(time.Millisecond), e.SyncPeriod)
	}
	return nil
}
