// Command random runs the random tests of all packages (those that use package seedstest) with one seed after the other for
// some minutes, and each package at least once. It prints failures, with the command that reproduces them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"
)

const seedsImport = "synclab/internal/seedstest"

// step is the distance between the seeds of two rounds: no test takes more seeds in a round.
const step = 1000

func main() {
	minutes := flag.Float64("minutes", 10, "start no package after so many minutes, but each one once")
	seed := flag.Uint64("seed", 1000, "the first round's seed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, time.Duration(*minutes*float64(time.Minute)), *seed, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// pkg is a package with random tests.
type pkg struct {
	path, dir string
	tests     []string
	binary    string
}

// run tests the packages of the patterns; none: all.
func run(ctx context.Context, length time.Duration, seed uint64, patterns []string) error {
	packages, err := find(ctx, patterns)
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp("", "random")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	for i := range packages {
		p := &packages[i]
		p.binary = filepath.Join(folder, strings.ReplaceAll(p.path, "/", "_")+".test")
		if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-o", p.binary, p.path).CombinedOutput(); err != nil {
			return fmt.Errorf("go test -c %s: %w\n%s", p.path, err, out)
		}
		fmt.Printf("%s: %d random tests\n", p.path, len(p.tests))
	}
	until := time.Now().Add(length)
	first, runs, failed := seed, 0, 0
	for round := 0; round == 0 || time.Now().Before(until); round++ {
		for i := range packages {
			if round > 0 && !time.Now().Before(until) {
				break
			}
			ok, err := packages[i].try(ctx, seed)
			if err != nil {
				return err
			}
			runs++
			if !ok {
				failed++
			}
		}
		seed += step
	}
	fmt.Printf("seeds %d to %d by %d, %d runs of %d packages: %d failed\n", first, seed-step, step, runs, len(packages), failed)
	if failed > 0 {
		return fmt.Errorf("%d runs failed", failed)
	}
	return nil
}

// find lists the packages whose tests import package seedstest.
func find(ctx context.Context, patterns []string) ([]pkg, error) {
	if len(patterns) == 0 {
		patterns = []string{"./..."}
	}
	format := `{{.ImportPath}}{{"\t"}}{{.Dir}}{{"\t"}}{{.TestImports}} {{.XTestImports}}`
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-f", format}, patterns...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	var packages []pkg
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 3 || !strings.Contains(fields[2], seedsImport) {
			continue
		}
		p := pkg{path: fields[0], dir: fields[1]}
		if p.tests, err = randomTests(p.dir); err != nil {
			return nil, err
		}
		if len(p.tests) == 0 {
			return nil, fmt.Errorf("%s: its tests import %s, but none of them uses a seed", p.path, seedsImport)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		return nil, fmt.Errorf("no package of %v has random tests", patterns)
	}
	return packages, nil
}

// mostLines is the number of lines shown of a failed run's output.
const mostLines = 40

func (p *pkg) try(ctx context.Context, seed uint64) (ok bool, err error) {
	began := time.Now()
	pattern := "^(" + strings.Join(p.tests, "|") + ")$"
	// -test.v prints the names of the tests that ran: a pattern that matches nothing must not pass.
	cmd := exec.CommandContext(ctx, p.binary, "-test.v", "-test.run", pattern, "-seed", fmt.Sprint(seed))
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return false, fmt.Errorf("%s: %w", p.path, err)
	}
	text := string(out)
	ran := strings.Count(text, "\n--- PASS: ") + strings.Count(text, "\n--- FAIL: ")
	if ok = err == nil && ran > 0; ok {
		fmt.Printf("ok  \t%s\t-seed %d\t%d tests\t%.1fs\n", p.path, seed, ran, time.Since(began).Seconds())
		return true, nil
	}
	lines := strings.Split(text, "\n")
	fmt.Println(strings.Join(lines[max(0, len(lines)-mostLines):], "\n"))
	fmt.Printf("FAIL\t%s\nreproduce with: go test -count=1 -run '^(%s)$' %s -seed %d\n", p.path, strings.Join(failing(lines), "|"), p.path, seed)
	return false, nil
}

// failing returns the names of the failed tests.
func failing(lines []string) []string {
	var names []string
	for _, line := range lines {
		if rest, found := strings.CutPrefix(line, "--- FAIL: "); found {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	return names
}
