package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/netns"
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultLockHeld, inject: (*Faults).lock, lasts: forTime, FailsRestores: true,
		spares: []spare{withoutTables, withoutLock},
	})
}

func withoutLock(e *pass.Env, _ *scenarios.Fault) string {
	if e.About.Backend == "" || e.Variant == iptables.Legacy {
		return ""
	}
	return e.Subject + " takes no xtables lock"
}

// lock holds the xtables lock while the fault is active.
func (r *Faults) lock(ctx context.Context, d *activeFault) error {
	holding, letGo := context.WithCancel(ctx)
	held := make(chan struct{})
	failed := make(chan error, 1)
	go func() { failed <- HoldLock(holding, r.Lab.LockFile, longest, func() { close(held) }) }()
	select {
	case <-held:
	case err := <-failed:
		letGo()
		return err
	}
	d.stops = append(d.stops, func() error {
		letGo()
		<-failed
		return nil
	})
	r.start(d)
	return nil
}

// longest is longer than any fault is active.
const longest = 2 * time.Hour

// lockRetry is the time between two attempts to take a lock; iptables itself tries once a second.
const lockRetry = 10 * time.Millisecond

// HoldLock takes the xtables lock as another iptables-legacy would (flock on the lock file). It calls held, keeps the
// lock for d and releases it. When ctx ends, it releases the lock at once and returns the cause. The nft variant takes
// no such lock.
func HoldLock(ctx context.Context, lockFile string, d time.Duration, held func()) error {
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("xtables lock: %w", err)
	}
	f, err := outfile.OpenBeside(lockFile, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("xtables lock: %w", err)
	}
	defer f.Close() // releases the lock
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("xtables lock %s: %w", lockFile, err)
		}
		if err := pass.Wait(ctx, lockRetry); err != nil {
			return fmt.Errorf("xtables lock %s: %w", lockFile, err)
		}
	}
	if held != nil {
		held()
	}
	return pass.Wait(ctx, d)
}
