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

// tick is the unit of times in /proc/PID/stat: USER_HZ, 100 on every architecture that Go runs on but alpha.
const tick = 10 * time.Millisecond

// usage is a line of /proc/PID/stat, as far as it is used here.
type usage struct {
	parent, group int
	zombie        bool
	own           time.Duration // user and system time of all its threads
	reaped        time.Duration // of the children that it waited for, theirs included
	resident      uint64        // bytes
}

// CPU is the user and system time used so far by the process and by everything it started, living or gone. The time of
// the process itself is exact, that of the others comes in ticks of 10 ms; a tool counts from its start on. After the
// end it is what it was at the end.
//
// What ended without its parent having waited for it is missing.
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
		// Who is reaped between the readings would be missing or counted twice.
		if total += after.reaped; after.reaped == before.reaped || try == 5 {
			return total, nil
		}
	}
}

// Memory is what the process and everything it started hold now: the sum of the resident sets, in bytes. Pages that
// several of them share count several times. 0 after the end.
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

// PeakRSS is the largest resident set of the process itself, without children, since it started or since ResetPeak, in
// bytes. It cannot be read after the end.
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

// ResetPeak makes PeakRSS start again from what is resident now.
func (p *Process) ResetPeak() error {
	const peak = "5"
	if err := os.WriteFile(p.proc("clear_refs"), []byte(peak), 0); err != nil {
		return p.failed("reset peak RSS", err)
	}
	return nil
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

// usage is that of the process now, or at its end.
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

// exactly is the time of all threads of the process in nanoseconds, from its CPU clock; ticks where that fails.
func (p *Process) exactly(ticks time.Duration) time.Duration {
	const scheduler = 2 // CPUCLOCK_SCHED; the process is in the bits above, complemented (clock_getcpuclockid(3))
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^p.pid<<3|scheduler), &t); err != nil {
		return ticks
	}
	return time.Duration(t.Nano())
}

// others are the living processes of its group and those descended from it.
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
			continue // it ended meanwhile
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
	for range len(all) { // processes that ended and ids that were given again could close a ring
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
	// The name stands in parentheses and may hold anything, parentheses and blanks included.
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
