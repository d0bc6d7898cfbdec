package netns

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// globals returns the files that affect the whole machine, not one namespace: /sys, and what /proc has besides processes
// and links to their parts, if it is a folder or can be written.
func globals() ([]string, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := []string{"/sys"}
	for _, entry := range entries {
		name := entry.Name()
		stat, err := entry.Info()
		if err != nil || strings.Trim(name, "0123456789") == "" || stat.Mode()&fs.ModeSymlink != 0 || !stat.IsDir() && stat.Mode().Perm()&0o222 == 0 {
			continue
		}
		all = append(all, "/proc/"+name)
	}
	return all, nil
}

// ownSysctls belong to the network namespace.
const ownSysctls = "/proc/sys/net"

// keptCapabilities allow rules, sockets, files and child processes. The dropped ones allow mounts, kernel modules, raw I/O,
// setting the clock, real-time priorities, ptrace, perf events, and opening files by handle, which paths may hide. CAP_BPF is
// kept only for a subject that Synclab mounted a BPF file system for: no namespace separates BPF, and with CAP_NET_ADMIN a
// process of real root can attach a program to any cgroup of the machine.
var keptCapabilities = map[uintptr]bool{
	unix.CAP_NET_ADMIN: true, unix.CAP_NET_RAW: true, unix.CAP_NET_BIND_SERVICE: true, unix.CAP_NET_BROADCAST: true,
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_SETUID: true, unix.CAP_SETGID: true, unix.CAP_SETPCAP: true, unix.CAP_SETFCAP: true, unix.CAP_KILL: true,
	unix.CAP_IPC_LOCK: true, unix.CAP_IPC_OWNER: true, unix.CAP_SYS_RESOURCE: true,
}

// Confine protects the machine from the calling thread and its future children. In a new mount namespace all files are
// read-only, and homes, temporary folders, devices and /run are private, except for what is kept. Then Confine drops all
// capabilities except keptCapabilities, also in a user namespace: otherwise the mounts could be undone. This cannot be
// undone: lock the goroutine to the thread, and never unlock it.
//
// Before Linux 5.12 (mount_setattr), in a chroot, and where a container runtime forbids mounts, Confine only drops
// capabilities; open then says why files are not protected.
func Confine(kept Kept) (open, err error) {
	if err := Guard(); err != nil {
		return nil, err
	}
	closeOnExec()
	if err := protectFiles(kept); forbidden(err) {
		open = err
	} else if err != nil {
		return nil, fmt.Errorf("confine: %w", err)
	}
	if err := dropCapabilities(); err != nil {
		return nil, fmt.Errorf("confine: %w", err)
	}
	return open, nil
}

// closeOnExec keeps the descriptors that this process was started with from the programs that it starts: a folder's would
// lead out of the confinement.
func closeOnExec() {
	entries, _ := os.ReadDir("/proc/self/fd") // without /proc, Go's own descriptors are closed anyway
	for _, entry := range entries {
		if fd, err := strconv.Atoi(entry.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
}

// errChroot means that the root folder is not a mount, so that mounts below it cannot be made private.
var errChroot = errors.New("the root folder is that of a chroot")

// forbidden reports whether the kernel lacks a feature, or a container runtime forbids it.
func forbidden(err error) bool {
	causes := []error{unix.EPERM, unix.EACCES, unix.ENOSYS, errChroot}
	return slices.ContainsFunc(causes, func(cause error) bool { return errors.Is(err, cause) })
}

// dropCapabilities drops the thread's capabilities, and prevents that an executed program regains them.
func dropCapabilities() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData // 32 capabilities each
	if err := unix.Capget(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	final := false
	for capability := uintptr(0); capability < 64; capability++ {
		if keptCapabilities[capability] || capability == unix.CAP_BPF && ownBPF.Load() {
			continue
		}
		set, bit := &sets[capability/32], uint32(1)<<(capability%32)
		set.Permitted &^= bit
		set.Effective &^= bit
		set.Inheritable &^= bit
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EINVAL) { // EINVAL: this kernel does not have it
			return fmt.Errorf("drop capability %d: %w", capability, err)
		}
		final = final || errors.Is(err, unix.EPERM)
	}
	if final {
		// Without CAP_SETPCAP the bounding set stays. no_new_privs then prevents that programs gain capabilities.
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("ambient capabilities: %w", err)
	}
	if err := unix.Capset(&header, &sets[0]); err != nil {
		return fmt.Errorf("capabilities: %w", err)
	}
	return nil
}

// readOnly makes all mounts read-only, except those that belong to the namespaces.
func readOnly() error {
	paths, err := globals()
	if err != nil {
		return err
	}
	for _, path := range append([]string{ownSysctls}, paths...) {
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil && !errors.Is(err, unix.ENOENT) { // not every kernel has all
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, "/", unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("read-only files: %w", err)
	}
	own := []string{"/proc", ownSysctls}
	if ownBPF.Load() {
		own = append(own, bpfFS)
	}
	for _, path := range own {
		if err := unix.MountSetattr(unix.AT_FDCWD, path, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}); err != nil && !errors.Is(err, unix.EPERM) { // a container's own
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	return nil
}
