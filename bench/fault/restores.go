package fault

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"synclab/bench/pass"
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

// purposeFault and the numbers after it, one per fault, are the random streams of faults.
const purposeFault = 1 << 16

// Fault injects a fault and has its repair recorded.
func (r *Faults) Inject(ctx context.Context, f *scenarios.Fault, name string) error {
	r.Messages.Stage(name, 0, 0)
	if why := r.unaffected(f); why != "" {
		r.Messages.Send(pass.Message{Note: fmt.Sprintf("%s: %s", describe(name, f), why)})
		return nil
	}
	r.count++
	lot := r.Random(purposeFault + uint64(r.count))
	k, known := Kinds[f.Kind]
	if !known {
		return fmt.Errorf("fault %s is not known", f.Kind)
	}
	return k.inject(r, ctx, f, name, lot)
}

// breakRestores makes the next restores, or nft transactions, fail or be killed.
func (r *Faults) breakRestores(ctx context.Context, f *scenarios.Fault, name string) error {
	planted := "fail"
	if f.Kind == scenarios.FaultRestoreKilled {
		planted = "kill"
	}
	d, err := r.startFault(ctx, f, name, &activeFault{planted: planted, left: f.Times})
	if err != nil {
		return err
	}
	r.follow(d)
	switch {
	case r.Shim != nil && planted == "fail":
		return r.Shim.Fail(f.Times)
	case r.Shim != nil:
		return r.Shim.Kill(f.Times)
	case planted == "fail":
		r.Tools.fail.Add(int32(f.Times))
	default:
		r.Tools.kill.Add(int32(f.Times))
	}
	return nil
}

// refuse makes each restore or nft transaction fail that contains a text, or that names one endpoint: the first new one
// of the changes that follow. These changes are random (seeded), so the endpoint is too. A subject that writes only
// changes meets the fault as well.
func (r *Faults) refuse(ctx context.Context, f *scenarios.Fault, name string) error {
	d, err := r.startFault(ctx, f, name, &activeFault{planted: "refuse"})
	if err != nil {
		return err
	}
	if f.Text != "" {
		lift, err := r.Shim.Refuse(f.Text)
		if err != nil {
			return err
		}
		r.follow(d)
		r.hold(d, f.For, lift)
		return nil
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
	r.follow(d)
	r.hold(d, f.For, func() error {
		planting.Lock()
		defer planting.Unlock()
		ended = true
		return lift()
	})
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
func (r *Faults) lock(ctx context.Context, f *scenarios.Fault, name string) error {
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
	d, err := r.startFault(ctx, f, name, &activeFault{})
	if err != nil {
		letGo()
		return err
	}
	r.follow(d)
	r.hold(d, f.For, func() error {
		letGo()
		<-failed
		return nil
	})
	return nil
}

// longest is longer than any fault is active.
const longest = 2 * time.Hour

// note reports what a fault affected.
func (r *Faults) note(d *activeFault, format string, args ...any) {
	r.Messages.Send(pass.Message{Note: d.fault + ": " + fmt.Sprintf(format, args...)})
}

// hold is the timer of an active fault: its time, or a fault step of kind clear, ends it.
type hold struct {
	early context.CancelFunc
	done  chan error
}

// hold ends a fault after span; 0: when faults are cleared.
func (r *Faults) hold(d *activeFault, span time.Duration, end func() error) {
	holding, early := context.WithCancel(context.Background())
	h := &hold{early: early, done: make(chan error, 1)}
	r.mu.Lock()
	r.holds = append(r.holds, h)
	r.mu.Unlock()
	go func() {
		defer early()
		if span == 0 {
			<-holding.Done()
		} else {
			_ = pass.Wait(holding, span)
		}
		var err error
		if end != nil {
			err = end()
		}
		d.end(r.Clock.Now())
		if err != nil {
			err = fmt.Errorf("end of %s: %w", d.fault, err)
		}
		h.done <- err
	}()
}

// clear clears all active and injected faults.
func (r *Faults) clear(ctx context.Context) error {
	r.mu.Lock()
	holds := r.holds
	r.holds = nil
	r.mu.Unlock()
	var errs []error
	for _, h := range holds { // all at once: the end of one may wait for another, such as the lock
		h.early()
	}
	for _, h := range holds {
		errs = append(errs, <-h.done)
	}
	if r.Shim != nil {
		_, err := r.Shim.ClearFaults()
		errs = append(errs, err)
	}
	errs = append(errs, r.clearAPIFaults())
	r.Tools.fail.Store(0)
	r.Tools.kill.Store(0)
	for _, d := range r.open() {
		if d.planted == "" {
			continue
		}
		d.mu.Lock()
		hit := d.hit
		if !hit {
			d.close(r.Clock.Now())
		}
		d.mu.Unlock()
		if !hit {
			r.note(d, "it affected nothing")
			continue
		}
		d.endStruck()
	}
	return errors.Join(errs...)
}
