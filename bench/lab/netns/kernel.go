package netns

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"synclab/bench/lab/temporary"
)

// bootTime is the longest time until a guest is ready: it takes a second on an idle machine.
const bootTime = 2 * time.Minute

// order is a message of the host to the guest.
type order struct {
	Args      []string // of the worker
	Name      string   // its name: os.Args[0]
	Env       []string
	Dir       string // working directory
	Input     string // file with the worker's standard input; empty: none
	Interrupt bool   // interrupt the worker; alone
	Off       bool   // power off; alone, after the worker's end
}

// answer is a message of the guest to the host.
type answer struct {
	Ready bool // for the order
	// Ended, when set, is the end of the worker.
	Ended *ended
}

type ended struct {
	Status int    // exit status, or 128 and the signal's number
	Signal int    // that killed the worker; 0: none
	Error  string // why no worker ran; empty: one did
}

// Boot runs this program with args as a worker, as Reexec does, on another kernel: a User-mode Linux kernel, which is an
// ordinary process of this user. The guest sees the machine's files, and writes to none of them: what it writes stays
// in its memory, and ends with it. It has no link out. stdin is read to its end before the guest starts.
//
// When ctx ends, the worker gets SIGINT; 10 s later, the guest is killed. A kernel that does not boot, or that ends before
// the worker does, is an error with the last lines of its console. stderr gets what the worker writes to its standard error,
// and log the kernel's messages after the boot; nil: they are dropped.
func Boot(ctx context.Context, kernel string, stdin io.Reader, stdout, stderr, log io.Writer, env []string, args ...string) error {
	_, _ = temporary.Sweep(os.TempDir()) // a failed sweep does not prevent a run
	dir, err := newDir()
	if err != nil {
		return err
	}
	defer dir.Remove()
	g := guest{dir: dir.Path, console: &console{worker: stderr, kernel: log}, answers: make(chan answer, 2)}
	o := order{Args: args, Name: os.Args[0], Env: append(environ(), env...)}
	if o.Dir, err = os.Getwd(); err != nil {
		return err
	}
	if stdin != nil {
		o.Input = filepath.Join(dir.Path, "stdin")
		if err := writeAll(o.Input, stdin); err != nil {
			return err
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	// The parent-death signal comes when the forking thread ends: keep the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := g.start(kernel, exe, stdout); err != nil {
		return fmt.Errorf("boot %s: %w", kernel, err)
	}
	return g.wait(ctx, o)
}

func writeAll(path string, from io.Reader) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

// guest is a kernel that runs.
type guest struct {
	dir     string
	cmd     *exec.Cmd
	console *console
	orders  *os.File
	answers chan answer
	readers sync.WaitGroup
}

// start starts the kernel. Its console is its standard output. Serial line 0 is the worker's standard output, serial
// line 1 has orders and answers.
func (g *guest) start(kernel, exe string, stdout io.Writer) error {
	var far, near []*os.File
	pipe := func(toGuest bool) error {
		r, w, err := os.Pipe()
		if err != nil {
			return err
		}
		if toGuest {
			far, near = append(far, r), append(near, w)
		} else {
			far, near = append(far, w), append(near, r)
		}
		return nil
	}
	err := errors.Join(pipe(false), pipe(true), pipe(false))
	defer func() { closeAll(far) }()
	if err != nil {
		closeAll(near)
		return err
	}
	cmd := exec.Command(kernel,
		"mem="+strconv.FormatUint(guestMemory()>>20, 10)+"M", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=1", "printk.time=1",
		"con=null", "con0=fd:0,fd:1", "ssl0=null,fd:3", "ssl1=fd:4,fd:5", "uml_dir="+g.dir+"/", "umid=uml",
		"init="+exe, envGuest+"=1")
	cmd.ExtraFiles = far // file descriptors 3, 4, 5
	cmd.Stdout, cmd.Stderr = g.console, g.console
	cmd.Env = []string{"HOME=" + g.dir, "TMPDIR=" + memoryFolder(g.dir), "PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL, Setsid: true}
	cmd.WaitDelay = grace // a process of the guest may hold the console open
	if err := cmd.Start(); err != nil {
		closeAll(near)
		return err
	}
	g.cmd, g.orders = cmd, near[1]
	g.readers.Go(func() {
		defer near[0].Close()
		if stdout == nil {
			stdout = io.Discard
		}
		if _, err := io.Copy(stdout, near[0]); err != nil {
			_, _ = io.Copy(io.Discard, near[0]) // the guest must not block
		}
	})
	g.readers.Go(func() {
		defer near[2].Close()
		defer close(g.answers)
		for from := json.NewDecoder(near[2]); ; {
			var a answer
			if from.Decode(&a) != nil {
				return
			}
			g.answers <- a
		}
	})
	return nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// wait gives the guest its order, and waits for its end.
func (g *guest) wait(ctx context.Context, o order) error {
	defer g.orders.Close()
	gone := make(chan error, 1)
	go func() {
		err := g.cmd.Wait()
		// The kernel's helpers have its process group.
		_ = unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
		g.readers.Wait()
		gone <- err
	}()
	kill := func() error {
		_ = unix.Kill(-g.cmd.Process.Pid, unix.SIGKILL)
		return <-gone
	}
	patience := time.NewTimer(bootTime)
	defer patience.Stop()
	select {
	case a := <-g.answers:
		if !a.Ready {
			return g.failed("did not boot", kill())
		}
	case <-patience.C:
		_ = kill()
		return g.failed(fmt.Sprintf("did not boot within %v", bootTime), nil)
	case <-ctx.Done():
		_ = kill()
		return context.Cause(ctx)
	}
	g.console.pass(true)
	if err := json.NewEncoder(g.orders).Encode(o); err != nil {
		return errors.Join(fmt.Errorf("order to the guest: %w", err), kill())
	}
	interrupted := ctx.Done()
	for {
		select {
		case a, ok := <-g.answers:
			if !ok {
				return g.failed("ended before the worker", <-gone)
			}
			g.console.pass(false) // the kernel says that it powers off
			_ = json.NewEncoder(g.orders).Encode(order{Off: true})
			<-gone
			return a.Ended.err()
		case <-interrupted:
			interrupted = nil
			_ = json.NewEncoder(g.orders).Encode(order{Interrupt: true})
			patience.Reset(2 * grace)
		case <-patience.C:
			if ctx.Err() != nil {
				_ = kill()
				return context.Cause(ctx)
			}
		}
	}
}

func (e *ended) err() error {
	switch {
	case e.Error != "":
		return errors.New(e.Error)
	case e.Status != 0 || e.Signal != 0:
		return &WorkerError{Status: e.Status, Signal: syscall.Signal(e.Signal)}
	}
	return nil
}

// failed returns an error with the last lines of the console.
func (g *guest) failed(what string, cause error) error {
	text := fmt.Sprintf("the kernel %s %s", g.cmd.Path, what)
	if cause != nil {
		text += ": " + cause.Error()
	}
	if said := g.console.tail(); said != "" {
		text += "; its console:\n\t" + strings.ReplaceAll(said, "\n", "\n\t")
	}
	return errors.New(text)
}

// console keeps the console's last bytes. From the guest's start to the worker's end it also passes on whole lines: the
// kernel's, which begin with a time (printk.time), and others, which are the worker's.
type console struct {
	worker, kernel io.Writer // nil: drop

	mu     sync.Mutex
	last   []byte
	line   []byte // its end is still to come
	passes bool
}

var kernelLine = regexp.MustCompile(`^\[ *[0-9]+\.[0-9]{6}\] `)

const consoleKept = 4 << 10

func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = append(c.last, p...)
	c.last = c.last[max(0, len(c.last)-consoleKept):]
	if !c.passes {
		return len(p), nil
	}
	c.line = append(c.line, p...)
	for {
		end := bytes.IndexByte(c.line, '\n') + 1
		if end == 0 {
			return len(p), nil
		}
		c.passLine(c.line[:end])
		c.line = c.line[end:]
	}
}

func (c *console) passLine(line []byte) {
	to := c.worker
	if kernelLine.Match(line) {
		to = c.kernel
	}
	if to != nil {
		_, _ = to.Write(line)
	}
}

func (c *console) pass(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.passes = on; !on && len(c.line) > 0 {
		c.passLine(c.line)
		c.line = nil
	}
}

func (c *console) tail() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return strings.TrimSpace(string(bytes.ReplaceAll(c.last, []byte("\r"), nil)))
}

// guestMemory is what a guest may use, in bytes: three quarters of what is available. The host gives a page when the guest
// first touches it.
func guestMemory() uint64 {
	const least, most = 1 << 30, 16 << 30
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return least
	}
	available := (info.Freeram + info.Bufferram) * uint64(info.Unit)
	return max(least, min(most, available/4*3))
}

// memoryFolder returns the folder for the file that is the guest's memory: in memory if there is enough space.
func memoryFolder(other string) string {
	const shm, tmpfs = "/dev/shm", 0x01021994
	var stat unix.Statfs_t
	if unix.Statfs(shm, &stat) == nil && stat.Type == tmpfs && stat.Flags&unix.ST_NOEXEC == 0 && uint64(stat.Bsize)*stat.Bavail >= guestMemory() {
		return shm
	}
	return other
}
