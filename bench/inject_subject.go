package bench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"synclab/bench/netns"
	"synclab/scenarios"
)

// killWithin is the time in which the subject is killed, at a moment that is drawn by lot: amid whatever it does then.
const killWithin = time.Second

// killed ends the subject as a crash does, with the tools that it runs, and starts it again at once.
func (r *repetition) killed(ctx context.Context, f *scenarios.Fault, name string, lot *rand.Rand) error {
	s, ok := r.subject.(*outside)
	if !ok {
		return errors.New("no subject runs as a process of its own")
	}
	if err := wait(ctx, time.Duration(lot.Int64N(int64(killWithin)))); err != nil {
		return err
	}
	s.process.Kill()
	d, err := r.wound(ctx, f, name, &damage{})
	if err != nil {
		return err
	}
	if err := r.restart(ctx, name); err != nil {
		return err
	}
	r.subject.disturbed() // in the middle of a write
	r.follow(d)
	return nil
}

// revive starts a subject again that a fault ended.
func (r *repetition) revive(ctx context.Context) error {
	s, ok := r.subject.(*outside)
	if !ok || !s.mortal.Load() {
		return nil
	}
	select {
	case <-s.process.Done():
	default:
		return nil
	}
	lines := strings.Split(strings.TrimSpace(fmt.Sprint(s.process.Err())), "\n")
	r.say.message(message{Note: fmt.Sprintf("%s, and is started again: %s", r.Subject, lines[0])})
	if err := r.stop(); err != nil {
		return err
	}
	if err := r.start(ctx, 0); err != nil {
		return err
	}
	r.subject.disturbed()
	return nil
}

// limitMemory bounds what the subject and its children may hold.
func (r *repetition) limitMemory(ctx context.Context, f *scenarios.Fault, name string) error {
	s, ok := r.subject.(*outside)
	if !ok {
		return errors.New("no subject runs as a process of its own")
	}
	began := r.clock.Now()
	s.mortal.Store(true)
	end, err := limitGroup(s.process.PID(), f.Bytes)
	how := "together, by a cgroup"
	if err != nil {
		how = fmt.Sprintf("each, of private writable memory, by RLIMIT_DATA (%v)", err)
		if end, err = limitData(s.process.PID(), f.Bytes); err != nil {
			return err
		}
	}
	d, err := r.wound(ctx, f, name, &damage{began: began})
	if err != nil {
		return errors.Join(err, end())
	}
	r.note(d, "the subject and its children may hold %d MiB %s", f.Bytes>>20, how)
	r.follow(d)
	r.hold(d, f.For, end)
	return nil
}

// limitData bounds the private writable memory of a process, and of each child that it starts from then on. It is not
// RLIMIT_AS: Go reserves far more addresses than it ever writes to.
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
			return nil // it died of the limit, or was started again
		}
		return err
	}, nil
}

// groups is where version 2 of control groups is mounted.
const groups = "/sys/fs/cgroup"

// ownGroup is the control group of this process, which can account for memory.
func ownGroup() (string, error) {
	controllers, err := os.ReadFile(filepath.Join(groups, "cgroup.controllers"))
	if err != nil {
		return "", fmt.Errorf("no cgroup of version 2: %w", err)
	}
	if !strings.Contains(string(controllers), "memory") {
		return "", errors.New("cgroups do not account for memory")
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	_, own, _ := strings.Cut(string(text), "0::")
	own, _, _ = strings.Cut(own, "\n")
	return filepath.Join(groups, own), nil
}

// limitGroup puts a process into a control group of its own below this process's. Most containers do not let it, and a
// group that has processes itself may have none below that is accounted for.
func limitGroup(pid int, bytes int64) (end func() error, err error) {
	parent, err := ownGroup()
	if err != nil {
		return nil, err
	}
	group, err := newGroup(parent)
	if err != nil {
		return nil, err
	}
	leave := func() error {
		members, _ := os.ReadFile(filepath.Join(group, "cgroup.procs"))
		for _, member := range strings.Fields(string(members)) {
			_ = writeGroup(parent, "cgroup.procs", member)
		}
		return removeGroup(group)
	}
	if err := writeGroup(group, "memory.max", strconv.FormatInt(bytes, 10)); err != nil {
		return nil, errors.Join(err, leave())
	}
	_ = writeGroup(group, "memory.swap.max", "0") // there is none, where there is no such file
	if err := writeGroup(group, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return nil, errors.Join(err, leave())
	}
	return func() error {
		const tries, pause = 100, 10 * time.Millisecond // children may start meanwhile
		for try := 1; ; try++ {
			err := leave()
			if err == nil || try == tries {
				return err
			}
			time.Sleep(pause)
		}
	}, nil
}

func writeGroup(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
}

// Names of control groups begin so; those of the second kind had their parent account for memory, which ends with them.
const (
	groupPrefix      = "synclab-"
	groupAddedPrefix = groupPrefix + "memory-"
	// groupAge: a group without processes that is younger may be of a run that is about to put one there.
	groupAge = time.Minute
)

// newGroup makes a control group of its own, after it removed what runs that were killed have left.
func newGroup(parent string) (string, error) {
	sweepGroups(parent)
	prefix := groupPrefix
	if others, _ := filepath.Glob(filepath.Join(parent, groupAddedPrefix+"*")); len(others) > 0 {
		prefix = groupAddedPrefix // the last of them to end restores the parent
	}
	accounted, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return "", err
	}
	added := !slices.Contains(strings.Fields(string(accounted)), "memory")
	if added {
		prefix = groupAddedPrefix
		if err := writeGroup(parent, "cgroup.subtree_control", "+memory"); err != nil {
			return "", err
		}
	}
	group, err := os.MkdirTemp(parent, prefix)
	if err != nil && added {
		_ = writeGroup(parent, "cgroup.subtree_control", "-memory")
	}
	return group, err
}

// sweepGroups removes the groups of killed runs.
func sweepGroups(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	for _, dir := range left {
		if stat, err := os.Stat(dir); err == nil && stat.IsDir() && time.Since(stat.ModTime()) > groupAge {
			_ = removeGroup(dir) // fails as long as there are processes in it
		}
	}
}

// removeGroup removes a group without processes, and what its parent did for it unless another group is there.
func removeGroup(group string) error {
	if err := os.Remove(group); err != nil {
		return err
	}
	parent := filepath.Dir(group)
	entries, err := os.ReadDir(parent)
	if err != nil || !strings.HasPrefix(filepath.Base(group), groupAddedPrefix) || slices.ContainsFunc(entries, func(entry fs.DirEntry) bool {
		return entry.IsDir() && needsMemory(filepath.Join(parent, entry.Name()))
	}) {
		return err
	}
	return writeGroup(parent, "cgroup.subtree_control", "-memory")
}

// needsMemory is true for the lab's own groups and for those that have a bound of memory.
func needsMemory(group string) bool {
	if strings.HasPrefix(filepath.Base(group), groupPrefix) {
		return true
	}
	for _, file := range []string{"memory.max", "memory.high"} {
		if bound, err := os.ReadFile(filepath.Join(group, file)); err == nil && strings.TrimSpace(string(bound)) != "max" {
			return true
		}
	}
	return false
}

// moreAddresses gives the node one more address in each family, the last in its own network of 256.
func (r *repetition) moreAddresses(ctx context.Context, f *scenarios.Fault, name string) error {
	if err := netns.Guard(); err != nil {
		return err
	}
	link, err := netlink.LinkByName(netns.NodeDevice)
	if err != nil {
		return fmt.Errorf("%s: %w", netns.NodeDevice, err)
	}
	var ends []func() error
	end := func() error {
		var errs []error
		for _, end := range ends {
			errs = append(errs, end())
		}
		return errors.Join(errs...)
	}
	var added []string
	for _, addr := range r.node {
		more := besides(addr)
		address := &netlink.Addr{IPNet: &net.IPNet{IP: more.AsSlice(), Mask: net.CIDRMask(more.BitLen(), more.BitLen())}}
		if more.Is6() {
			address.Flags = unix.IFA_F_NODAD
		}
		if err := netlink.AddrAdd(link, address); err != nil {
			return errors.Join(fmt.Errorf("address %s: %w", more, err), end())
		}
		added = append(added, more.String())
		ends = append(ends, func() error {
			if err := netlink.AddrDel(link, address); err != nil {
				return fmt.Errorf("address %s: %w", more, err)
			}
			return nil
		})
	}
	d, err := r.wound(ctx, f, name, &damage{})
	if err != nil {
		return errors.Join(err, end())
	}
	r.note(d, "%s", strings.Join(added, ", "))
	if len(r.config.NodePortAddresses) == 0 {
		r.note(d, "no rule need change, since nodePortAddresses is not set: what is waited for are the changes that follow")
	}
	r.follow(d)
	r.hold(d, f.For, end)
	return nil
}

func besides(addr netip.Addr) netip.Addr {
	bytes := addr.AsSlice()
	last := &bytes[len(bytes)-1]
	if *last == 254 {
		*last--
	} else {
		*last = 254
	}
	more, _ := netip.AddrFromSlice(bytes)
	return more
}
