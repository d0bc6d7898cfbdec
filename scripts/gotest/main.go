// Command gotest runs "go test" by gotestsum, which prints its output. With -skips, a skip that the list does not allow is a
// failure: a skipped test tests nothing, and is easily overlooked.
//
// A run on a machine that lacks tools writes its skipped tests with -later; it may skip what the list marks as "later:".
// With -only, a run on a machine with the tools repeats exactly these tests, and fails if one of them does not run.
//
// Up to three failing tests run once more, alone: on a busy machine, a test of real packets can fail for want of time. They
// are named at the end. A data race always fails, and so does a package that ended before its tests or beside them.
//
// usage: gotest [-skips FILE] [-later FILE | -only FILE] [flags of go test] [packages, with ./ or the module's path]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
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

// goTest runs go test by gotestsum, which prints its output, and reads its events. ok: it succeeded.
func (r *reader) goTest(ctx context.Context, args []string) (ok bool, err error) {
	dir, err := os.MkdirTemp("", "gotest-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	events := filepath.Join(dir, "events.json")
	first := len(args) // package
	for first > 0 && (strings.HasPrefix(args[first-1], "./") || strings.HasPrefix(args[first-1], "synclab/")) {
		first--
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{
		"tool", "gotestsum", "--format", "standard-quiet", "--jsonfile", events,
		"--rerun-fails=1", "--rerun-fails-max-failures=3", "--rerun-fails-abort-on-data-race",
		"--packages=" + strings.Join(args[first:], " "), "--",
	}, args[:first]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	failed := cmd.Run()
	if exit := (*exec.ExitError)(nil); failed != nil && !errors.As(failed, &exit) {
		return false, failed
	}
	in, err := os.Open(events)
	if err != nil {
		return false, err
	}
	defer in.Close()
	return failed == nil, r.read(in)
}

// event is one event of "go test -json" (go doc test2json).
type event struct{ Action, Package, Test, Output string }

// key names a test.
type key struct{ pkg, test string }

// reader finds the skipped tests in events.
type reader struct {
	out    io.Writer
	skips  *skips
	output map[key][]string // of tests that run

	ends    map[key]string // the last end of each test: pass, fail or skip
	again   []key          // tests that failed, and passed when they ran alone
	broken  []string       // packages that failed otherwise than by a test
	refused []string       // skips that are not allowed
	later   []key          // skipped tests
	missing map[key]bool   // tests of -only that have not run; nil: any tests run
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
	r.output = map[key][]string{}
	if r.ends == nil {
		r.ends = map[key]string{}
	}
	failed := map[string]bool{} // packages with a failed test
	for events := json.NewDecoder(in); ; {
		var e event
		if err := events.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		switch k := (key{e.Package, e.Test}); {
		case e.Action == "output":
			r.output[k] = append(r.output[k], e.Output)
		case e.Action != "pass" && e.Action != "fail" && e.Action != "skip":
		case e.Test == "":
			// A test binary says FAIL when all of its tests have ended, and go test repeats it with the package's name.
			if e.Action == "fail" && !(failed[e.Package] && slices.Contains(r.output[k], "FAIL\n")) {
				r.broken = append(r.broken, e.Package)
			}
			r.ends[k] = e.Action
			delete(r.output, k)
		default:
			failed[e.Package] = failed[e.Package] || e.Action == "fail"
			r.ended(e.Action, k)
		}
	}
}

// ended handles the end of a test.
func (r *reader) ended(action string, k key) {
	delete(r.missing, k)
	before := r.ends[k]
	if before != "fail" || action == "pass" { // a skip makes nothing good
		r.ends[k] = action
	}
	switch {
	case before == "fail" && action == "pass":
		r.again = append(r.again, k)
	case before == "" && action == "skip":
		r.later = append(r.later, k)
		if r.skips != nil && !r.skips.allow(k.pkg, k.test) {
			r.refused = append(r.refused, fmt.Sprintf("%s %s: %s", k.pkg, k.test, reasonOf(r.output[k])))
		}
	}
	delete(r.output, k)
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

// close prints the numbers and what is wrong, and reports whether nothing is.
func (r *reader) close() bool {
	count := map[string]int{}
	for k, end := range r.ends {
		if k.test != "" {
			count[end]++
		}
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"], count["skip"])
	for _, k := range r.again {
		fmt.Fprintf(r.out, "failed beside other tests, and passed alone: %s %s\n", k.pkg, k.test)
	}
	for _, pkg := range r.broken {
		fmt.Fprintf(r.out, "package that failed before its tests or beside them: %s\n", pkg)
	}
	for _, text := range r.refused {
		fmt.Fprintf(r.out, "skip that is not allowed: %s\n", text)
	}
	for k := range r.missing {
		fmt.Fprintf(r.out, "test that was skipped before, and did not run: %s %s\n", k.pkg, k.test)
	}
	ran := len(r.ends) > 0 || r.missing != nil // nothing was skipped before
	return ran && count["fail"]+len(r.broken)+len(r.refused)+len(r.missing) == 0
}
