package fault

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
)

// groups is where cgroup v2 is mounted.
const groups = "/sys/fs/cgroup"

// OwnGroup is the cgroup of this process, if it can account for memory.
func OwnGroup() (string, error) {
	controllers, err := os.ReadFile(filepath.Join(groups, "cgroup.controllers"))
	if err != nil {
		return "", fmt.Errorf("no cgroup v2: %w", err)
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

// limitGroup puts a process into a separate cgroup below this process's. Most containers do not allow that. A cgroup
// that has processes itself cannot have children with accounting.
func limitGroup(pid int, bytes int64) (end func() error, err error) {
	parent, err := OwnGroup()
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
	_ = writeGroup(group, "memory.swap.max", "0") // without swap there is no such file
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

// Name prefixes of cgroups. For groupAddedPrefix, the lab enabled the parent's memory accounting, until the group ends.
const (
	groupPrefix      = "synclab-"
	groupAddedPrefix = groupPrefix + "memory-"
	// groupAge is the age from which an empty group belongs to no run: a younger one may get its process soon.
	groupAge = time.Minute
)

// newGroup makes a cgroup, after it removed those of killed runs.
func newGroup(parent string) (string, error) {
	SweepGroups(parent)
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

// SweepGroups removes the cgroups of killed runs.
func SweepGroups(parent string) {
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
	return writeGroup(parent, "cgroup.subtree_control", "-memory")
}

// needsMemory is true for the lab's own groups and for groups with a memory limit.
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
