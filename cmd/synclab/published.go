package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/lab/shell"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	reports "synclab/reports/published"
	"synclab/scenarios/published"
)

// publishedFlags are the flags of `synclab published`.
type publishedFlags struct {
	format terminal.Format
	list   bool
	reps   int
	out    string
	force  bool
}

func newPublished(s streams) *cobra.Command {
	f := publishedFlags{}
	cmd := &cobra.Command{
		Use:   "published [CLAIM...]",
		Short: "Measure again what others published about Service proxies, and say whether it agrees",
		Long: `Published runs the scenario of each claim: a number from an issue, a talk or a benchmark,
with what it lets expect here. What machines share is compared: ratios, shapes and shares
of functions, and no absolute times, unless a claim is about their order of magnitude.

  agrees              every value, with its interval, is within the bounds that the claim names
  differs             a value, with its interval, is outside of them
  undecided           an interval crosses a bound, or a subject was stopped before it could
  no bound published  the value is shown, and there is none to compare it with
  cannot run here     and why: a kernel, a tool or a mode is missing

Without a name it runs all, for some two hours. A claim that differs is a result: the
exit status is 0. docs/published.md is its table.`,
		Example: `  synclab published --list
  synclab published blog-first-packet
  synclab published --out runs/published
  synclab published -o json | jq '.[] | select(.verdict == "differs")'`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, s, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			claims, _ := published.Load()
			var names []string
			for _, c := range claims {
				names = append(names, c.Name+"\t"+c.Title)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&f.list, "list", false, "list the claims, with the time that each takes, and run nothing")
	flags.IntVar(&f.reps, "reps", 0, "`number` of repetitions of each cell (default: the claim's own)")
	f.format.Register(cmd, terminal.GitHub)
	registerOut(cmd, &f.out, &f.force, "runs, one below it for each claim", "a new one in runs/")
	return cmd
}

func (f *publishedFlags) run(cmd *cobra.Command, s streams, names []string) error {
	claims, err := published.Load()
	if err != nil {
		return err
	}
	for _, name := range names {
		if !slices.ContainsFunc(claims, func(c *published.Claim) bool { return c.Name == name }) {
			return badUsage(cmd, "there is no claim %q; synclab published --list has all", name)
		}
	}
	claims = slices.DeleteFunc(claims, func(c *published.Claim) bool { return len(names) > 0 && !slices.Contains(names, c.Name) })
	if cmd.Flags().Changed("reps") && f.reps < 1 {
		return badUsage(cmd, "--reps %d: want at least 1", f.reps)
	}
	left, rows := 0, [][]string{{"CLAIM", "MINUTES", "ABOUT", "SOURCE"}}
	for _, c := range claims {
		left += c.Minutes
		rows = append(rows, []string{c.Name, fmt.Sprint(c.Minutes), c.Title, c.Source})
	}
	if f.list {
		return terminal.Columns(s.out, rows...)
	}
	if f.out, err = freshFolder(cmd, f.out, "published", f.force); err != nil {
		return err
	}
	var results reports.Results
	for i, c := range claims {
		fmt.Fprintf(s.err, "claim %d of %d: %s, some %d minutes; about %d minutes left in all\n", i+1, len(claims), c.Name, c.Minutes, left)
		left -= c.Minutes
		r, err := f.measure(cmd.Context(), s, c)
		if err != nil {
			return fmt.Errorf("%s: %w", c.Name, err)
		}
		fmt.Fprintf(s.err, "%s: %s\n", c.Name, strings.TrimSuffix(string(r.Verdict)+": "+r.Why, ": "))
		results = append(results, r)
		document := results.Document() // after each claim, for one who interrupts the next
		if err := errors.Join(writePage(filepath.Join(f.out, "index.html"), document.Page), writePage(filepath.Join(f.out, "published.md"), document.Markdown)); err != nil {
			return err
		}
	}
	document := results.Document()
	if err := f.format.Write(s.out, results, f.format.Text(document.Text, document.Markdown)); err != nil {
		return err
	}
	fmt.Fprintf(s.err, "page: %s\n", shell.Line(filepath.Join(f.out, "index.html")))
	return nil
}

// measure runs a claim. What the machine lacks is a verdict, not an error.
func (f *publishedFlags) measure(ctx context.Context, s streams, c *published.Claim) (reports.Result, error) {
	scenario, err := c.MakeScenario()
	if err != nil {
		return reports.Result{}, err
	}
	if _, lacking := subject.WithTools(c.Subjects); lacking != "" {
		return reports.CannotRun(c, lacking), nil
	}
	o := runOptions{scenario: scenario, subjects: c.Subjects, reps: c.Reps, kernels: c.Kernels, profile: c.Profile,
		feed: raw.FeedAPI, out: filepath.Join(f.out, c.Name), force: f.force, config: config.New()}
	if f.reps > 0 {
		o.reps = f.reps
	}
	dir, err := o.runOnly(ctx, s)
	switch {
	case ctx.Err() != nil:
		return reports.Result{}, ctx.Err()
	case err != nil && dir == "": // nothing was started
		return reports.CannotRun(c, err.Error()), nil
	case err != nil:
		return reports.Result{}, fmt.Errorf("the run in %s: %w", shell.Line(dir), err)
	}
	return reports.Judge(c, dir)
}
