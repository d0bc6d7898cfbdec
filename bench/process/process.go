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
)

// Options say what is started, and how it is stopped.
type Options struct {
	// Path is the command: a path, or a name to look up on PATH.
	Path string
	Args []string // without the name
	// Env is the whole environment ("NAME=value"); nil is that of this process.
	Env []string
	// Dir is the working directory; empty is that of this process.
	Dir string
	// LogFile gets standard output and error. It is appended to, so that one file tells of a subject and its restarts.
	LogFile string
	// Name is what errors call it. Default: the base name of Path.
	Name string
	// Confine, if set, runs on the thread that then starts the command. The thread has no other use and is never reused.
	Confine func() error
	// Grace is how long it may take to end after SIGTERM. Default 10 s.
	Grace time.Duration
}

// errorLines is how much of the log an error carries.
const errorLines = 12

// Process is a command that was started.
type Process struct {
	opts Options
	pid  int
	log  int64 // where its part of the log file begins

	stopping atomic.Bool
	done     chan struct{}

	mu    sync.Mutex // held while signals are sent, so that none can reach a process that was given the same id later
	gone  bool       // reaped: pid means nothing any more
	state *os.ProcessState
	final usage // of a process that has ended
	err   error
}

// Start runs the command. When ctx ends, it is stopped as by Stop.
func Start(ctx context.Context, opts Options) (*Process, error) {
	opts.Name = cmp.Or(opts.Name, filepath.Base(opts.Path))
	opts.Grace = cmp.Or(opts.Grace, 10*time.Second)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Name, err)
	}
	log, err := os.OpenFile(opts.LogFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("start %s: log: %w", opts.Name, err)
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return nil, fmt.Errorf("start %s: log: %w", opts.Name, err)
	}
	cmd := exec.Command(opts.Path, opts.Args...)
	cmd.Env, cmd.Dir = opts.Env, opts.Dir
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}

	p := &Process{opts: opts, log: before.Size(), done: make(chan struct{})}
	started := make(chan error)
	go p.run(cmd, started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", opts.Name, err)
	}
	context.AfterFunc(ctx, func() { _ = p.Stop(context.WithoutCancel(ctx)) })
	return p, nil
}

// run is the process's life. The parent-death signal is sent when the thread that forked ends, so the goroutine keeps
// its thread all that time. A confined thread ends with the goroutine.
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
	_ = unix.Kill(-p.pid, unix.SIGKILL) // what it left behind; it is a zombie now, so the id is still its own
	exit := cmd.Wait()
	p.state = cmd.ProcessState
	p.final.own = p.state.UserTime() + p.state.SystemTime() // those of its children are in there
	p.gone = true
	if !p.stopping.Load() {
		p.err = p.unexpected(exit)
	}
	p.mu.Unlock()
	close(p.done)
}

// awaitExit waits until the child has ended, and leaves it to be reaped.
func awaitExit(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// unexpected is the error of a process that ended by itself.
func (p *Process) unexpected(exit error) error {
	how := "exit status 0"
	if exit != nil {
		how = exit.Error()
	}
	last := p.Tail(errorLines)
	if last == "" {
		return fmt.Errorf("%s ended by itself (%s) and had logged nothing", p.opts.Name, how)
	}
	return fmt.Errorf("%s ended by itself (%s); the last lines of its log:\n%s", p.opts.Name, how, last)
}

// PID is the process's id as this process sees it.
func (p *Process) PID() int { return p.pid }

// LogFile is where its output goes.
func (p *Process) LogFile() string { return p.opts.LogFile }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Err is, once Done is closed, why the process ended: nil when it was stopped, else how it ended by itself (exit status
// 0 too: a subject has no reason to end) and the last lines of its log.
func (p *Process) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// State is, once Done is closed, how the process ended, with the resources that the kernel counted; nil before. Its
// Maxrss is the largest of the process and its children: use PeakRSS.
func (p *Process) State() *os.ProcessState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// Stop ends the process: SIGTERM, and after the grace, or when ctx ends, SIGKILL to its group. It returns when the process
// is gone. An error means that it had ended by itself before, or that it took the SIGKILL; Err tells only the first.
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
		why = fmt.Sprintf("did not end within %s of SIGTERM", p.opts.Grace)
	case <-ctx.Done():
		why = "did not end in time: " + context.Cause(ctx).Error()
	}
	if p.signal(unix.SIGKILL) != nil {
		<-p.done // it ended just now
		return nil
	}
	<-p.done
	return fmt.Errorf("%s %s and was killed; the last lines of its log:\n%s", p.opts.Name, why, p.Tail(errorLines))
}

// Kill ends the process at once, as a crash would: SIGKILL to its group. It returns when the process is gone; Err is
// then nil.
func (p *Process) Kill() {
	_ = p.signal(unix.SIGKILL)
	<-p.done
}

// signal asks the process to end, as a kubelet does, or ends the whole group: a tool that runs is part of the subject.
func (p *Process) signal(sig unix.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return unix.ESRCH
	}
	// A zombie that run has not come to yet ended by itself, and can be signalled all the same.
	if u, err := readUsage(p.pid); err == nil && u.zombie && !p.stopping.Load() {
		return unix.ESRCH
	}
	p.stopping.Store(true)
	if sig == unix.SIGTERM {
		return unix.Kill(p.pid, sig)
	}
	return unix.Kill(-p.pid, sig)
}

// tailBytes is as far back as Tail reads.
const tailBytes = 64 << 10

// Tail is the last n lines that the process logged.
func (p *Process) Tail(n int) string {
	f, err := os.Open(p.opts.LogFile)
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
