package netns

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// globals are the files through which root changes what is the machine's, not the namespace's; container runtimes keep the
// same ones from their containers.
var globals = []string{"/sys", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"}

// ownSysctls are the network namespace's own.
const ownSysctls = "/proc/sys/net"

// keptCapabilities are what a proxier may need: rules, sockets, eBPF programs, its own processes and files. Not among them:
// mounts, kernel modules, devices, the clock, tracing of other processes.
var keptCapabilities = map[uintptr]bool{
	unix.CAP_NET_ADMIN: true, unix.CAP_NET_RAW: true, unix.CAP_NET_BIND_SERVICE: true, unix.CAP_NET_BROADCAST: true,
	unix.CAP_BPF: true, unix.CAP_PERFMON: true,
	unix.CAP_CHOWN: true, unix.CAP_DAC_OVERRIDE: true, unix.CAP_DAC_READ_SEARCH: true, unix.CAP_FOWNER: true, unix.CAP_FSETID: true,
	unix.CAP_SETUID: true, unix.CAP_SETGID: true, unix.CAP_SETPCAP: true, unix.CAP_SETFCAP: true, unix.CAP_KILL: true,
	unix.CAP_IPC_LOCK: true, unix.CAP_IPC_OWNER: true, unix.CAP_SYS_NICE: true, unix.CAP_SYS_RESOURCE: true,
}

// Confine takes from the calling thread, and so from what it starts, the ways to change the machine: it makes what is
// global of /sys and /proc read-only in a mount namespace of its own, and drops capabilities that no proxier needs. There
// is no way back: the goroutine must be locked to the thread and end with it. In a user namespace the kernel itself
// refuses all that, and nothing is done.
//
// Before Linux 5.12, which cannot change mounts one by one, only the capabilities go. What a container's runtime does not
// let its root do, it keeps from the machine itself.
func Confine() error {
	if err := Guard(); err != nil {
		return err
	}
	if InUserNamespace() {
		return nil
	}
	refused := func(err error) bool { return errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) }
	if err := readOnly(); err != nil && !refused(err) && !errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("confine: %w", err)
	}
	for capability := uintptr(0); ; capability++ {
		if keptCapabilities[capability] {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, capability, 0, 0, 0)
		if refused(err) || errors.Is(err, unix.EINVAL) { // EINVAL: past the last one that this kernel has
			return nil
		}
		if err != nil {
			return fmt.Errorf("confine: drop capability %d: %w", capability, err)
		}
	}
}

func readOnly() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	for _, path := range append([]string{ownSysctls}, globals...) {
		err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
		if errors.Is(err, unix.ENOENT) {
			continue // not in this kernel
		}
		if err == nil && path != ownSysctls {
			err = unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	// What lies below it was bound before, and is writable again.
	err := unix.MountSetattr(unix.AT_FDCWD, ownSysctls, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	if err != nil {
		return fmt.Errorf("%s: %w", ownSysctls, err)
	}
	return nil
}
