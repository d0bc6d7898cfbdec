// Command gotest runs "go test" and prints its output, with the numbers of passed, failed and skipped tests at the end.
// With -skips, a skip that the list does not allow is a failure: a skipped test tests nothing, and is easily overlooked.
//
// A run on a machine that lacks tools writes its skipped tests with -later; it may skip what the list marks as "later:".
// With -only, a run on a machine with the tools repeats exactly these tests, and fails if one of them does not run.
//
// usage: gotest [-skips FILE] [-later FILE | -only FILE] [arguments of go test]
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	o, args := split(os.Args[1:])
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ok, err := o.run(ctx, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// options are the program's own flags: names of files.
type options struct{ skips, later, only string }

// split separates the program's flags, which come first, from the arguments of go test.
func split(args []string) (o options, rest []string) {
	flags := map[string]*string{"-skips": &o.skips, "-later": &o.later, "-only": &o.only}
	for len(args) > 1 && flags[args[0]] != nil {
		*flags[args[0]], args = args[1], args[2:]
	}
	return o, args
}

func (o options) run(ctx context.Context, args []string) (ok bool, err error) {
	r := &reader{out: os.Stdout}
	if o.skips != "" {
		if r.skips, err = readSkips(o.skips, o.later != ""); err != nil {
			return false, err
		}
	}
	runs := [][]string{args}
	if o.only != "" {
		var packages map[string][]string
		if packages, err = readTests(o.only); err != nil {
			return false, err
		}
		r.expect(packages)
		runs = nil
		for _, pkg := range slices.Sorted(maps.Keys(packages)) {
			runs = append(runs, append(slices.Clone(args), "-run", pattern(packages[pkg]), pkg))
		}
	}
	ok = true
	for _, args := range runs {
		passed, err := r.goTest(ctx, args)
		if err != nil {
			return false, err
		}
		ok = ok && passed
	}
	if o.later != "" {
		if err := writeTests(o.later, r.later); err != nil {
			return false, err
		}
	}
	return r.close() && ok, nil
}

// goTest runs go test and reads its events. ok: it succeeded.
func (r *reader) goTest(ctx context.Context, args []string) (ok bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	err = r.read(out)
	failed := cmd.Wait()
	if err != nil {
		return false, err
	}
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		return false, failed
	}
	return failed == nil, nil
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
	refused                 []string     // skips that are not allowed
	later                   []key        // skipped tests
	missing                 map[key]bool // tests of -only that have not run; nil: any tests run
}

// expect makes it a failure if one of the tests of a package does not run.
func (r *reader) expect(packages map[string][]string) {
	r.missing = map[key]bool{}
	for pkg, tests := range packages {
		for _, test := range tests {
			r.missing[key{pkg, test}] = true
		}
	}
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
	delete(r.missing, k)
	switch action {
	case "pass":
		r.passed++
	case "skip":
		r.skipped++
		r.later = append(r.later, k)
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
	for k := range r.missing {
		fmt.Fprintf(r.out, "test that was skipped before, and did not run: %s %s\n", k.pkg, k.test)
	}
	ran := r.packages > 0 || r.missing != nil // nothing was skipped before
	return ran && r.broken == 0 && len(r.refused) == 0 && len(r.missing) == 0
}
