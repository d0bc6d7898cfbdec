package bench

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
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
		if r.shim != nil {
			return r.shim.Fail(f.Times)
		}
		r.faults.fail.Add(int32(f.Times))
	case "restore-killed":
		if r.shim != nil {
			return r.shim.Kill(f.Times)
		}
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
			if err := r.flush(ctx, family, f.Table); err != nil {
				return err
			}
		}
		r.subject.disturbed()
	default:
		return fmt.Errorf("fault %q is not known", f.Kind)
	}
	return nil
}

// flush empties what the subject's backend calls a table. In nftables its own table stands for any of them.
func (r *repetition) flush(ctx context.Context, family corev1.IPFamily, table string) error {
	if r.about.Backend != "nftables" {
		return FlushTable(ctx, cmp.Or(r.variant, iptables.Legacy), family, table)
	}
	protocol := "ip"
	if family == corev1.IPv6Protocol {
		protocol = "ip6"
	}
	if err := netns.Guard(); err != nil {
		return fmt.Errorf("flush table %s: %w", table, err)
	}
	out, err := exec.CommandContext(ctx, "nft", "delete", "table", protocol, "kube-proxy").CombinedOutput()
	if err != nil {
		return fmt.Errorf("delete table %s kube-proxy: %w: %s", protocol, err, strings.TrimSpace(string(out)))
	}
	return nil
}
