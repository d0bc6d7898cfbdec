package fault

import (
	"context"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/pass"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

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
	if err := r.start(ctx, d); err != nil {
		return err
	}
	if r.Shim != nil {
		return r.Shim.Fail(d.Times)
	}
	r.Tools.fail.Add(int32(d.Times))
	return nil
}

// killRestores makes the next restores, or nft transactions, be killed.
func (r *Faults) killRestores(ctx context.Context, d *activeFault) error {
	if err := r.start(ctx, d); err != nil {
		return err
	}
	if r.Shim != nil {
		return r.Shim.Kill(d.Times)
	}
	r.Tools.kill.Add(int32(d.Times))
	return nil
}

// refuse makes each restore or nft transaction fail that contains a text, or that names one endpoint: the first new one
// of the changes that follow. These changes are random (seeded), so the endpoint is too. A subject that writes only
// changes meets the fault as well.
func (r *Faults) refuse(ctx context.Context, d *activeFault) (err error) {
	if err := r.start(ctx, d); err != nil {
		return err
	}
	if d.Text != "" {
		d.stop, err = r.Shim.Refuse(d.Text)
		return err
	}
	known := map[string]bool{}
	for _, slice := range r.World.Objects().Slices {
		for _, endpoint := range slice.Endpoints {
			known[endpoint.Addresses[0]] = true
		}
	}
	lift := func() error { return nil }
	var planting sync.Mutex
	ended := false
	r.meets = func(object runtime.Object) {
		planting.Lock()
		defer planting.Unlock()
		addr := newAddress(object, known)
		if addr == "" || ended {
			return
		}
		r.meets = nil
		planted, err := r.Shim.Refuse(" "+addr+" ", " "+addr+":", "["+addr+"]:")
		if err != nil {
			r.Fail(err)
			return
		}
		lift = planted
		r.note(d, "payloads that name endpoint %s are refused", addr)
	}
	d.stop = func() error {
		planting.Lock()
		defer planting.Unlock()
		ended = true
		return lift()
	}
	return nil
}

// newAddress returns the address of an endpoint that is not known yet; empty: there is none.
func newAddress(object runtime.Object, known map[string]bool) string {
	slice, ok := object.(*discoveryv1.EndpointSlice)
	if !ok {
		return ""
	}
	for _, endpoint := range slice.Endpoints {
		if addr := endpoint.Addresses[0]; !known[addr] && (endpoint.Conditions.Ready == nil || *endpoint.Conditions.Ready) {
			return addr
		}
	}
	return ""
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
	d.stop = func() error {
		letGo()
		<-failed
		return nil
	}
	return r.start(ctx, d)
}

// longest is longer than any fault is active.
const longest = 2 * time.Hour

func withoutLock(e *pass.Env, _ *scenarios.Fault) string {
	if e.About.Backend == "" || e.Variant == iptables.Legacy {
		return ""
	}
	return e.Subject + " takes no xtables lock"
}
