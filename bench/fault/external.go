package fault

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
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/proxier/iptables"
)

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

// FlushTable empties a table (nat, filter, mangle, or all of them), like a program that restores a ruleset without the
// proxier's rules. Rules and user-defined chains disappear in one step. It runs the tool as the proxier's own syncs do,
// in the network namespace of the calling thread.
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
		// Without --noflush, this input replaces the table.
		fmt.Fprintf(&empty, "*%s\nCOMMIT\n", name)
	}
	cmd := exec.CommandContext(ctx, path, iptables.LockWait(variant)...)
	cmd.Stdin = &empty
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("flush table %s: %s: %w: %s", table, tool, err, strings.TrimSpace(string(out)))
	}
	return nil
}
