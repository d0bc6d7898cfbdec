package profile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Frame is one function on a stack.
type Frame struct {
	Function string
	Object   string // the program, the library or the kernel that has it
	Kernel   bool
	offset   uint64 // in the object's file
}

// Sample is one sample. Its stack begins with the innermost function.
type Sample struct {
	At      time.Time
	PID     int
	Command string
	Stack   []Frame
}

// Samples reads the samples in the order of their times. It returns how many were lost.
func (r *Recording) Samples(ctx context.Context, take func(Sample)) (lost int, err error) {
	// Inlined functions would take addr2line, and minutes.
	cmd := exec.CommandContext(ctx, "perf", "script", "--force", "--no-inline", "--ns", "--show-lost-events", "--fields", "comm,pid,tid,time,ip,sym,dso", "--input", r.path)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, fmt.Errorf("perf script: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("perf script: %w", err)
	}
	lost, err = readScript(out, take)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return lost, fmt.Errorf("perf script: %w", err)
	}
	if err := cmd.Wait(); err != nil {
		return lost, fmt.Errorf("perf script: %w: %s", err, strings.TrimSpace(said.String()))
	}
	return lost, nil
}

// lostEvent is in the line of samples that perf could not keep, before their number.
const lostEvent = "PERF_RECORD_LOST lost "

// readScript parses the output of perf script: a line for each sample, one for each frame, and an empty line.
func readScript(r io.Reader, take func(Sample)) (lost int, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	names := map[string]string{} // one copy of each name
	intern := func(s string) string {
		if kept, ok := names[s]; ok {
			return kept
		}
		s = strings.Clone(s)
		names[s] = s
		return s
	}
	var sample *Sample
	end := func() {
		if sample != nil && len(sample.Stack) > 0 {
			take(*sample)
		}
		sample = nil
	}
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "":
			end()
		case strings.Contains(line, lostEvent):
			_, number, _ := strings.Cut(line, lostEvent)
			some, err := strconv.Atoi(strings.TrimSpace(number))
			if err != nil {
				return lost, fmt.Errorf("line %d: %q: %w", n, line, err)
			}
			lost += some
		case line[0] == '\t':
			if sample == nil {
				return lost, fmt.Errorf("line %d: %q: a frame without a sample", n, line)
			}
			frame, err := readFrame(line)
			if err != nil {
				return lost, fmt.Errorf("line %d: %w", n, err)
			}
			frame.Function, frame.Object = intern(frame.Function), intern(frame.Object)
			sample.Stack = append(sample.Stack, frame)
		default:
			end()
			if sample, err = readHead(line); err != nil {
				return lost, fmt.Errorf("line %d: %w", n, err)
			}
			sample.Command = intern(sample.Command)
		}
	}
	end()
	return lost, lines.Err()
}

// readHead parses "iptables-restor 812/812 1795565087.087690417:". A command may contain spaces.
func readHead(line string) (*Sample, error) {
	words := strings.Fields(line)
	if len(words) < 3 {
		return nil, fmt.Errorf("%q is not the head of a sample", line)
	}
	pid, _, _ := strings.Cut(words[len(words)-2], "/")
	seconds, fraction, _ := strings.Cut(strings.TrimSuffix(words[len(words)-1], ":"), ".")
	number, err := strconv.Atoi(pid)
	whole, err2 := strconv.ParseInt(seconds, 10, 64)
	nanoseconds, err3 := strconv.ParseInt(fraction, 10, 64)
	if err != nil || err2 != nil || err3 != nil {
		return nil, fmt.Errorf("%q is not the head of a sample", line)
	}
	return &Sample{At: time.Unix(whole, nanoseconds), PID: number, Command: strings.Join(words[:len(words)-2], " ")}, nil
}

// readFrame parses "	ffffffff81 nft_chain_validate ([nf_tables])". For programs, the number is an offset in the file.
func readFrame(line string) (Frame, error) {
	number, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
	offset, err := strconv.ParseUint(number, 16, 64)
	at := strings.LastIndex(rest, " (")
	if err != nil || at < 0 {
		return Frame{}, fmt.Errorf("%q is not a frame", line)
	}
	object := strings.TrimSuffix(rest[at+2:], ")")
	f := Frame{Function: rest[:at], Object: object, offset: offset}
	f.Kernel = strings.HasPrefix(object, "[") && object != unknown && object != "[vdso]" && object != "[heap]" && object != "[stack]" || strings.Contains(object, "vmlinux")
	return f, nil
}

// unknown is perf's word for a missing name.
const unknown = "[unknown]"
