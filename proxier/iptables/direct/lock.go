package direct

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// defaultLock is where iptables keeps its lock, unless XTABLES_LOCKFILE says otherwise.
const defaultLock = "/run/xtables.lock"

// lockInterval is how often a lock that another holds is tried again.
const lockInterval = 2 * time.Millisecond

// errLocked: another program holds the xtables lock.
var errLocked = errors.New("another program holds the lock")

// lock takes the xtables lock, as the tools of iptables-legacy do around reading a table and writing it back. It waits
// for the lock, but no longer than that.
func lock(ctx context.Context, file string, wait time.Duration) (unlock func(), err error) {
	path := cmp.Or(file, os.Getenv("XTABLES_LOCKFILE"), defaultLock)
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CREAT|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("xtables lock %s: %w", path, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("%w, and did so for %v", errLocked, wait))
	defer cancel()
	ticker := time.NewTicker(lockInterval)
	defer ticker.Stop()
	for {
		err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { unix.Close(fd) }, nil
		}
		if errors.Is(err, unix.EWOULDBLOCK) {
			select {
			case <-ticker.C:
				continue
			case <-ctx.Done():
				err = context.Cause(ctx)
			}
		} else if errors.Is(err, unix.EINTR) {
			continue
		}
		unix.Close(fd)
		return nil, fmt.Errorf("xtables lock %s: %w", path, err)
	}
}
