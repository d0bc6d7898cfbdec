package fault

import (
	"context"
	"os"
	"os/exec"
	"sync/atomic"

	"synclab/scenarios"
)

func init() {
	register(Kind{Name: scenarios.FaultRestoreFails, inject: (*Faults).failRestores, spares: []spare{withoutTools}, lasts: forCalls, Planted: "fail", FailsRestores: true})
	register(Kind{Name: scenarios.FaultRestoreKilled, inject: (*Faults).killRestores, spares: []spare{withoutTools}, lasts: forCalls, Planted: "kill", FailsRestores: true})
}

// toolFaults make the next restores of a subject in this process fail or die, a given number of times.
type toolFaults struct {
	fail, kill atomic.Int32
}

// Prepare replaces iptables-restore by a program that fails before it reads anything.
func (f *toolFaults) Prepare(cmd *exec.Cmd) {
	if takeOne(&f.fail) {
		cmd.Path = "/bin/false"
	}
}

// Started kills a restore as soon as it runs. Whether the kernel already has a table then is random, as it is when the
// machine runs out of memory.
func (f *toolFaults) Started(p *os.Process) {
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

// failRestores makes the next restores, or nft transactions, fail.
func (r *Faults) failRestores(ctx context.Context, d *activeFault) error {
	r.start(d)
	if r.Shim != nil {
		return r.Shim.Fail(d.Times)
	}
	r.Tools.fail.Add(int32(d.Times))
	return nil
}

// killRestores makes the next restores, or nft transactions, be killed.
func (r *Faults) killRestores(ctx context.Context, d *activeFault) error {
	r.start(d)
	if r.Shim != nil {
		return r.Shim.Kill(d.Times)
	}
	r.Tools.kill.Add(int32(d.Times))
	return nil
}
