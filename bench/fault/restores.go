package fault

import (
	"context"
	"os"
	"os/exec"
	"sync/atomic"

	"synclab/scenarios"
)

func init() {
	register(Kind{
		Name: scenarios.FaultRestoreFails, lasts: forCalls, shows: changesVisible, Planted: "fail", FailsRestores: true, spares: []spare{withoutTools},
		inject: func(r *Faults, _ context.Context, d *activeFault) error {
			return r.breakRestores(d, r.Shim.Fail, &r.Tools.fail)
		},
	})
	register(Kind{
		Name: scenarios.FaultRestoreKilled, lasts: forCalls, shows: changesVisible, Planted: "kill", FailsRestores: true, spares: []spare{withoutTools},
		inject: func(r *Faults, _ context.Context, d *activeFault) error {
			return r.breakRestores(d, r.Shim.Kill, &r.Tools.kill)
		},
	})
}

// breakRestores makes the next restores, or nft transactions, fail or be killed: through the shim, or in this process.
func (r *Faults) breakRestores(d *activeFault, plant func(times int) error, here *atomic.Int32) error {
	r.start(d)
	if r.Shim != nil {
		return plant(d.Times)
	}
	here.Add(int32(d.Times))
	return nil
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
	for left := n.Load(); left > 0; left = n.Load() {
		if n.CompareAndSwap(left, left-1) {
			return true
		}
	}
	return false
}
