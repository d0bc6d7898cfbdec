package machine

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// The kinds of stalls that the kernel reports.
const (
	SoftLockup = "soft lockup" // a CPU stayed in the kernel and did not schedule
	HardLockup = "hard lockup" // a CPU took no interrupts
	HungTask   = "hung task"   // a task waited without a chance to be interrupted
	RCUStall   = "RCU stall"   // a CPU or task held up the end of a grace period
	WorkStall  = "work queue"  // a work queue of a CPU made no progress
)

// Stall is a stall in the kernel's log.
type Stall struct {
	Kind    string
	Seconds float64 // 0: the kernel does not say
	Task    string  // empty: the kernel does not say
	Text    string  // of the log
	// Subject is the CPU and the process, as the kernel writes them, and At the time of the record since the kernel's start.
	Subject string
	At      time.Duration
}

// Continues reports whether the kernel reports the stall before again: it repeats the report of one that lasts, with its
// whole time. A stall that began after the report before is another one.
func (s *Stall) Continues(before *Stall) bool {
	return s.Kind == before.Kind && s.Subject == before.Subject && s.Seconds > before.Seconds && before.Seconds > 0 &&
		(s.At-before.At).Seconds() < s.Seconds
}

// stalls match the kernel's messages (kernel/watchdog.c, hung_task.c, rcu/tree_stall.h, rcu/tasks.h, workqueue.c). Their groups are the
// subject's parts, task and seconds. Processes may write to the log too, but put their names first.
var stalls = []struct {
	kind    string
	message *regexp.Regexp
}{
	{SoftLockup, regexp.MustCompile(`^(NMI )?(watchdog: )?BUG: soft lockup - (?P<subject>CPU#\d+) stuck for (?P<seconds>\d+)s! \[(?P<subject>(?P<task>[^\]]*?)(:\d+)?)\]`)},
	{HardLockup, regexp.MustCompile(`^(NMI )?(watchdog: )?(CPU\d+: )?Watchdog detected hard LOCKUP on cpu`)},
	{HungTask, regexp.MustCompile(`^INFO: task (?P<subject>(?P<task>.*):\d+) (<[^>]*> )?blocked .*for more than (?P<seconds>\d+) seconds`)},
	{RCUStall, regexp.MustCompile(`^(rcu: )?INFO: rcu\S* (self-)?detected (expedited )?stalls? on (CPU|tasks)`)},
	{WorkStall, regexp.MustCompile(`^BUG: workqueue lockup - pool (?P<subject>cpus=\S+).* stuck for (?P<seconds>\d+)s!`)},
}

// ParseStall reads a record of /dev/kmsg: "priority,sequence,time,flags;text", and perhaps more lines. ok is false for
// all records but those of a stall.
func ParseStall(record string) (s Stall, ok bool) {
	head, text, _ := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	for _, stall := range stalls {
		groups := stall.message.FindStringSubmatch(text)
		if groups == nil {
			continue
		}
		s = Stall{Kind: stall.kind, Text: strings.TrimSpace(text)}
		if fields := strings.Split(head, ","); len(fields) > 2 {
			micros, _ := strconv.ParseInt(fields[2], 10, 64) // digits, by the kernel
			s.At = time.Duration(micros) * time.Microsecond
		}
		for i, name := range stall.message.SubexpNames() {
			switch name {
			case "task":
				s.Task = groups[i]
			case "seconds":
				s.Seconds, _ = strconv.ParseFloat(groups[i], 64) // digits, by the pattern
			case "subject":
				s.Subject = strings.TrimSpace(s.Subject + " " + groups[i])
			}
		}
		return s, true
	}
	return s, false
}

// KernelLog reads what the kernel logs from now on. It is the log of the whole machine, or of the guest.
type KernelLog struct{ fd int }

// OpenKernelLog fails where the log is restricted to root, or missing.
func OpenKernelLog() (*KernelLog, error) {
	fd, err := unix.Open("/dev/kmsg", unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("/dev/kmsg: %w", err)
	}
	if _, err := unix.Seek(fd, 0, io.SeekEnd); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("/dev/kmsg: %w", err)
	}
	return &KernelLog{fd}, nil
}

// Stalls returns the stalls that the kernel has logged since the last call. It does not wait.
func (l *KernelLog) Stalls() ([]Stall, error) {
	var found []Stall
	record := make([]byte, 8192) // longer than any record
	for {
		n, err := unix.Read(l.fd, record)
		switch {
		case errors.Is(err, unix.EAGAIN) || err == nil && n == 0:
			return found, nil
		case errors.Is(err, unix.EPIPE), errors.Is(err, unix.EINTR): // records were overwritten before they were read
			continue
		case err != nil:
			return found, fmt.Errorf("/dev/kmsg: %w", err)
		}
		if s, ok := ParseStall(string(record[:n])); ok {
			found = append(found, s)
		}
	}
}

// Close ends the reading.
func (l *KernelLog) Close() error { return unix.Close(l.fd) }
