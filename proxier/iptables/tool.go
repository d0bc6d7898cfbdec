package iptables

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
)

// Restorer runs one iptables-restore. Its zero values have no defaults: NewRestorer fills them.
type Restorer struct {
	opts RestorerOptions
	path string
}

// RestorerOptions select an iptables-restore and how it runs.
type RestorerOptions struct {
	Variant Variant
	Family  corev1.IPFamily
	// LockFile is passed to the tool as XTABLES_LOCKFILE. Empty: the environment's, or the system's.
	LockFile string
	// Wait is how long the tool may wait for the xtables lock. Default 5 s, as kube-proxy. The nft variant takes no
	// lock.
	Wait time.Duration
	// Deadline ends a run. Default 30 min: iptables-nft-restore has needed 11 min for 55,000 chains.
	Deadline time.Duration
	Clock    clock.PassiveClock
	// Commits counts the commits of all Restorers in a network namespace. Default: a new counter.
	Commits *Commits
	// Prepare, when set, may change the command before it starts. Started is called when it runs. Fault injection uses
	// both.
	Prepare func(*exec.Cmd)
	Started func(*os.Process)
}

// Commits counts committed tables. nf_tables raises its generation by one for each.
type Commits struct{ made atomic.Uint32 }

// Binary returns the name of a tool of a variant and family, such as ip6tables-nft-restore; tool is "", "restore" or
// "save".
func Binary(variant Variant, family corev1.IPFamily, tool string) string {
	name := "iptables-" + string(variant)
	if family == corev1.IPv6Protocol {
		name = "ip6tables-" + string(variant)
	}
	if tool != "" {
		name += "-" + tool
	}
	return name
}

// LockWait are the arguments with which a tool waits a minute for the xtables lock, which only variant legacy has.
func LockWait(variant Variant) []string {
	if variant == Legacy {
		return []string{"-w", "60"}
	}
	return nil
}

// sbin are the folders that an ordinary user's PATH may lack.
var sbin = []string{"/usr/sbin", "/sbin", "/usr/local/sbin"}

// EnvTools names the variable of the environment by which tools that write rules are those of another system. Its value is
// the folder with such tools, a colon, and the system's root for messages. Tools that the folder lacks are missing, even if
// PATH has them.
const EnvTools = "SYNCLAB_TOOLS"

// WritesRules reports by its name whether a tool writes rules: iptables, nft, ipset and their like.
func WritesRules(name string) bool {
	return name == "nft" || name == "ipset" || strings.HasPrefix(name, "iptables") || strings.HasPrefix(name, "ip6tables")
}

// FindBinary returns the path of a tool on PATH or in the system's sbin folders, or as EnvTools says.
func FindBinary(name string) (string, error) {
	if dir, root, set := strings.Cut(os.Getenv(EnvTools), ":"); set && WritesRules(name) {
		path, err := exec.LookPath(dir + "/" + name)
		if err != nil {
			return "", fmt.Errorf("%s: not found below %s: unpack the %s package there too: %w", name, root, Package(name), os.ErrNotExist)
		}
		return path, nil
	}
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range sbin {
		if path, err := exec.LookPath(dir + "/" + name); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s: not found on PATH nor in %s; install the %s package: %w", name, strings.Join(sbin, ", "), Package(name), err)
}

// Package returns the package that contains a tool, as most distributions name it.
func Package(tool string) string {
	switch tool {
	case "nft":
		return "nftables"
	case "ip":
		return "iproute2"
	case "conntrack", "ipset":
		return tool
	}
	return "iptables"
}

// NewRestorer finds the tool.
func NewRestorer(opts RestorerOptions) (*Restorer, error) {
	opts.Wait = cmp.Or(opts.Wait, 5*time.Second)
	opts.Deadline = cmp.Or(opts.Deadline, 30*time.Minute)
	opts.Clock = cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{})
	opts.Commits = cmp.Or(opts.Commits, &Commits{})
	path, err := FindBinary(Binary(opts.Variant, opts.Family, "restore"))
	if err != nil {
		return nil, err
	}
	return &Restorer{opts: opts, path: path}, nil
}

// RestoreError is a failed run of iptables-restore.
type RestoreError struct {
	Tool     string
	ExitCode int    // -1: ended by a signal
	Line     int    // of the payload, from 1; 0 when the tool names none
	Stderr   string // trimmed
	Owner    Owner  // of the line
	Err      error
}

func (e *RestoreError) Error() string {
	text := e.Tool
	if e.Line > 0 {
		text += fmt.Sprintf(": line %d", e.Line)
		if e.Owner.IsPort() {
			text += fmt.Sprintf(" (service %s/%s: port %q/%s)", e.Owner.Port.Namespace, e.Owner.Port.NamespacedName.Name, e.Owner.Port.Port(), e.Owner.Port.Protocol)
		}
	}
	text += ": " + e.Err.Error()
	if e.Stderr != "" {
		text += ": " + e.Stderr
	}
	return text
}

func (e *RestoreError) Unwrap() error { return e.Err }

// exitResource is the exit code of iptables after a timeout for the lock, or without memory.
const exitResource = 4

// shortages are kernel errors, as the nft variant prints them, that the content of a payload does not cause. "Message
// too long" is an ordinary user's limit on a netlink batch (kernel.SendLimit).
var shortages = regexp.MustCompile(`\((Cannot allocate memory|No buffer space available|Resource temporarily unavailable|Interrupted system call|Operation not permitted)\)|Message too long`)

// Refused reports whether the tool or the kernel refused the content of the payload. A lack of the lock, of memory or
// of time is no refusal. The nft variant exits with exitResource whenever the kernel refuses something.
func (e *RestoreError) Refused() bool {
	switch e.ExitCode {
	case 1, 2, exitResource:
		return e.Line > 0 && !shortages.MatchString(e.Stderr)
	}
	return false
}

// failedLine matches the line number in all forms that the tools print: "line N failed", "Error occurred at line: N",
// "line N: RULE_APPEND failed".
var failedLine = regexp.MustCompile(`(?m)(?:occurred at line: |(?:^|: )line )(\d+)`)

// finishing is how long a tool may run after ctx has ended.
const finishing = 10 * time.Second

// Restore runs iptables-restore on a payload and waits until it ends. When ctx ends, the tool may run on for the time
// finishing; then Restore kills it. It also kills the tool at the deadline.
func (r *Restorer) Restore(ctx context.Context, p *Payload) (Run, error) {
	ctx, cancel := context.WithTimeout(ctx, r.opts.Deadline)
	defer cancel()
	seconds := int((r.opts.Wait + time.Second - 1) / time.Second)
	cmd := exec.CommandContext(ctx, r.path, "-w", strconv.Itoa(seconds), "--noflush", "--counters")
	// The tool exchanges a legacy table and then sets its counters again. If it is killed in between, all counters are
	// zero, those of foreign rules too. So a proxier that stops lets the tool finish.
	cmd.WaitDelay = finishing
	cmd.Cancel = func() error {
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return cmd.Process.Kill()
		}
		return os.ErrProcessDone
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	cmd.Env = os.Environ()
	if r.opts.LockFile != "" {
		cmd.Env = append(cmd.Env, "XTABLES_LOCKFILE="+r.opts.LockFile)
	}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return Run{}, fmt.Errorf("iptables-restore: %w", err)
	}
	if r.opts.Prepare != nil {
		r.opts.Prepare(cmd)
	}
	run, err := r.wait(cmd, stdin, p)
	if err == nil {
		r.opts.Commits.made.Add(uint32(p.commits))
		return run, nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	failed := &RestoreError{Tool: run.Tool, ExitCode: run.ExitCode, Stderr: strings.TrimSpace(stderr.String()), Err: err}
	if m := failedLine.FindStringSubmatch(failed.Stderr); m != nil {
		failed.Line, _ = strconv.Atoi(m[1])
		failed.Owner = p.OwnerOf(failed.Line)
	}
	return run, failed
}

// wait runs the command to its end. Pdeathsig kills the tool with the thread that started it, so the goroutine keeps
// its thread.
func (r *Restorer) wait(cmd *exec.Cmd, stdin io.WriteCloser, p *Payload) (Run, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	run := Run{Tool: Binary(r.opts.Variant, r.opts.Family, "restore"), Bytes: p.Size(), ExitCode: -1}
	start := r.opts.Clock.Now()
	if err := cmd.Start(); err != nil {
		return run, err
	}
	if r.opts.Started != nil {
		r.opts.Started(cmd.Process)
	}
	peak := watchPeakRSS(cmd.Process.Pid)
	writeErr := feed(stdin, p)
	err := cmd.Wait()
	run.Wall = r.opts.Clock.Since(start)
	run.PeakRSS = peak()
	if state := cmd.ProcessState; state != nil {
		run.User, run.System, run.ExitCode = state.UserTime(), state.SystemTime(), state.ExitCode()
	}
	// A tool that found an error stops reading. The broken pipe then adds nothing to its exit status.
	if err == nil && writeErr != nil {
		err = fmt.Errorf("writing its input: %w", writeErr)
	}
	return run, err
}

func feed(stdin io.WriteCloser, p *Payload) error {
	w := bufio.NewWriterSize(stdin, 1<<18)
	_, err := p.WriteTo(w)
	return errors.Join(err, w.Flush(), stdin.Close())
}

// peakInterval is how often the memory of a running tool is read. Each read takes 20 µs.
const peakInterval = 5 * time.Millisecond

// watchPeakRSS reads the high-water mark of a process's memory until the returned function is called, which returns the
// last value. The rusage of a child is useless: it starts with the size of the process that forked it (exec_mmap folds
// the old mm's mark into the maximum).
func watchPeakRSS(pid int) func() int64 {
	path := "/proc/" + strconv.Itoa(pid) + "/status"
	stop, result := make(chan struct{}), make(chan int64)
	go func() {
		var peak int64
		ticker := time.NewTicker(peakInterval)
		defer ticker.Stop()
		for {
			peak = max(peak, readVmHWM(path))
			select {
			case <-stop:
				result <- peak
				return
			case <-ticker.C:
			}
		}
	}()
	return func() int64 { close(stop); return <-result }
}

var vmHWM = regexp.MustCompile(`(?m)^VmHWM:\s+(\d+) kB$`)

func readVmHWM(path string) int64 {
	status, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	m := vmHWM.FindSubmatch(status)
	if m == nil {
		return 0
	}
	kb, _ := strconv.ParseInt(string(m[1]), 10, 64)
	return kb << 10
}
