package netns

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/temporary"
)

// The environment variables that the parent sets for the worker.
const (
	envParent   = "SYNCLAB_PARENT_NETNS" // identity of the parent's network namespace
	envDir      = "SYNCLAB_LAB_DIR"      // the private directory
	envLifeline = "SYNCLAB_LIFELINE"     // file descriptor of a pipe that closes when the parent ends
	envEntered  = "SYNCLAB_LAB_NETNS"    // set by Enter for the worker's children: identity of the worker's namespace
	envKernel   = "SYNCLAB_KERNEL"       // read by TestMain: path of the kernel for the tests
	envLock     = "XTABLES_LOCKFILE"     // read by iptables-legacy, whose default, /run/xtables.lock, belongs to the machine
)

// grace is the time that an interrupted worker has to write its last records.
const grace = 10 * time.Second

// ErrUnavailable means that this machine, or this user, cannot make network namespaces. Other errors wrap it.
var ErrUnavailable = errors.New("network namespaces are not available")

// WorkerError is a failed worker. If it exited (Exited), it has written the cause to standard error. If a signal killed
// it, it has written nothing.
type WorkerError struct {
	Status int            // its exit status
	Signal syscall.Signal // that killed it; 0: it exited
}

// Exited reports whether the worker ended by itself.
func (e *WorkerError) Exited() bool { return e.Signal == 0 }

func (e *WorkerError) Error() string {
	if e.Exited() {
		return fmt.Sprintf("exit status %d", e.Status)
	}
	return fmt.Sprintf("signal: %v", e.Signal)
}

// workerError returns the end of a worker.
func workerError(exit *exec.ExitError) *WorkerError {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return &WorkerError{Signal: status.Signal()}
	}
	return &WorkerError{Status: exit.ExitCode()}
}

// Reexec runs this program with args as a worker in new namespaces and waits for it. The environment is the parent's
// plus env ("NAME=value"). When ctx ends, the worker gets SIGINT, and SIGKILL after 10 s. A non-zero exit status is a
// *WorkerError. If namespaces cannot be made, the error wraps ErrUnavailable and gives the reason.
//
// The worker has a separate process group: Ctrl-C reaches it once, from here, and not also from the terminal.
func Reexec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, env []string, args ...string) error {
	_, _ = temporary.Sweep(os.TempDir()) // a failed sweep does not prevent a run
	return reexec(ctx, stdin, stdout, stderr, env, args...)
}

// reexec is Reexec without removing what killed runs left.
func reexec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, env []string, args ...string) error {
	dir, err := newDir()
	if err != nil {
		return err
	}
	defer dir.Remove()

	// The kernel sends the parent-death signal when the forking thread ends, not the process: keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	parent, err := Current()
	if err != nil {
		return err
	}
	build := func(user bool) (*exec.Cmd, func(), error) {
		r, w, err := os.Pipe()
		if err != nil {
			return nil, nil, fmt.Errorf("lifeline: %w", err)
		}
		cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
		cmd.Args[0] = os.Args[0]
		cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, stderr
		cmd.ExtraFiles = []*os.File{r} // file descriptor 3
		cmd.Env = append(environ(), env...)
		cmd.Env = append(cmd.Env, envParent+"="+parent, envDir+"="+dir.lab, envLifeline+"=3",
			envLock+"="+dir.lock)
		cmd.SysProcAttr = attributes(user)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = grace
		return cmd, func() { r.Close(); w.Close() }, nil
	}
	// In a container, root may lack CAP_SYS_ADMIN. Then a user namespace is necessary, as for ordinary users.
	user := os.Geteuid() != 0
	for {
		cmd, hangUp, err := build(user)
		if err != nil {
			return err
		}
		err = cmd.Start()
		if err == nil {
			err = cmd.Wait()
			hangUp()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				return workerError(exit)
			}
			return err
		}
		hangUp()
		if !user && errors.Is(err, unix.EPERM) {
			user = true
			continue
		}
		return unavailable(user, err)
	}
}

// sbin are the folders of network tools that an ordinary user's PATH may lack.
const sbin = "/usr/local/sbin:/usr/sbin:/sbin"

// environ returns the parent's environment without Synclab's variables, because a worker may start another worker
// (tests do). The worker is root in its namespaces, so its PATH includes sbin.
func environ() []string {
	var kept []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch name {
		case envParent, envDir, envLifeline, envEntered, envLock, "PATH":
		default:
			kept = append(kept, kv)
		}
	}
	path := sbin
	if old := os.Getenv("PATH"); old != "" {
		path = old + ":" + sbin
	}
	return append(kept, "PATH="+path)
}

// attributes returns the namespaces of a worker. The kernel kills every process of a PID namespace when its first
// process ends, so the worker's children end with it. The mount namespace allows a matching /proc. System V's shared memory
// ends with the IPC namespace; the UTS namespace has its own host name.
func attributes(user bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setsid:     true, // without the user's terminal
	}
	for file, flag := range map[string]uintptr{"ipc": unix.CLONE_NEWIPC, "uts": unix.CLONE_NEWUTS} { // kernels may lack them
		if _, err := os.Stat("/proc/self/ns/" + file); err == nil {
			attr.Cloneflags |= flag
		}
	}
	if user {
		// The network namespace must come after the id mapping: files below /proc/net belong to the user who is root in
		// the user namespace when the network namespace is made.
		attr.Cloneflags = attr.Cloneflags&^unix.CLONE_NEWNET | unix.CLONE_NEWUSER
		attr.Unshareflags = unix.CLONE_NEWNET
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// unavailable returns an error with the reason for the kernel's refusal and a remedy.
func unavailable(user bool, cause error) error {
	why := "the kernel refused"
	switch {
	case sysctl("kernel/unprivileged_userns_clone") == "0" && user:
		why = "user namespaces are off for ordinary users: run as root, or `sysctl kernel.unprivileged_userns_clone=1`"
	case sysctl("user/max_user_namespaces") == "0" && user:
		why = "user namespaces are off: run as root, or `sysctl user.max_user_namespaces=10000`"
	case sysctl("user/max_net_namespaces") == "0":
		why = "network namespaces are off: `sysctl user.max_net_namespaces=10000`"
	case sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1" && user:
		why = "AppArmor restricts user namespaces: run as root, or `sysctl kernel.apparmor_restrict_unprivileged_userns=0`"
	case errors.Is(cause, unix.EPERM) && user:
		why = "not allowed here (a container's seccomp filter, or a chroot?): run as root, or the container with --privileged"
	case errors.Is(cause, unix.ENOSPC):
		why = "too many namespaces or too deep: see the sysctls user.max_user_namespaces and user.max_net_namespaces"
	case errors.Is(cause, unix.EINVAL):
		why = "the kernel lacks CONFIG_NET_NS, CONFIG_PID_NS or CONFIG_USER_NS"
	}
	return fmt.Errorf("%w: %s: %w", ErrUnavailable, why, cause)
}

func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// ExitCode returns the exit status after Reexec: the worker's own, 128+n for signal n as in a shell, or 1 if the worker
// never ran.
func ExitCode(err error) int {
	var worker *WorkerError
	switch {
	case err == nil:
		return 0
	case !errors.As(err, &worker):
		return 1
	case !worker.Exited():
		return 128 + int(worker.Signal)
	}
	return worker.Status
}

// Runner is *testing.M, without importing package testing.
type Runner interface{ Run() int }

// TestMain runs a test binary's tests inside a namespace: call os.Exit(netns.TestMain(m)) in TestMain. Outside, it runs
// the binary again with the same arguments in a namespace; inside, it runs the tests. If namespaces cannot be made, it
// runs no test and prints the reason; the status is then 0, or 1 if SYNCLAB_REQUIRE_NAMESPACE is set. With
// SYNCLAB_KERNEL, the path of a User-mode Linux kernel, the tests run on that kernel. With -bench and
// without -run, only benchmarks run, because the tests of these packages take minutes.
func TestMain(m Runner) int {
	if IsGuest() {
		RunGuest()
	}
	if Inside() {
		if _, err := Enter(); err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: entering the namespace:", err)
			return 1
		}
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	// `go test` sends SIGQUIT to tests that hang, to print their goroutines. These are in the worker, which has a
	// separate deadline (-test.timeout) and prints them itself.
	signal.Notify(make(chan os.Signal, 1), unix.SIGQUIT)
	args := benchmarksAlone(os.Args[1:])
	var err error
	if kernel := os.Getenv(envKernel); kernel == "" {
		err = Reexec(ctx, os.Stdin, os.Stdout, os.Stderr, nil, args...)
	} else {
		err = Boot(ctx, kernel, nil, os.Stdout, os.Stderr, os.Stderr, nil, args...)
	}
	var worker *WorkerError
	switch {
	case errors.Is(err, ErrUnavailable):
		if os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") != "" {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		fmt.Fprintln(os.Stderr, "SKIP: all tests of this package:", err)
		return 0
	case err != nil && !errors.As(err, &worker):
		fmt.Fprintln(os.Stderr, "FAIL:", err)
	}
	return ExitCode(err)
}

// short reports whether this is a test binary with -short.
func short() bool {
	f := flag.Lookup("test.short")
	return f != nil && f.Value.String() == "true"
}

// benchmarksAlone disables all tests in a test binary's arguments if they select benchmarks but no tests.
func benchmarksAlone(args []string) []string {
	const bench, run = "-test.bench=", "-test.run="
	asked := func(flag string) bool {
		return slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, flag) && arg != flag })
	}
	if asked(bench) && !asked(run) {
		return append([]string{run + "^$"}, args...)
	}
	return args
}
