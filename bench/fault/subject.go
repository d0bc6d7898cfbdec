package fault

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/cgroup"
	"synclab/bench/netns"
	"synclab/bench/pass"
)

// killWithin is the time in which the subject is killed, at a random moment: in the middle of whatever it does then.
const killWithin = time.Second

// killed ends the subject and its tools, as a crash does, and restarts the subject at once.
func (r *Faults) killed(ctx context.Context, d *activeFault) error {
	p := r.Host.Process()
	if p == nil {
		return errors.New("no subject runs as a separate process")
	}
	if err := pass.Wait(ctx, time.Duration(d.random.Int64N(int64(killWithin)))); err != nil {
		return err
	}
	p.Kill()
	d.stillMissing = func() (string, error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if !d.synced {
			return "no sync since", nil
		}
		return "", nil
	}
	if err := r.start(ctx, d); err != nil {
		return err
	}
	if err := r.Host.Restart(ctx, d.step); err != nil {
		return err
	}
	r.Host.Subject.Disturbed() // the kill may have interrupted a write
	return nil
}

// limitMemory limits the memory of the subject and its children.
func (r *Faults) limitMemory(ctx context.Context, d *activeFault) (err error) {
	p := r.Host.Process()
	if p == nil {
		return errors.New("no subject runs as a separate process")
	}
	d.began = r.Clock.Now()
	r.Host.Mortal.Store(true)
	how := "in total (cgroup)"
	if d.stop, err = cgroup.Limit(p.PID(), d.Bytes); err != nil {
		how = fmt.Sprintf("of private writable memory per process (RLIMIT_DATA; %v)", err)
		if d.stop, err = limitData(p.PID(), d.Bytes); err != nil {
			return err
		}
	}
	if err := r.start(ctx, d); err != nil {
		return err
	}
	r.note(d, "the subject and its children are limited to %d MiB %s", d.Bytes>>20, how)
	return nil
}

// limitData limits the private writable memory of a process, and of each child that it starts later. RLIMIT_AS would not
// do: Go reserves far more addresses than it ever writes to.
func limitData(pid int, bytes int64) (end func() error, err error) {
	var before unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &before); err != nil {
		return nil, fmt.Errorf("RLIMIT_DATA of process %d: %w", pid, err)
	}
	limit := unix.Rlimit{Cur: min(uint64(bytes), before.Max), Max: before.Max}
	if err := unix.Prlimit(pid, unix.RLIMIT_DATA, &limit, nil); err != nil {
		return nil, fmt.Errorf("RLIMIT_DATA of process %d: %w", pid, err)
	}
	return func() error {
		err := unix.Prlimit(pid, unix.RLIMIT_DATA, &before, nil)
		if errors.Is(err, unix.ESRCH) {
			return nil // the limit ended it, or it was restarted
		}
		return err
	}, nil
}

// moreAddresses adds one address per family to the node: the last one in the address's network of 256.
func (r *Faults) moreAddresses(ctx context.Context, d *activeFault) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(netns.NodeDevice)
	if err != nil {
		return fmt.Errorf("%s: %w", netns.NodeDevice, err)
	}
	var ends []func() error
	d.stop = func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}
	var added []string
	for _, addr := range r.NodeIPs {
		more := besides(addr, r.Node)
		address := &netlink.Addr{IPNet: &net.IPNet{IP: more.AsSlice(), Mask: net.CIDRMask(more.BitLen(), more.BitLen())}}
		if more.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return fmt.Errorf("add address %s: %w", more, err)
		}
		added = append(added, more.String())
		ends = append(ends, func() error {
			if err := netlink.AddrDel(link, address); err != nil {
				return fmt.Errorf("delete address %s: %w", more, err)
			}
			return nil
		})
	}
	if err := r.start(ctx, d); err != nil {
		return err
	}
	r.note(d, "%s", strings.Join(added, ", "))
	if len(r.Config.NodePortAddresses) == 0 {
		r.note(d, "no rule needs to change, since nodePortAddresses is not set: recovery ends with the changes that follow")
	}
	return nil
}

func besides(addr netip.Addr, taken []netip.Addr) netip.Addr {
	bytes := addr.AsSlice()
	last := &bytes[len(bytes)-1]
	if *last == 254 {
		*last--
	} else {
		*last = 254
	}
	more, _ := netip.AddrFromSlice(bytes)
	for slices.Contains(taken, more) {
		more = more.Prev()
	}
	return more
}
