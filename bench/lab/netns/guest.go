package netns

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// envGuest is set by Boot's kernel command line, and makes this program the first process of the guest. The kernel passes
// what it does not know to that process.
const envGuest = "SYNCLAB_GUEST"

// IsGuest reports whether this process is the first one of a kernel that Boot started. It must call RunGuest.
func IsGuest() bool { return os.Getpid() == 1 && os.Getenv(envGuest) != "" }

// RunGuest is the first process of a guest. It mounts the guest's file systems, runs the worker of the host's order, and
// powers off. It does not return.
func RunGuest() {
	err := runGuest()
	if err != nil {
		fmt.Fprintln(os.Stderr, "synclab, first process of the guest:", err)
	}
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
	time.Sleep(time.Hour) // the first process must not end; an empty select is a deadlock without cgo
}

func runGuest() error {
	const mounted = "2"
	if os.Getenv(envGuest) != mounted {
		if err := mountGuest(); err != nil {
			return err
		}
		if err := os.Setenv(envGuest, mounted); err != nil {
			return err
		}
		return syscall.Exec(os.Args[0], os.Args, os.Environ()) // from the new root: workers start this file again
	}
	if err := os.Unsetenv(envGuest); err != nil {
		return err
	}
	output, err := rawLine("/dev/ttyS0")
	if err != nil {
		return err
	}
	line, err := rawLine("/dev/ttyS1")
	if err != nil {
		return err
	}
	answers, orders := json.NewEncoder(line), json.NewDecoder(line)
	if err := answers.Encode(answer{Ready: true}); err != nil {
		return err
	}
	var o order
	if err := orders.Decode(&o); err != nil {
		return fmt.Errorf("order of the host: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	off := make(chan struct{})
	go func() {
		defer close(off)
		defer cancel()
		for {
			var next order
			if orders.Decode(&next) != nil || next.Off {
				return
			}
			cancel() // order to interrupt the worker
		}
	}()
	end := o.work(ctx, output)
	err = errors.Join(drain(output), drain(os.Stderr), answers.Encode(answer{Ended: end}))
	<-off
	return err
}

// work runs the worker in new namespaces of the guest.
func (o *order) work(ctx context.Context, output *os.File) *ended {
	os.Clearenv()
	for _, kv := range o.Env {
		name, value, _ := strings.Cut(kv, "=")
		os.Setenv(name, value)
	}
	os.Args[0] = o.Name
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	fail := func(err error) *ended { return &ended{Error: fmt.Sprintf("in the guest: %v", err)} }
	if err := os.Chdir(o.Dir); err != nil {
		return fail(err)
	}
	input := os.Stdin
	if o.Input != "" {
		f, err := os.Open(o.Input)
		if err != nil {
			return fail(err)
		}
		defer f.Close()
		input = f
	}
	// No Sweep: locks of the machine's processes are not seen here, so folders in use would seem left behind.
	err := reexec(ctx, input, output, os.Stderr, nil, o.Args...)
	var worker *WorkerError
	switch {
	case err == nil:
		return &ended{}
	case errors.As(err, &worker):
		return &ended{Status: worker.Status, Signal: int(worker.Signal)}
	}
	return fail(err)
}

// mountGuest makes the root a layer of memory over the machine's files, which stay unchanged. Then it mounts the guest's
// own file systems.
func mountGuest() error {
	const room = "/tmp" // exists everywhere; the machine's own /tmp is in the lower layer
	if err := unix.Mount("tmpfs", room, "tmpfs", 0, "size=50%"); err != nil {
		return fmt.Errorf("mount tmpfs: %w", err)
	}
	upper, work, root := room+"/upper", room+"/work", room+"/root"
	for _, dir := range []string{upper, work, root} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir=/,upperdir="+upper+",workdir="+work); err != nil {
		return fmt.Errorf("mount overlay: %w", err)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := errors.Join(unix.PivotRoot(".", "."), unix.Unmount(".", unix.MNT_DETACH), os.Chdir("/")); err != nil {
		return fmt.Errorf("new root: %w", err)
	}
	for _, m := range []struct{ kind, at, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"cgroup2", "/sys/fs/cgroup", ""}, {"devtmpfs", "/dev", ""},
		{"devpts", "/dev/pts", ""}, {"tmpfs", "/dev/shm", ""}, {"tmpfs", "/run", ""},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, unix.MS_NOSUID, m.options); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := installModprobe(); err != nil {
		return err
	}
	_ = os.WriteFile("/proc/sys/net/netfilter/nf_conntrack_max", []byte(mostConntrack), 0) // older kernels may lack it
	return openConsole()
}

// installModprobe puts a modprobe in the guest that knows what the guest's kernel has built in. kube-proxy asks it whether
// there is IPVS before it removes what an earlier kube-proxy in mode ipvs left.
func installModprobe() error {
	const script = `#!/bin/sh
for name; do
	case $name in
	-*) ;;
	*) test -d "/sys/module/$name" || exit 1 ;;
	esac
done
`
	const path = "/usr/sbin/modprobe"
	_ = os.Remove(path) // the machine's, in the layer below: a link to kmod
	if err := os.WriteFile(path, []byte(script), 0o755); err != nil {
		return fmt.Errorf("modprobe of the guest: %w", err)
	}
	return nil
}

// mostConntrack is the largest number of conntrack entries in a guest, whose kernel is the lab's own.
const mostConntrack = "1100000"

// openConsole makes the console the standard error. The kernel could not open it: the machine's /dev may lack it.
func openConsole() error {
	f, err := rawLine("/dev/console")
	if err != nil {
		return err
	}
	defer f.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer null.Close()
	return errors.Join(unix.Dup2(int(null.Fd()), 0), unix.Dup2(int(f.Fd()), 1), unix.Dup2(int(f.Fd()), 2))
}

// rawLine opens a terminal that passes bytes unchanged.
func rawLine(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err == nil {
		t.Iflag, t.Oflag, t.Lflag = 0, 0, 0
		t.Cflag = t.Cflag&^(unix.CSIZE|unix.PARENB) | unix.CS8
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		err = unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, t)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", filepath.Base(path), err)
	}
	return f, nil
}

// drain waits until the host has what was written.
func drain(f *os.File) error { return unix.IoctlSetInt(int(f.Fd()), unix.TCSBRK, 1) }
