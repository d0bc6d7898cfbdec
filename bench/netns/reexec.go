package netns

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The environment by which parent and worker agree.
const (
	envParent   = "SYNCLAB_PARENT_NETNS" // identity of the network namespace the parent is in
	envDir      = "SYNCLAB_LAB_DIR"      // the lab's private directory
	envLifeline = "SYNCLAB_LIFELINE"     // file descriptor of the pipe that ends with the parent
	envEntered  = "SYNCLAB_LAB_NETNS"    // set by Enter: identity of the lab's namespace, for the worker's own children
	envLock     = "XTABLES_LOCKFILE"     // read by iptables-legacy: its default, /run/xtables.lock, is the machine's
)

// grace is how long a worker that was interrupted may take to write its last records.
const grace = 10 * time.Second

// ErrUnavailable is wrapped by errors that mean: this machine, or this user, cannot make network namespaces.
var ErrUnavailable = errors.New("network namespaces are not available")

// WorkerError is a worker that failed. One that ended by itself (Exited) has told why on its standard error; any other
// command that fails has told nobody.
type WorkerError struct{ *exec.ExitError }

// Unwrap gives the exit status.
func (e *WorkerError) Unwrap() error { return e.ExitError }

// Reexec runs this program with args as a worker in namespaces of its own and waits for it. The environment is the
// parent's and env ("NAME=value"). When ctx ends, the worker gets SIGINT, and SIGKILL after 10 s. An exit status that
// is not 0 is a *WorkerError; when namespaces cannot be made, the error wraps ErrUnavailable and says why.
//
// The worker has a process group of its own: Ctrl-C reaches it once, from here, not also from the terminal.
func Reexec(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer, env []string, args ...string) error {
	_, _ = Sweep(os.TempDir()) // what cannot be swept is no reason not to run
	dir, err := newDir(os.TempDir())
	if err != nil {
		return fmt.Errorf("lab directory: %w", err)
	}
	defer dir.remove()

	// The parent-death signal is sent when the thread that forked ends, not the process: keep the thread.
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
		cmd.ExtraFiles = []*os.File{r} // fd 3
		cmd.Env = append(environ(), env...)
		cmd.Env = append(cmd.Env, envParent+"="+parent, envDir+"="+dir.path, envLifeline+"=3",
			envLock+"="+filepath.Join(dir.path, lockName))
		cmd.SysProcAttr = attributes(user)
		cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
		cmd.WaitDelay = grace
		return cmd, func() { r.Close(); w.Close() }, nil
	}
	// Root may still lack CAP_SYS_ADMIN, in a container: then a user namespace is the way as for anybody else.
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
				return &WorkerError{exit}
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

// sbin are the folders of the network tools, which an ordinary user's PATH may lack.
const sbin = "/usr/local/sbin:/usr/sbin:/sbin"

// environ is the parent's environment without a lab's: a worker may start a lab of its own (tests do). The worker,
// root in its namespaces, has root's PATH.
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

// attributes are the namespaces of a worker. The PID namespace is what ends the worker's children with it: the kernel
// kills every process of a PID namespace whose first process is gone. The mount namespace lets /proc show it.
func attributes(user bool) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWPID,
		Pdeathsig:  unix.SIGKILL,
		Setpgid:    true,
	}
	if user {
		// The network namespace comes after the ids are mapped: files below /proc/net belong to who is root in the user
		// namespace at the moment when the network namespace is made.
		attr.Cloneflags = attr.Cloneflags&^unix.CLONE_NEWNET | unix.CLONE_NEWUSER
		attr.Unshareflags = unix.CLONE_NEWNET
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// unavailable says why the kernel refused the namespaces and what to change.
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

// ExitCode is the status to exit with after Reexec: the worker's own, 128+n for signal n as a shell has it, 1 when
// the worker never ran.
func ExitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	default:
		return 1
	}
}

// Runner is *testing.M, without the import of package testing.
type Runner interface{ Run() int }

// TestMain runs a test binary's tests inside a namespace: call os.Exit(netns.TestMain(m)) in TestMain. Outside, it
// runs the binary again with the same arguments in a namespace; inside, it runs the tests. Where namespaces cannot be
// made, no test of the package runs: the reason is printed, and the status is 0, or 1 when
// SYNCLAB_REQUIRE_NAMESPACE is set. With -bench and without -run, benchmarks run alone: tests of these packages take
// minutes.
func TestMain(m Runner) int {
	if Inside() {
		lab, err := Enter()
		if err != nil {
			fmt.Fprintln(os.Stderr, "FAIL: entering the namespace:", err)
			return 1
		}
		defer lab.Close()
		return m.Run()
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	// `go test` sends SIGQUIT to tests that hang, to see their goroutines: those are in the worker, which has its own
	// deadline (-test.timeout) and prints them itself.
	signal.Notify(make(chan os.Signal, 1), unix.SIGQUIT)
	err := Reexec(ctx, os.Stdin, os.Stdout, os.Stderr, nil, benchmarksAlone(os.Args[1:])...)
	var exit *exec.ExitError
	switch {
	case errors.Is(err, ErrUnavailable):
		if os.Getenv("SYNCLAB_REQUIRE_NAMESPACE") != "" {
			fmt.Fprintln(os.Stderr, "FAIL:", err)
			return 1
		}
		fmt.Fprintln(os.Stderr, "SKIP: all tests of this package:", err)
		return 0
	case err != nil && !errors.As(err, &exit):
		fmt.Fprintln(os.Stderr, "FAIL:", err)
	}
	return ExitCode(err)
}

// benchmarksAlone are the arguments of a test binary, with none of its tests where benchmarks were asked for and no test was.
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
