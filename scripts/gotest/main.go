// Command gotest runs "go test" and prints its output, with the numbers of passed, failed and skipped tests at the end.
// With -skips, a skip that the list does not allow is a failure: a skipped test tests nothing, and is easily overlooked.
//
// usage: gotest [-skips FILE] [arguments of go test]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	list, args := split(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := run(ctx, list, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// split separates the list of skips from the arguments of go test.
func split(args []string) (list string, rest []string) {
	if len(args) > 1 && args[0] == "-skips" {
		return args[1], args[2:]
	}
	return "", args
}

func run(ctx context.Context, list string, args []string) (ok bool, err error) {
	var allowed *skips
	if list != "" {
		if allowed, err = readSkips(list); err != nil {
			return false, err
		}
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	r := &reader{out: os.Stdout, skips: allowed}
	err = r.read(out)
	failed := cmd.Wait()
	if err != nil {
		return false, err
	}
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		return false, failed
	}
	return r.close() && failed == nil, nil
}

// event is one event of "go test -json" (go doc test2json).
type event struct {
	Action, Package, Test, Output, ImportPath string
}

// key names a test, or a package outside of its tests.
type key struct{ pkg, test string }

// reader turns events into the output of "go test" without -json.
type reader struct {
	out    io.Writer
	skips  *skips
	output map[key][]string

	packages, broken        int // broken: failed packages
	passed, failed, skipped int
	refused                 []string // skips that are not allowed
}

func (r *reader) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	r.output = map[key][]string{}
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				r.out.Write(line) // print other text as it is
			} else {
				r.take(&e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *reader) take(e *event) {
	k := key{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[k] = append(r.output[k], e.Output)
	case "pass", "fail", "skip":
		if e.Test != "" {
			r.test(e.Action, k)
		} else {
			r.pkg(e.Action, k)
		}
	}
}

// test handles the end of a test. Only failed tests are printed, together with their package.
func (r *reader) test(action string, k key) {
	switch action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		if reason := reasonOf(r.output[k]); r.skips != nil && !r.skips.allow(k.pkg, k.test) {
			r.refused = append(r.refused, fmt.Sprintf("%s %s: %s", k.pkg, k.test, reason))
		}
	case "fail":
		r.failed++
		r.output[key{k.pkg, ""}] = append(r.output[key{k.pkg, ""}], r.output[k]...)
	}
	delete(r.output, k)
}

// pkg handles the end of a package. Its last line begins with "ok", "FAIL" or "?".
func (r *reader) pkg(action string, k key) {
	r.packages++
	lines := r.output[k]
	delete(r.output, k)
	if action == "fail" {
		r.broken++
		for test, text := range r.output { // tests without an end, when the binary exited
			if test.pkg == k.pkg {
				lines = append(text, lines...)
				delete(r.output, test)
			}
		}
		for _, line := range lines {
			fmt.Fprint(r.out, line)
		}
		return
	}
	for _, line := range slices.Backward(lines) {
		if strings.HasPrefix(line, "ok  \t") || strings.HasPrefix(line, "?   \t") {
			fmt.Fprint(r.out, line)
			return
		}
	}
}

// reasonOf returns the message of t.Skip: the line before "--- SKIP".
func reasonOf(lines []string) string {
	reason := ""
	for _, line := range lines {
		text := strings.TrimSpace(line)
		if strings.HasPrefix(text, "---") || strings.HasPrefix(text, "===") {
			continue
		}
		reason = text
	}
	if at := strings.Index(reason, ".go:"); at >= 0 { // file_test.go:12: why
		if _, after, found := strings.Cut(reason[at:], ": "); found {
			reason = after
		}
	}
	return reason
}

// close prints the numbers, and reports whether the run succeeded.
func (r *reader) close() bool {
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, max(r.failed, r.broken), r.skipped)
	for _, text := range r.refused {
		fmt.Fprintf(r.out, "skip that is not allowed: %s\n", text)
	}
	return r.packages > 0 && r.broken == 0 && len(r.refused) == 0
}
