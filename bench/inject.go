package bench

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

	"synclab/proxier"
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

// purposeFault and the numbers above it, one a fault, are for what faults draw by lot.
const purposeFault = 1 << 16

// fault breaks something, and sees to it that its repair is recorded.
func (r *repetition) fault(ctx context.Context, f *scenarios.Fault, name string) error {
	r.say.stage(name, 0, 0)
	if why := r.spared(f); why != "" {
		r.say.message(message{Note: fmt.Sprintf("%s: %s", describe(name, f), why)})
		return nil
	}
	r.damages.count++
	lot := r.random(purposeFault + uint64(r.damages.count))
	switch f.Kind {
	case scenarios.FaultRestoreFails, scenarios.FaultRestoreKilled:
		return r.breakRestores(ctx, f, name)
	case scenarios.FaultRuleRefused:
		return r.refuse(ctx, f, name)
	case scenarios.FaultLockHeld:
		return r.lock(ctx, f, name)
	case scenarios.FaultWriter:
		return r.compete(ctx, f, name)
	case scenarios.FaultFlush:
		return r.flushed(ctx, f, name)
	case scenarios.FaultDelete:
		return r.deleted(ctx, f, name, lot)
	case scenarios.FaultReference:
		return r.refer(ctx, f, name, lot)
	case scenarios.FaultKilled:
		return r.killed(ctx, f, name, lot)
	case scenarios.FaultMemoryLimit:
		return r.limitMemory(ctx, f, name)
	case scenarios.FaultConntrackFull:
		return r.fillConntrack(ctx, f, name)
	case scenarios.FaultAddresses:
		return r.moreAddresses(ctx, f, name)
	case scenarios.FaultHeal:
		return r.heal(ctx)
	case scenarios.FaultWatchDropped, scenarios.FaultWatchStalled, scenarios.FaultRelist, scenarios.FaultEventsRepeated,
		scenarios.FaultEventsSwapped, scenarios.FaultSlicesFirst, scenarios.FaultAPIDown:
		return r.breakAPI(ctx, f, name)
	}
	return fmt.Errorf("fault %s is not known", f.Kind)
}

// spared says why a fault cannot hit the subject; empty: it can.
func (r *repetition) spared(f *scenarios.Fault) string {
	outside := r.Feed == FeedAPI
	switch f.Kind {
	case scenarios.FaultRestoreFails, scenarios.FaultRestoreKilled:
		if !r.about.hasTools() {
			return r.Subject + " runs no tool that could be hit"
		}
	case scenarios.FaultRuleRefused:
		if !r.about.hasTools() {
			return r.Subject + " runs no tool that could be hit"
		}
		if !outside {
			return "needs the feed " + FeedAPI
		}
	case scenarios.FaultLockHeld:
		if r.about.Backend != "" && r.variant != iptables.Legacy {
			return r.Subject + " takes no xtables lock"
		}
	case scenarios.FaultKilled, scenarios.FaultMemoryLimit:
		if !outside {
			return "needs the feed " + FeedAPI + ": with another one the subject is no process of its own"
		}
	case scenarios.FaultDelete, scenarios.FaultReference:
		if r.about.Backend == "" {
			return "how " + r.Subject + " writes rules is not known"
		}
	}
	if r.about.Backend == proxier.Nftables && (f.Table == "filter" || f.Table == "mangle") {
		return r.Subject + " has one table, for which nat stands"
	}
	return ""
}

// breakRestores lets the next restores, or transactions of nft, fail or be killed.
func (r *repetition) breakRestores(ctx context.Context, f *scenarios.Fault, name string) error {
	planted := "fail"
	if f.Kind == scenarios.FaultRestoreKilled {
		planted = "kill"
	}
	d, err := r.wound(ctx, f, name, &damage{planted: planted, left: f.Times})
	if err != nil {
		return err
	}
	r.follow(d)
	switch {
	case r.shim != nil && planted == "fail":
		return r.shim.Fail(f.Times)
	case r.shim != nil:
		return r.shim.Kill(f.Times)
	case planted == "fail":
		r.faults.fail.Add(int32(f.Times))
	default:
		r.faults.kill.Add(int32(f.Times))
	}
	return nil
}

// refuse lets each restore, or transaction of nft, fail that has a text in it, or that names one endpoint: the first new one
// of the changes that follow. These are drawn by lot, so the endpoint is, and whoever writes only what changed meets it as well.
func (r *repetition) refuse(ctx context.Context, f *scenarios.Fault, name string) error {
	d, err := r.wound(ctx, f, name, &damage{planted: "refuse"})
	if err != nil {
		return err
	}
	if f.Text != "" {
		lift, err := r.shim.Refuse(f.Text)
		if err != nil {
			return err
		}
		r.follow(d)
		r.hold(d, f.For, lift)
		return nil
	}
	known := map[string]bool{}
	for _, slice := range r.world.Objects().Slices {
		for _, endpoint := range slice.Endpoints {
			known[endpoint.Addresses[0]] = true
		}
	}
	lift := func() error { return nil }
	var planting sync.Mutex
	ended := false
	r.damages.meets = func(object runtime.Object) {
		planting.Lock()
		defer planting.Unlock()
		addr := newAddress(object, known)
		if addr == "" || ended {
			return
		}
		r.damages.meets = nil
		planted, err := r.shim.Refuse(" "+addr+" ", " "+addr+":", "["+addr+"]:")
		if err != nil {
			r.fail(err)
			return
		}
		lift = planted
		r.note(d, "what names endpoint %s is refused", addr)
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

// newAddress is that of an endpoint that is not known yet; empty: there is none.
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

// lock holds the xtables lock.
func (r *repetition) lock(ctx context.Context, f *scenarios.Fault, name string) error {
	holding, letGo := context.WithCancel(ctx)
	held := make(chan struct{})
	failed := make(chan error, 1)
	go func() { failed <- HoldLock(holding, r.lab.LockFile, longest, func() { close(held) }) }()
	select {
	case <-held:
	case err := <-failed:
		letGo()
		return err
	}
	d, err := r.wound(ctx, f, name, &damage{})
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

// longest is beyond what a fault may hold by itself.
const longest = 2 * time.Hour

// note tells what a fault hit.
func (r *repetition) note(d *damage, format string, args ...any) {
	r.say.message(message{Note: d.fault + ": " + fmt.Sprintf(format, args...)})
}

// hold is what ends a fault that holds, at its time or when all are healed.
type hold struct {
	early context.CancelFunc
	done  chan error
}

// hold ends a fault after a time, 0: when it is healed.
func (r *repetition) hold(d *damage, span time.Duration, end func() error) {
	holding, early := context.WithCancel(context.Background())
	h := &hold{early: early, done: make(chan error, 1)}
	r.damages.mu.Lock()
	r.damages.holds = append(r.damages.holds, h)
	r.damages.mu.Unlock()
	go func() {
		defer early()
		if span == 0 {
			<-holding.Done()
		} else {
			_ = wait(holding, span)
		}
		var err error
		if end != nil {
			err = end()
		}
		d.end(r.clock.Now())
		if err != nil {
			err = fmt.Errorf("end of %s: %w", d.fault, err)
		}
		h.done <- err
	}()
}

// heal ends everything that faults still hold or have planted.
func (r *repetition) heal(ctx context.Context) error {
	r.damages.mu.Lock()
	holds := r.damages.holds
	r.damages.holds = nil
	r.damages.mu.Unlock()
	var errs []error
	for _, h := range holds { // all at once: what ends one may wait for what another holds, such as the lock
		h.early()
	}
	for _, h := range holds {
		errs = append(errs, <-h.done)
	}
	if r.shim != nil {
		_, err := r.shim.ClearFaults()
		errs = append(errs, err)
	}
	errs = append(errs, r.healAPI())
	r.faults.fail.Store(0)
	r.faults.kill.Store(0)
	for _, d := range r.open() {
		if d.planted == "" {
			continue
		}
		d.mu.Lock()
		hit := d.hit
		if !hit {
			d.close(r.clock.Now())
		}
		d.mu.Unlock()
		if !hit {
			r.note(d, "it hit nothing")
			continue
		}
		d.endStruck()
	}
	return errors.Join(errs...)
}
