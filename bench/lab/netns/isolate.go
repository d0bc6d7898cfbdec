package netns

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"
)

// Available reports whether namespaces can be made here, and whether that needs a user namespace. Otherwise the error
// wraps ErrUnavailable. The kernel makes namespaces before it looks up the program. So Available runs a path that does
// not exist.
func Available(ctx context.Context) (user bool, err error) {
	user, err = Isolated(ctx, nil, "/nonexistent/program")
	var missing *fs.PathError
	if errors.As(err, &missing) && missing.Op == "fork/exec" && errors.Is(err, fs.ErrNotExist) {
		return user, nil
	}
	return user, err
}

// Isolated runs a command in a new, empty network namespace and waits for it. Callers use it to test features of a tool
// and the kernel; no rule survives. prepare sets the command's input and output; it may be called twice. A non-zero
// exit status is an *exec.ExitError. If namespaces cannot be made, the error wraps ErrUnavailable. The first result
// reports whether a user namespace was used.
func Isolated(ctx context.Context, prepare func(*exec.Cmd), name string, args ...string) (user bool, err error) {
	private, err := newDir()
	if err != nil {
		return false, err
	}
	defer private.Remove()
	runtime.LockOSThread() // for the parent-death signal, as in Reexec
	defer runtime.UnlockOSThread()
	for user = os.Geteuid() != 0; ; user = true {
		cmd := exec.CommandContext(ctx, name, args...)
		if prepare != nil {
			prepare(cmd)
		}
		if cmd.Env == nil {
			cmd.Env = environ()
		}
		cmd.Env = append(cmd.Env, envLock+"="+private.lock)
		cmd.SysProcAttr = attributes(user)
		if errors.Is(cmd.Err, exec.ErrNotFound) {
			return user, cmd.Err
		}
		err := cmd.Start()
		switch {
		case err == nil:
			return user, cmd.Wait()
		case !user && errors.Is(err, unix.EPERM):
			continue
		case errors.Is(err, os.ErrNotExist):
			return user, err
		default:
			return user, unavailable(user, err)
		}
	}
}
