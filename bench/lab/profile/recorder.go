package profile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Frequency is the number of samples of a busy thread a second. It is a prime, so that samples do not follow a timer.
// Twice as many cost a virtual machine some percent.
const Frequency = 499

// Check returns an error that says what is missing for profiles on this machine.
func Check() error {
	if _, err := exec.LookPath("perf"); err != nil {
		return errors.New("profiles need perf, which is not on PATH: install it (Debian: linux-perf; Fedora: perf; Ubuntu: linux-tools)")
	}
	return nil
}

// SeesKernel reports whether samples include kernel stacks. For an ordinary user it returns the reason why not.
func SeesKernel(userNamespace bool) (sees bool, reason string) {
	const setting = "/proc/sys/kernel/perf_event_paranoid"
	text, err := os.ReadFile(setting)
	level, parsed := strconv.Atoi(strings.TrimSpace(string(text)))
	if !userNamespace || err == nil && parsed == nil && level < 2 {
		return true, ""
	}
	return false, fmt.Sprintf("the kernel's own functions are not sampled: kernel.perf_event_paranoid is %s, so that only root may sample them", strings.TrimSpace(string(text)))
}

// Options of a recording.
type Options struct {
	Path   string // of the data
	PID    int    // the process to sample, with its later threads and children
	Kernel bool   // sample kernel stacks too
}

// Recording is a running or finished perf record.
type Recording struct {
	PID     int
	path    string
	cmd     *exec.Cmd
	control *os.File
	answers *os.File
	errors  bytes.Buffer
}

// Start returns when perf samples the process.
func Start(ctx context.Context, o Options) (*Recording, error) {
	event := "cpu-clock"
	if !o.Kernel {
		event += ":u"
	}
	commands, control, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("perf: %w", err)
	}
	defer commands.Close()
	answers, answer, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("perf: %w", err), control.Close())
	}
	r := &Recording{PID: o.PID, path: o.Path, control: control, answers: answers}
	// The clock is that of the lab's times. Build ids would only be needed on another machine.
	r.cmd = exec.CommandContext(ctx, "perf", "record", "--event", event, "--freq", strconv.Itoa(Frequency), "--call-graph", "fp", "--clockid", "CLOCK_REALTIME",
		"--no-buildid", "--no-buildid-cache", "--delay", "-1", "--control", "fd:3,4", "--output", o.Path, "--pid", strconv.Itoa(o.PID))
	r.cmd.ExtraFiles = []*os.File{commands, answer}
	r.cmd.Stdout, r.cmd.Stderr = io.Discard, &r.errors
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	err = r.cmd.Start()
	answer.Close()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("perf: %w", err), control.Close(), answers.Close())
	}
	_, err = control.WriteString("enable\n")
	if err == nil {
		_, err = bufio.NewReader(answers).ReadString('\n') // "ack", or the end of a perf that failed
	}
	if err != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
		control.Close()
		answers.Close()
		return nil, fmt.Errorf("perf record: %w: %s", err, r.said())
	}
	return r, nil
}

// Stop ends the recording. perf has ended by itself if its process has.
func (r *Recording) Stop() error {
	if r.control == nil {
		return nil
	}
	_, err := r.control.WriteString("stop\n")
	if errors.Is(err, unix.EPIPE) {
		err = nil
	}
	ended := r.cmd.Wait()
	err = errors.Join(err, r.control.Close(), r.answers.Close())
	r.control = nil
	if stat, missing := os.Stat(r.path); missing != nil || stat.Size() == 0 {
		return fmt.Errorf("perf record: %w: %s", errors.Join(ended, missing), r.said())
	}
	return err
}

func (r *Recording) said() string { return strings.TrimSpace(r.errors.String()) }

// Gate is a process's way to wait, before it becomes another program, until a recording has begun.
type Gate struct{ fifo *os.File }

// NewGate makes a gate in a folder.
func NewGate(dir string) (*Gate, error) {
	path := filepath.Join(dir, "gate")
	if err := unix.Mkfifo(path, 0o600); err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("profile: %w", err)
	}
	// Open for reading too: opening does not wait for the other end then.
	fifo, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("profile: %w", err)
	}
	return &Gate{fifo}, nil
}

// Before returns the command that waits at the gate and then becomes the given one, with the same process id.
func (g *Gate) Before(path string, args []string) (string, []string) {
	return "/bin/sh", append([]string{"-c", `read -r go < "$0"; exec "$@"`, g.fifo.Name(), path}, args...)
}

// Open lets the process pass.
func (g *Gate) Open() error {
	_, err := g.fifo.WriteString("go\n")
	return err
}

// Close removes the gate.
func (g *Gate) Close() { g.fifo.Close() }
