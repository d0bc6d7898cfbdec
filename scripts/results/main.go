// Command results measures the numbers in README.md and docs/, and writes them there. docs/results.yaml lists the parts.
//
//  1. measure: the commands of a part run one after the other. Their records, pages and terminal output go to
//     runs/results/PART. A part that was measured with the same code is not measured again.
//  2. render: each output of a part is cut from these files and put between its markers in a document, with date,
//     commit, machine, kernel, versions and the commands. A picture is copied.
//
// It computes no number: it only copies text from reports and terminal output.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "results:", err)
		os.Exit(1)
	}
}

// options are the command line's.
type options struct {
	list, render, force, uncommitted, index bool
	parts                                   string
	docs, program                           string
	values                                  values
}

func run(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("results", flag.ContinueOnError)
	flags.BoolVar(&o.list, "list", false, "list the parts and how long they take, and stop")
	flags.StringVar(&o.parts, "part", "", "parts to do, separated by commas (default: all that are not apart)")
	flags.BoolVar(&o.render, "render", false, "write the documents from earlier measurements; measure nothing")
	flags.BoolVar(&o.index, "index", false, "write the list in docs/results.md from the documents, and stop")
	flags.BoolVar(&o.force, "force", false, "measure a part again even if the code is the same")
	flags.BoolVar(&o.uncommitted, "uncommitted", false, "measure even if the source has uncommitted changes; needs -docs")
	flags.StringVar(&o.docs, "docs", ".", "folder with README.md and docs/ to write")
	flags.StringVar(&o.program, "program", "bin/synclab", "the synclab to run")
	flags.StringVar(&o.values.services, "n", "", "Services instead of the part's own number; needs -docs")
	flags.StringVar(&o.values.reps, "reps", "", "repetitions instead of the part's own number; needs -docs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("argument %q: want flags only", flags.Arg(0))
	}
	published := filepath.Clean(o.docs) == "."
	if published && (o.values != values{} || o.uncommitted) {
		return errors.New("-n, -reps and -uncommitted are for tests: name a copy of README.md and docs/ with -docs")
	}
	all, err := readParts("docs/results.yaml")
	if err != nil {
		return err
	}
	if o.index {
		return writeIndex(all, o.docs)
	}
	parts, err := choose(slices.Clone(all), o.parts)
	if err != nil {
		return err
	}
	if o.list {
		minutes := 0
		for _, p := range parts {
			minutes += p.Minutes
		}
		for _, p := range all {
			fmt.Printf("%-18s about %3d minutes  %s%s\n", p.Name, p.Minutes, p.About, map[bool]string{true: " (by name only)"}[p.Apart])
		}
		fmt.Printf("%-18s about %3d minutes\n", "together", minutes)
		return nil
	}
	folder := filepath.Join("runs", "results")
	if !published {
		folder = filepath.Join(o.docs, "runs")
	}
	var failed []error
	for _, p := range parts {
		m := measurement{part: p, dir: filepath.Join(folder, p.Name), values: o.values, program: o.program}
		if err := o.do(ctx, m); err != nil {
			failed = append(failed, fmt.Errorf("part %s: %w", p.Name, err))
		}
		if ctx.Err() != nil {
			break // finished parts stay; the next call continues after them
		}
	}
	return errors.Join(append(failed, writeIndex(all, o.docs))...)
}

// do measures one part, unless it was measured or -render is set, and renders it.
func (o *options) do(ctx context.Context, m measurement) error {
	if !o.render {
		code, err := sourceCommit(o.uncommitted)
		if err != nil {
			return err
		}
		if o.force || m.measured() != code {
			fmt.Printf("== %s: %s, about %d minutes\n", m.part.Name, m.part.About, m.part.Minutes)
			if err := m.measure(ctx, code); err != nil {
				return err
			}
		}
	}
	for _, output := range m.part.Outputs {
		if err := m.render(output, o.docs); err != nil {
			return err
		}
	}
	fmt.Printf("== %s: rendered\n", m.part.Name)
	return nil
}

// choose returns the named parts, in the order of the file; without names all that are not apart.
func choose(parts []part, names string) ([]part, error) {
	parts = slices.DeleteFunc(parts, func(p part) bool { return names == "" && p.Apart })
	if names == "" {
		return parts, nil
	}
	wanted := strings.Split(names, ",")
	var chosen []part
	for _, p := range parts {
		if i := slices.Index(wanted, p.Name); i >= 0 {
			chosen = append(chosen, p)
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("part %q is not in docs/results.yaml; -list lists them", wanted[0])
	}
	return chosen, nil
}
