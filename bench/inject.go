package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"

	"synclab/scenarios"
)

// faults break the next restores, as often as was asked for.
type faults struct {
	fail, kill atomic.Int32
}

// prepare makes iptables-restore one that fails before it has read anything.
func (f *faults) prepare(cmd *exec.Cmd) {
	if takeOne(&f.fail) {
		cmd.Path = "/bin/false"
	}
}

// started kills a restore as soon as it runs: whether it has already handed a table to the kernel is chance, as it is
// when the machine runs out of memory.
func (f *faults) started(p *os.Process) {
	if takeOne(&f.kill) {
		_ = p.Kill()
	}
}

func takeOne(n *atomic.Int32) bool {
	for {
		left := n.Load()
		if left == 0 {
			return false
		}
		if n.CompareAndSwap(left, left-1) {
			return true
		}
	}
}

// fault breaks something. Faults of restores and of the lock hold during the steps after it; a flush is done at once.
func (r *repetition) fault(ctx context.Context, f *scenarios.Fault, name string) error {
	r.say.stage(name, 0, 0)
	switch f.Kind {
	case "restore-fails":
		r.faults.fail.Add(int32(f.Times))
	case "restore-killed":
		r.faults.kill.Add(int32(f.Times))
	case "lock-held":
		held := make(chan struct{})
		failed := make(chan error, 1)
		go func() { failed <- HoldLock(ctx, r.lab.LockFile, f.For, func() { close(held) }) }()
		select {
		case <-held:
		case err := <-failed:
			return err
		}
	case "flush":
		for _, family := range r.families {
			if err := FlushTable(ctx, r.variant, family, f.Table); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("fault %q is not known", f.Kind)
	}
	return nil
}
