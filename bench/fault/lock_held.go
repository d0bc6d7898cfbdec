package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/netns"
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultLockHeld, inject: (*Faults).lock, lasts: forTime, shows: changesVisible, FailsRestores: true,
		spares: []spare{onlyMaps, {"%s takes no xtables lock", func(e *pass.Env, _ *scenarios.Fault) bool {
			return e.About.KnownBackend() && !e.About.Legacy()
		}}},
	})
}

// lock holds the xtables lock while the fault is active.
func (r *Faults) lock(ctx context.Context, d *activeFault) error {
	release, err := takeLock(ctx, r.Lab.LockFile)
	if err != nil {
		return err
	}
	d.stops = append(d.stops, release)
	r.start(d)
	return nil
}

// lockRetry is the time between two attempts to take a lock; iptables itself tries once a second.
const lockRetry = 10 * time.Millisecond

// takeLock takes the xtables lock as another iptables-legacy would (flock on the lock file). The nft variant takes no such
// lock.
func takeLock(ctx context.Context, lockFile string) (release func() error, err error) {
	if err := netns.Guard(); err != nil {
		return nil, fmt.Errorf("xtables lock: %w", err)
	}
	f, err := outfile.OpenBeside(lockFile, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("xtables lock: %w", err)
	}
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f.Close, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			err = pass.Wait(ctx, lockRetry)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("xtables lock %s: %w", lockFile, err), f.Close())
		}
	}
}
