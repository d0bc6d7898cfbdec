package process

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every architecture of Go except alpha.
const tick = 10 * time.Millisecond

// usage is the used part of a line of /proc/PID/stat.
type usage struct {
	parent, group int
	zombie        bool
	own           time.Duration // user and system time of all threads
	reaped        time.Duration // of the children that it waited for, and their children
	resident      uint64        // bytes
}

// CPU returns the user and system time of the process and its descendants so far. The process's own time is exact. The
// others' times come in ticks of 10 ms and count from each start. After the exit, CPU returns the final value.
//
// Descendants that ended without being waited for are missing.
func (p *Process) CPU() (time.Duration, error) {
	for try := 0; ; try++ {
		before, err := p.usage()
		if err != nil {
			return 0, err
		}
		if p.ended() {
			return before.own + before.reaped, nil
		}
		total := p.exactly(before.own)
		others, err := p.others()
		if err != nil {
			return 0, err
		}
		for _, u := range others {
			total += u.own + u.reaped
		}
		after, err := p.usage()
		if err != nil {
			return 0, err
		}
		// A process reaped between the readings would be missing or count twice.
		if total += after.reaped; after.reaped == before.reaped || try == 5 {
			return total, nil
		}
	}
}

// Memory returns the sum of the resident sets of the process and its descendants, in bytes. Pages that several
// processes share count several times. It returns 0 after the exit.
func (p *Process) Memory() (uint64, error) {
	own, err := p.usage()
	if err != nil || p.ended() {
		return 0, err
	}
	others, err := p.others()
	for _, u := range others {
		own.resident += u.resident
	}
	return own.resident, err
}

// RSS returns the resident set of the process without children, in bytes; 0 after the exit.
func (p *Process) RSS() (uint64, error) {
	u, err := p.usage()
	if err != nil || p.ended() {
		return 0, err
	}
	return u.resident, nil
}

// PeakRSS returns the largest resident set of the process without children, in bytes. It
// cannot be read after the exit.
func (p *Process) PeakRSS() (uint64, error) {
	const name = "VmHWM:"
	status, err := os.ReadFile(p.proc("status"))
	if err != nil {
		return 0, p.failed("peak RSS", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, name); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			if err != nil {
				return 0, p.failed("peak RSS", err)
			}
			return kib << 10, nil
		}
	}
	return 0, p.failed("peak RSS", os.ErrProcessDone) // a zombie has no memory
}

func (p *Process) proc(name string) string { return fmt.Sprintf("/proc/%d/%s", p.pid, name) }

func (p *Process) failed(what string, err error) error {
	return fmt.Errorf("%s of %s (process %d): %w", what, p.opts.Name, p.pid, err)
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// usage returns the current usage of the process, or its final usage.
func (p *Process) usage() (usage, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gone {
		return p.final, nil
	}
	u, err := readUsage(p.pid)
	if err != nil {
		return u, p.failed("usage", err)
	}
	return u, nil
}

// exactly returns the time of all threads in nanoseconds, from the process's CPU clock; ticks if that fails.
func (p *Process) exactly(ticks time.Duration) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED; the complemented process id is in the higher bits (clock_getcpuclockid(3))
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid<<3|scheduler), &t); err != nil {
		return ticks
	}
	return time.Duration(t.Nano())
}

// others returns the usage of the living processes of its group and of its descendants.
func (p *Process) others() ([]usage, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, p.failed("children", err)
	}
	all := map[int]usage{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		u, err := readUsage(pid)
		if err != nil {
			continue // it exited meanwhile
		}
		all[pid] = u
	}
	var others []usage
	for pid, u := range all {
		if pid != p.pid && (u.group == p.pid || p.descends(all, u)) {
			others = append(others, u)
		}
	}
	return others, nil
}

func (p *Process) descends(all map[int]usage, u usage) bool {
	for range len(all) { // reused process ids could form a cycle
		if u.parent == p.pid {
			return true
		}
		parent, ok := all[u.parent]
		if !ok {
			return false
		}
		u = parent
	}
	return false
}

var pageSize = uint64(os.Getpagesize())

// readUsage reads /proc/PID/stat (proc_pid_stat(5)).
func readUsage(pid int) (usage, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		if errors.Is(err, unix.ESRCH) {
			err = fs.ErrNotExist
		}
		return usage{}, err
	}
	// The name is in parentheses and may contain anything, including parentheses and blanks.
	fields := bytes.Fields(line[bytes.LastIndexByte(line, ')')+1:])
	const state, parent, group, utime, cstime, rss = 0, 1, 2, 11, 14, 21
	if len(fields) <= rss {
		return usage{}, fmt.Errorf("/proc/%d/stat: %d fields after the name", pid, len(fields))
	}
	number := func(i int) int {
		n, err2 := strconv.Atoi(string(fields[i]))
		if err2 != nil && err == nil {
			err = fmt.Errorf("/proc/%d/stat: field %d after the name: %w", pid, i, err2)
		}
		return n
	}
	u := usage{
		parent: number(parent), group: number(group), zombie: fields[state][0] == 'Z',
		own:      time.Duration(number(utime)+number(utime+1)) * tick,
		reaped:   time.Duration(number(cstime-1)+number(cstime)) * tick,
		resident: uint64(max(0, number(rss))) * pageSize,
	}
	return u, err
}
