package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// Call is one call of a tool.
type Call struct {
	// Tool is the name that was called; Real the path of what ran for it.
	Tool string   `json:"tool"`
	Real string   `json:"real"`
	Args []string `json:"args"` // without the name; very long ones are cut after some KiB, and end with "…"
	// Start is right before the tool's process was made, End right after it was gone: wall clock.
	Start, End time.Time `json:"-"`
	// Stdin and Stdout are bytes: of pipes what was passed on, of regular files what was read and written. Unknown where
	// that cannot be told: terminals, sockets, a pipe that the tool has no reason to read, standard output in the same
	// pipe as standard error.
	Stdin  int64 `json:"stdin"`
	Stdout int64 `json:"stdout"`
	// Head is how the standard input of nft begins, where it is a pipe: some 200 bytes.
	Head string `json:"head,omitempty"`
	// ExitCode is -1 when Signal ended it.
	ExitCode int         `json:"exit"`
	Signal   unix.Signal `json:"signal"`
	// User and System are CPU time of the tool; System is the kernel's part, netfilter's included. The sum is exact; many
	// kernels split it by what they find at each tick (4 ms, say), which says little of a single short call.
	User, System time.Duration `json:"-"`
	PeakRSS      int64         `json:"peak_rss"` // bytes
	// Own is the CPU time of the shim itself, but for the writing of its line: what the caller would not have spent.
	Own time.Duration `json:"-"`
	// PID is the shim's, as its caller sees it; Parent is the caller's.
	PID    int `json:"pid"`
	Parent int `json:"parent"`
	// Fault is what was planted for this call: "fail", "kill", "refuse" or empty.
	Fault string `json:"fault,omitempty"`
}

// Unknown is the size of what was not counted.
const Unknown = -1

// Duration of the call.
func (c Call) Duration() time.Duration { return c.End.Sub(c.Start) }

// Family is the one whose rules the call is about; empty where that cannot be told, or it is about several. The tools of
// iptables say it by their name, nft by the first command that it is given.
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

// UnmarshalJSON reads a line of the program's.
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

// Read gives the calls that ended so far, in the order of their ends, from the place that an earlier Read gave as next;
// 0 is the first call.
func (s *Shim) Read(from int64) (calls []Call, next int64, err error) {
	f, err := os.Open(s.path(callsFile))
	if err != nil {
		return nil, from, fmt.Errorf("shim: calls: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.NewSectionReader(f, from, 1<<62))
	if err != nil {
		return nil, from, fmt.Errorf("shim: calls: %w", err)
	}
	for {
		line, rest, found := bytes.Cut(text, []byte("\n"))
		if !found { // the file may grow page by page, so the last line may be half there
			return calls, from, nil
		}
		var call Call
		if err := json.Unmarshal(line, &call); err != nil {
			return calls, from, fmt.Errorf("shim: calls: %q: %w", line, err)
		}
		calls = append(calls, call)
		from += int64(len(line)) + 1
		text = rest
	}
}

// Calls gives each call that ended since Install, and then each as it ends, until ctx ends; then those that ended
// meanwhile, and the channel is closed. Someone has to receive. An error of reading ends it early and is given to fail.
func (s *Shim) Calls(ctx context.Context, fail func(error)) (<-chan Call, error) {
	// The watch comes before the first reading, so that no call falls between the two.
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("shim: calls: inotify: %w", err)
	}
	grown := os.NewFile(uintptr(fd), "inotify")
	if _, err := unix.InotifyAddWatch(fd, s.path(callsFile), unix.IN_MODIFY); err != nil {
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
