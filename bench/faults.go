package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
)

// lockRetry is how often a lock that is taken is asked for again; iptables itself asks once a second.
const lockRetry = 10 * time.Millisecond

// HoldLock takes the xtables lock as another iptables-legacy would (flock on the lock file), calls held, keeps the lock
// for d and lets it go. When ctx ends it lets go at once and returns the cause. The nft variant takes no such lock.
func HoldLock(ctx context.Context, lockFile string, d time.Duration, held func()) error {
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("xtables lock: %w", err)
	}
	f, err := os.OpenFile(lockFile, os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("xtables lock: %w", err)
	}
	defer f.Close() // lets go
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("xtables lock %s: %w", lockFile, err)
		}
		if err := wait(ctx, lockRetry); err != nil {
			return fmt.Errorf("xtables lock %s: %w", lockFile, err)
		}
	}
	if held != nil {
		held()
	}
	return wait(ctx, d)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// FlushTable empties a table (nat, filter, mangle, or all of them) as a foreign actor does that restores a ruleset
// without the proxier's: rules and user-defined chains go, in one step. It runs the tool as the proxier's own syncs
// run theirs, in the namespace of the calling thread.
func FlushTable(ctx context.Context, variant iptables.Variant, family corev1.IPFamily, table string) error {
	tables := []string{table}
	switch table {
	case "nat", "filter", "mangle":
	case "all":
		tables = []string{"nat", "filter", "mangle"}
	default:
		return fmt.Errorf("flush table %q: want nat, filter, mangle or all", table)
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	tool := iptables.Binary(variant, family, "restore")
	path, err := iptables.FindBinary(tool)
	if err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	var empty bytes.Buffer
	for _, name := range tables {
		// Without --noflush, a table is replaced by what stands here.
		fmt.Fprintf(&empty, "*%s\nCOMMIT\n", name)
	}
	cmd := exec.CommandContext(ctx, path, lockWait(variant)...)
	cmd.Stdin = &empty
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("flush table %s: %s: %w: %s", table, tool, err, strings.TrimSpace(string(out)))
	}
	return nil
}

func lockWait(variant iptables.Variant) []string {
	if variant == iptables.Legacy {
		return []string{"-w", "60"}
	}
	return nil
}
