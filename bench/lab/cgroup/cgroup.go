package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Own is the cgroup of this process, as a path. Where cgroup v2 is mounted varies: some machines also have version 1.
func Own() (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	groups, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return "", err
	}
	path, found := ownPath(string(mounts), string(groups))
	if !found {
		return "", errors.New("this process is in no mounted cgroup of version 2")
	}
	return path, nil
}

// ownPath finds a process's group of version 2, given its mountinfo and cgroup in /proc. A mount may show only a part of
// the groups.
func ownPath(mounts, groups string) (path string, found bool) {
	_, own, ok := strings.Cut("\n"+groups, "\n0::")
	if !ok {
		return "", false
	}
	own, _, _ = strings.Cut(own, "\n")
	for line := range strings.Lines(mounts) {
		mount, kind, _ := strings.Cut(line, " - ")
		fields := strings.Fields(mount)
		if !strings.HasPrefix(kind, "cgroup2 ") || len(fields) < 5 {
			continue
		}
		if within, err := filepath.Rel(fields[3], own); err == nil && filepath.IsLocal(within) {
			return filepath.Join(fields[4], within), true
		}
	}
	return "", false
}

// accounting is the cgroup of this process, if it can account for memory.
func accounting() (string, error) {
	own, err := Own()
	if err != nil {
		return "", err
	}
	if controllers, err := os.ReadFile(filepath.Join(own, "cgroup.controllers")); err != nil {
		return "", err
	} else if !strings.Contains(string(controllers), "memory") {
		return "", errors.New("cgroups do not account for memory")
	}
	return own, nil
}

// MayJoin returns an error if this process cannot make cgroups.
func MayJoin() error {
	own, err := Own()
	if err == nil {
		if err = unix.Access(own, unix.W_OK); err != nil {
			err = &fs.PathError{Op: "write", Path: own, Err: err}
		}
	}
	if err != nil {
		return fmt.Errorf("cannot make a cgroup: %w: run as root; a container needs a writable mount of cgroup v2", err)
	}
	return nil
}

// Join moves this process, and with it the children that it starts later, into a cgroup of its own. leave moves this
// process back and removes the group; other processes must have ended.
func Join() (group string, leave func() error, err error) {
	parent, err := Own()
	if err != nil {
		return "", nil, err
	}
	Sweep(parent)
	if group, err = os.MkdirTemp(parent, groupJoinedPrefix); err != nil {
		return "", nil, err
	}
	const itself = "0"
	if err := write(group, "cgroup.procs", itself); err != nil {
		return "", nil, errors.Join(err, os.Remove(group))
	}
	return group, func() error {
		if err := write(parent, "cgroup.procs", itself); err != nil {
			return err
		}
		return patiently(func() error { return os.Remove(group) })
	}, nil
}

// patiently repeats what fails while a group still has processes: children may start or end meanwhile.
func patiently(do func() error) error {
	const tries, pause = 100, 10 * time.Millisecond
	for try := 1; ; try++ {
		err := do()
		if err == nil || try == tries {
			return err
		}
		time.Sleep(pause)
	}
}

// Limit puts a process into a separate cgroup below this process's. Most containers do not allow that. A cgroup
// that has processes itself cannot have children with accounting.
func Limit(pid int, bytes int64) (end func() error, err error) {
	parent, err := accounting()
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
			_ = write(parent, "cgroup.procs", member)
		}
		return removeGroup(group)
	}
	if err := write(group, "memory.max", strconv.FormatInt(bytes, 10)); err != nil {
		return nil, errors.Join(err, leave())
	}
	_ = write(group, "memory.swap.max", "0") // without swap there is no such file
	if err := write(group, "cgroup.procs", strconv.Itoa(pid)); err != nil {
		return nil, errors.Join(err, leave())
	}
	return func() error { return patiently(leave) }, nil
}

func write(dir, file, value string) error {
	return os.WriteFile(filepath.Join(dir, file), []byte(value), 0o644)
}

// Name prefixes of cgroups. For groupAddedPrefix, the lab enabled the parent's memory accounting, until the group ends.
// Groups with groupJoinedPrefix need no accounting.
const (
	groupPrefix       = "synclab-"
	groupAddedPrefix  = groupPrefix + "memory-"
	groupJoinedPrefix = groupPrefix + "joined-"
	// groupAge is the age from which an empty group belongs to no run: a younger one may get its process soon.
	groupAge = time.Minute
)

// newGroup makes a cgroup, after it removed those of killed runs.
func newGroup(parent string) (string, error) {
	Sweep(parent)
	prefix := groupPrefix
	if others, _ := filepath.Glob(filepath.Join(parent, groupAddedPrefix+"*")); len(others) > 0 {
		prefix = groupAddedPrefix // the last of these groups to end restores the parent
	}
	accounted, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return "", err
	}
	added := !slices.Contains(strings.Fields(string(accounted)), "memory")
	if added {
		prefix = groupAddedPrefix
		if err := write(parent, "cgroup.subtree_control", "+memory"); err != nil {
			return "", err
		}
	}
	group, err := os.MkdirTemp(parent, prefix)
	if err != nil && added {
		_ = write(parent, "cgroup.subtree_control", "-memory")
	}
	return group, err
}

// Sweep removes the cgroups of killed runs.
func Sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, groupPrefix+"*"))
	for _, dir := range left {
		if stat, err := os.Stat(dir); err == nil && stat.IsDir() && time.Since(stat.ModTime()) > groupAge {
			_ = removeGroup(dir) // fails while the group has processes
		}
	}
}

// removeGroup removes a cgroup without processes. It ends the parent's memory accounting if the lab enabled it and no
// other group needs it.
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
	return write(parent, "cgroup.subtree_control", "-memory")
}

// needsMemory is true for the lab's own groups and for groups with a memory limit.
func needsMemory(group string) bool {
	if name := filepath.Base(group); strings.HasPrefix(name, groupPrefix) {
		return !strings.HasPrefix(name, groupJoinedPrefix)
	}
	for _, file := range []string{"memory.max", "memory.high"} {
		if bound, err := os.ReadFile(filepath.Join(group, file)); err == nil && strings.TrimSpace(string(bound)) != "max" {
			return true
		}
	}
	return false
}
