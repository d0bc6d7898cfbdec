package fault

import (
	"context"
	"errors"
	"time"

	"synclab/bench/pass"
	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultKilled, inject: (*Faults).killed, spares: []spare{withoutProcess}, lasts: atOnce, shows: objectsBack, endsSubject: true, newProcess: true})
}

// killWithin is the time in which the subject is killed, at a random moment: in the middle of whatever it does then.
const killWithin = time.Second

// killed ends the subject and its tools, as a crash does, and restarts the subject at once.
func (r *Faults) killed(ctx context.Context, d *activeFault) error {
	p := r.Host.Process()
	if p == nil {
		return errors.New("no subject runs as a separate process")
	}
	if err := pass.Wait(ctx, time.Duration(d.random.Int64N(int64(killWithin)))); err != nil {
		return err
	}
	p.Kill()
	d.stillMissing = func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.synced {
			return "no sync since", nil
		}
		return "", nil
	}
	r.start(d)
	if err := r.Host.Restart(ctx, d.step); err != nil {
		return err
	}
	r.Host.Subject.Disturbed() // the kill may have interrupted a write
	return nil
}
