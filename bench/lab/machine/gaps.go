package machine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// envGaps makes this program the watchdog. It is checked in init, as of the pods' process (package traffic), so that test
// binaries can be the watchdog too.
const envGaps = "SYNCLAB_WATCHDOG"

func init() {
	if os.Getenv(envGaps) == "" {
		return
	}
	if err := watch(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "watchdog:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// gapPeriod is how often a thread of the watchdog wants to run. It sees a gap that began while it slept up to so much
// shorter. Its work is some 0.05 % of a CPU.
const gapPeriod = 10 * time.Millisecond

// Gap is the longest time for which a process that was ready to run on a CPU did not run.
type Gap struct {
	CPU     int
	Longest time.Duration
}

// Gaps is a process of normal priority with one thread on each CPU that it may use. What keeps it from running keeps others
// from running: a long stay in the kernel, or processes that compete for the CPU.
type Gaps struct {
	cmd    *exec.Cmd
	ask    io.WriteCloser
	answer *json.Decoder
}

// WatchGaps starts the watchdog in the namespaces of this process.
func WatchGaps() (*Gaps, error) {
	g := &Gaps{cmd: exec.Command("/proc/self/exe")}
	g.cmd.Env = append(os.Environ(), envGaps+"=1", "GOGC=off") // a collection would be a gap of its own
	g.cmd.Stderr = os.Stderr
	out, err := g.cmd.StdoutPipe()
	if err == nil {
		g.ask, err = g.cmd.StdinPipe()
	}
	if err == nil {
		err = g.cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("watchdog of the CPUs: %w", err)
	}
	g.answer = json.NewDecoder(out)
	return g, nil
}

// Read returns the longest gaps since the last call, or since the start. One that lasts counts up to now.
func (g *Gaps) Read() (gaps []Gap, err error) {
	if _, err = g.ask.Write([]byte{'\n'}); err == nil {
		err = g.answer.Decode(&gaps)
	}
	if err != nil {
		err = fmt.Errorf("watchdog of the CPUs: %w", err)
	}
	return gaps, err
}

// Close ends the process.
func (g *Gaps) Close() error {
	_ = g.ask.Close()
	return g.cmd.Wait()
}

// pinned is a thread that stays on one CPU.
type pinned struct {
	cpu     int
	due     atomic.Int64 // when it wants to run next, in ns of CLOCK_MONOTONIC
	longest atomic.Int64 // ns
}

// watch is the process: it answers each line with the gaps since the last one, until its input ends.
func watch(in io.Reader, out io.Writer) error {
	cpus, err := CPUs()
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(len(cpus) + 1) // each thread runs as soon as the kernel lets it
	var threads []*pinned
	for _, cpu := range cpus {
		p := &pinned{cpu: cpu}
		p.due.Store(monotonic())
		threads = append(threads, p)
		go p.run()
	}
	encoder := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		var gaps []Gap
		for _, p := range threads {
			gaps = append(gaps, Gap{p.cpu, p.read()})
		}
		if err := encoder.Encode(gaps); err != nil {
			return err
		}
	}
	return nil
}

// read returns the longest gap since the last call.
func (p *pinned) read() time.Duration {
	return time.Duration(max(p.longest.Swap(0), monotonic()-p.due.Load(), 0))
}

// run ends the process if it cannot go on.
func (p *pinned) run() {
	_, err := Pin(p.cpu)
	for err == nil || err == unix.EINTR {
		due := unix.NsecToTimespec(p.due.Load())
		err = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &due, nil)
		now := monotonic()
		if late := now - due.Nano(); late >= 0 {
			for was := p.longest.Load(); late > was && !p.longest.CompareAndSwap(was, late); was = p.longest.Load() {
			}
			p.due.Store(now + int64(gapPeriod))
		}
	}
	fmt.Fprintf(os.Stderr, "watchdog on CPU %d: %v\n", p.cpu, err)
	os.Exit(1)
}

func monotonic() int64 {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now) // every Linux has it
	return now.Nano()
}
