package process

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/outfile"
)

// Options say what to start and how to stop it.
type Options struct {
	// Path is the command: a path, or a name to look up on PATH.
	Path string
	Args []string // without the command's name
	// Env is the whole environment ("NAME=value"); nil means this process's environment.
	Env []string
	// Stdin is written to its standard input, which then stays open. Empty: standard input is empty.
	Stdin string
	// Dir is the working directory; empty means this process's directory.
	Dir string
	// LogFile gets standard output and error. Start appends to it, so that one file covers a subject and its restarts.
	LogFile string
	// Name is the process's name in errors. Default: the base name of Path.
	Name string
	// Confine, if set, runs on the thread that then starts the command. The thread is used for nothing else.
	Confine func() error
	// Grace is the time between SIGTERM and SIGKILL. Default 10 s.
	Grace time.Duration
}

// errorLines is the number of log lines in an error.
const errorLines = 12

// Process is a command that was started.
type Process struct {
	opts Options
	pid  int
	log  int64 // offset of its output in the log file
	// stdin keeps its standard input open; nil: it has none.
	stdin *os.File

	stopping atomic.Bool
	done     chan struct{}

	mu    sync.Mutex // held while signals are sent, so that no signal reaches a later process with the same id
	gone  bool       // reaped: pid is no longer valid
	state *os.ProcessState
	final usage // of a process that has exited
	err   error
}

// Start runs the command. When ctx ends, the command is stopped as by Stop.
func Start(ctx context.Context, opts Options) (*Process, error) {
	opts.Name = cmp.Or(opts.Name, filepath.Base(opts.Path))
	opts.Grace = cmp.Or(opts.Grace, 10*time.Second)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Name, err)
	}
	// A subject that has ended may have made it a link, or a FIFO without a reader.
	log, err := os.OpenFile(opts.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: log: %w", opts.Name, err)
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: log: %w", opts.Name, err)
	}
	p := &Process{opts: opts, log: before.Size(), done: make(chan struct{})}
	cmd := exec.Command(opts.Path, opts.Args...)
	cmd.Env, cmd.Dir = opts.Env, opts.Dir
	cmd.Stdout, cmd.Stderr = log, log
	if opts.Stdin != "" {
		in, out, err := inputOf(opts.Stdin)
		if err != nil {
			return nil, fmt.Errorf("start %s: standard input: %w", opts.Name, err)
		}
		defer in.Close()
		cmd.Stdin, p.stdin = in, out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}

	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		p.stdin.Close() // no error if there is none
		return nil, fmt.Errorf("start %s: %w", opts.Name, err)
	}
	context.AfterFunc(ctx, func() { _ = p.Stop(context.WithoutCancel(ctx)) })
	return p, nil
}

// inputOf returns a pipe with a text that fits into it.
func inputOf(text string) (in, out *os.File, err error) {
	if in, out, err = os.Pipe(); err != nil {
		return nil, nil, err
	}
	if _, err := out.WriteString(text); err != nil {
		return nil, nil, errors.Join(err, in.Close(), out.Close())
	}
	return in, out, nil
}

// run waits for the process from its start to its end. The kernel sends the parent-death signal when the forking thread
// ends, so the goroutine keeps its thread. A confined thread ends with the goroutine.
func (p *Process) run(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	if p.opts.Confine == nil {
		defer runtime.UnlockOSThread()
	} else if err := p.opts.Confine(); err != nil {
		started <- err
		return
	}
	if err := cmd.Start(); err != nil {
		started <- err
		return
	}
	p.pid = cmd.Process.Pid
	started <- nil

	awaitExit(p.pid)
	p.mu.Lock()
	_ = unix.Kill(-p.pid, unix.SIGKILL) // kill its remaining children; it is a zombie now, so the id is still valid
	exit := cmd.Wait()
	p.state = cmd.ProcessState
	p.final.own = p.state.UserTime() + p.state.SystemTime() // includes its children's times
	p.gone = true
	if !p.stopping.Load() {
		p.err = p.unexpected(exit)
	}
	p.mu.Unlock()
	_ = p.stdin.Close()
	close(p.done)
}

// awaitExit waits until the child has exited, and does not reap it.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// unexpected returns the error of a process that exited without Stop or Kill.
func (p *Process) unexpected(exit error) error {
	how := "exit status 0"
	if exit != nil {
		how = exit.Error()
	}
	last := p.Tail(errorLines)
	if last == "" {
		return fmt.Errorf("%s exited unexpectedly (%s) and logged nothing", p.opts.Name, how)
	}
	return fmt.Errorf("%s exited unexpectedly (%s); the last lines of its log:\n%s", p.opts.Name, how, last)
}

// PID returns the process's id in this PID namespace.
func (p *Process) PID() int { return p.pid }

// LogFile returns the path of its log.
func (p *Process) LogFile() string { return p.opts.LogFile }

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err returns, once Done is closed, why the process exited: nil after Stop or Kill. Otherwise the error has the exit
// status (also 0: a subject has no reason to exit) and the last lines of its log.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// State returns, once Done is closed, the exit state with the resources that the kernel counted; nil before. Its Maxrss
// is the largest of the process and its children: use PeakRSS instead.
func (p *Process) State() *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Stop sends SIGTERM, and SIGKILL to the group after the grace period or when ctx ends. It returns when the process is
// gone. An error means that the process had exited before, or that it needed SIGKILL. Err returns only the first error.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(unix.SIGTERM); err != nil {
		<-p.done
		return p.Err()
	}
	patience := time.NewTimer(p.opts.Grace)
	defer patience.Stop()
	why := ""
	select {
	case <-p.done:
		return nil
	case <-patience.C:
		why = fmt.Sprintf("did not exit within %s after SIGTERM", p.opts.Grace)
	case <-ctx.Done():
		why = "did not exit in time: " + context.Cause(ctx).Error()
	}
	if p.signal(unix.SIGKILL) != nil {
		<-p.done // it exited just now
		return nil
	}
	<-p.done
	return fmt.Errorf("%s %s and was killed; the last lines of its log:\n%s", p.opts.Name, why, p.Tail(errorLines))
}

// Kill sends SIGKILL to the process's group at once, like a crash. It returns when the process is gone; Err is then
// nil.
func (p *Process) Kill() {
	_ = p.signal(unix.SIGKILL)
	<-p.done
}

// signal sends SIGTERM to the process, as a kubelet does, or SIGKILL to the whole group: a running tool is part of it.
func (p *Process) signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return unix.ESRCH
	}
	// A zombie can still be signalled, but has exited by itself, before run noticed.
	if u, err := readUsage(p.pid); err == nil && u.zombie && !p.stopping.Load() {
		return unix.ESRCH
	}
	p.stopping.Store(true)
	if sig == unix.SIGTERM {
		return unix.Kill(p.pid, sig)
	}
	return unix.Kill(-p.pid, sig)
}

// tailBytes is the most bytes that Tail reads.
const tailBytes = 64 << 10

// Tail returns the last n lines of the process's log.
func (p *Process) Tail(n int) string {
	f, err := outfile.OpenBeside(p.opts.LogFile, os.O_RDONLY, 0)
	if err != nil {
		return ""
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return ""
	}
	from := max(p.log, size-tailBytes)
	text, err := io.ReadAll(io.NewSectionReader(f, from, size-from))
	if err != nil {
		return ""
	}
	lines := bytes.Split(bytes.TrimRight(text, "\n"), []byte("\n"))
	lines = lines[max(0, len(lines)-n):]
	return strings.ToValidUTF8(string(bytes.Join(lines, []byte("\n"))), "�")
}
