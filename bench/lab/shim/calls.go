package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/outfile"
)

// Call is one call of a tool.
type Call struct {
	// Tool is the called name; Real is the path of the program that ran.
	Tool string   `json:"tool"`
	Real string   `json:"real"`
	Args []string `json:"args"` // without the name; very long ones are cut after some KiB, and end with "…"
	// Start is the wall-clock time right before the tool's process was made; End is the time right after it was gone.
	Start, End time.Time `json:"-"`
	// Stdin and Stdout are byte counts: copied bytes for pipes, read and written bytes for regular files. They are
	// Unknown for terminals, sockets, a pipe that the tool need not read, and if standard output and standard error
	// share a pipe.
	Stdin  int64 `json:"stdin"`
	Stdout int64 `json:"stdout"`
	// Head is the start of the standard input of nft, if it is a pipe: some 200 bytes.
	Head string `json:"head,omitempty"`
	// ExitCode is -1 if Signal ended the tool.
	ExitCode int         `json:"exit"`
	Signal   unix.Signal `json:"signal"`
	// User and System are CPU times of the tool; System is the kernel's part, including netfilter. The sum is exact.
	// Many kernels split it by sampling at each tick (such as 4 ms), which means little for a single short call.
	User, System time.Duration `json:"-"`
	// PeakRSS is in bytes, and at least the shim's own: the kernel counts the memory of the process that started the tool.
	PeakRSS int64 `json:"peak_rss"`
	// Own is the CPU time of the shim itself, without writing its line: what the shim adds for the caller.
	Own time.Duration `json:"-"`
	// PID is the shim's process id, as its caller sees it; Parent is the caller's process id.
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Fault is the injected fault: "fail", "kill", "refuse" or empty.
	Fault string `json:"fault,omitempty"`
}

// Unknown is a size that was not counted.
const Unknown = -1

// Duration returns the duration of the call.
func (c Call) Duration() time.Duration { return c.End.Sub(c.Start) }

// Family returns the IP family of the call's rules; empty if it is unknown, or if there are several. For iptables tools
// it comes from the tool's name, for nft from the first command.
func (c Call) Family() corev1.IPFamily {
	switch {
	case strings.HasPrefix(c.Tool, "ip6tables"):
		return corev1.IPv6Protocol
	case strings.HasPrefix(c.Tool, "iptables"):
		return corev1.IPv4Protocol
	case c.Tool != "nft":
		return ""
	}
	first, _, _ := strings.Cut(c.Head, "\n")
	for _, word := range append(strings.Fields(first), c.Args...) {
		switch word {
		case "ip":
			return corev1.IPv4Protocol
		case "ip6":
			return corev1.IPv6Protocol
		}
	}
	return ""
}

// UnmarshalJSON parses a line that the program wrote.
func (c *Call) UnmarshalJSON(line []byte) error {
	type plain Call
	raw := struct {
		*plain
		Start    int64 `json:"start"` // ns since 1970
		End      int64 `json:"end"`
		UserUs   int64 `json:"user_us"`
		SystemUs int64 `json:"system_us"`
		ShimUs   int64 `json:"shim_us"`
	}{plain: (*plain)(c)}
	if err := json.Unmarshal(line, &raw); err != nil {
		return err
	}
	c.Start, c.End = time.Unix(0, raw.Start), time.Unix(0, raw.End)
	c.User, c.System = time.Duration(raw.UserUs)*time.Microsecond, time.Duration(raw.SystemUs)*time.Microsecond
	c.Own = time.Duration(raw.ShimUs) * time.Microsecond
	return nil
}

// Bounds of what is read at once: calls with their bytes, and those of the input of 50,000 Services three times over.
const (
	mostCalls   = 1_000_000
	mostOfCalls = 256 << 20
	mostOfInput = 1 << 30
)

// Read returns the calls that have ended so far, in the order of their ends. It starts at from, the next of an earlier
// Read; 0 is the first call.
func (s *Shim) Read(from int64) (calls []Call, next int64, err error) {
	f, err := s.folder.Open(callsFile)
	if err != nil {
		return nil, from, fmt.Errorf("shim: calls: %w", err)
	}
	defer f.Close()
	text, err := outfile.ReadOpened(f, from, mostOfCalls)
	if err != nil {
		return nil, from, fmt.Errorf("shim: calls: %w", err)
	}
	for {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found { // the file may grow page by page, so the last line may be incomplete
			return calls, from, nil
		}
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			return calls, from, fmt.Errorf("shim: calls: %q: %w", line, err)
		}
		if call.Tool == "" || len(calls) == mostCalls {
			return calls, from, fmt.Errorf("shim: calls: %q is none, or more than %d at once", line, mostCalls)
		}
		calls = append(calls, call)
		from += int64(len(line)) + 1
		text = rest
	}
}

// Calls sends each call that has ended since Install, and later calls as they end, until ctx ends. Then it sends the
// remaining calls and closes the channel. The caller must receive all of them. On a read error, it calls fail and
// stops.
func (s *Shim) Calls(ctx context.Context, fail func(error)) (<-chan Call, error) {
	// Watch before the first reading, so that no call is lost between the two.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shim: calls: inotify: %w", err)
	}
	grown := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, s.path(callsFile), unix.IN_MODIFY|unix.IN_DONT_FOLLOW); err != nil {
		grown.Close()
		return nil, fmt.Errorf("shim: calls: %s: %w", s.path(callsFile), err)
	}
	stop := context.AfterFunc(ctx, func() { grown.Close() })
	calls := make(chan Call)
	go func() {
		defer close(calls)
		defer stop()
		defer grown.Close()
		events := make([]byte, 4096)
		next := int64(0)
		for last := false; ; {
			var some []Call
			var err error
			if some, next, err = s.Read(next); err != nil {
				if !last || !errors.Is(err, os.ErrNotExist) { // at the end the folder may be gone
					fail(err)
				}
				return
			}
			for _, call := range some {
				calls <- call
			}
			if last {
				return
			}
			if _, err := grown.Read(events); err != nil {
				if !errors.Is(err, os.ErrClosed) {
					fail(fmt.Errorf("shim: calls: inotify: %w", err))
					return
				}
				last = true
			}
		}
	}()
	return calls, nil
}
