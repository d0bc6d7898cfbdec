package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/outfile"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/history"
)

func newHistory(s streams) *cobra.Command {
	var (
		format     terminal.Format
		thresholds thresholdFlags
		options    history.Options
		page       string
		check      bool
	)
	cmd := &cobra.Command{
		Use:   "history DIR|FILE...",
		Short: "Follow figures over many runs, and find where they changed",
		Long: `History reads runs: their folders, a folder of runs, files summary.json, or a file
that 'synclab run --history FILE' appends to. It shows the trend of every figure of
every subject and size, and divides it into levels. A change takes a statistical test
over the runs: E-divisive for earlier changes, and the interval of one more run for
the newest one. From five runs on, a change can be shown. Machines of other kinds
have separate trends.

With --by, the runs of one version or kernel are one point, also where one run has
several of them, such as kube-proxy@v1.36.3/nftables.

A level may be above the one before by its threshold: --threshold, or the newest
run's scenario, else --max-slower. With --check the exit status is

  0  the newest point shows no new worse level
  1  it does: a worse level that starts with it, or that the points before did not show
  2  bad input`,
		Example: `  synclab history runs/
  synclab run steady-churn --reps 6 --history history.jsonl   # in CI: appends the run,
  synclab history history.jsonl --check                       # fails the job with status 1
  synclab history history.jsonl --page history.html --max-slower 10% --threshold peak_rss=20%
  synclab history runs/releases --by kube-proxy
  synclab history runs/before/summary.json runs/after -o json | jq '.trends[] | select(.worse)'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return badUsage(cmd, "wants run folders, a folder of runs, or files")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(history.Bys, options.By) {
				return badUsage(cmd, "--by %q: want %s", options.By, orWords(history.Bys))
			}
			var err error
			if options.Options, err = thresholds.read(cmd); err != nil {
				return err
			}
			entries, leftOut, err := history.Read(args)
			if err != nil {
				return badInput(err)
			}
			h := history.Of(entries, options)
			h.LeftOut = leftOut
			return showHistory(s, h, format, page, check)
		},
	}
	format.Register(cmd, terminal.GitHub)
	thresholds.register(cmd, history.DefaultThreshold)
	flags := cmd.Flags()
	flags.StringVar(&options.By, "by", history.ByRun, "what a `point` is: "+strings.Join(history.Bys, ", "))
	flags.StringVar(&page, "page", "", "write the history as a page to this `file`, too")
	flags.BoolVar(&check, "check", false, "end with status 1 if the newest point shows a new worse level")
	if err := cmd.MarkFlagFilename("page", "html"); err != nil {
		panic(err)
	}
	terminal.Complete(cmd, "by", history.Bys...)
	return cmd
}

// showHistory prints the history. With check, it fails if the newest point shows a new worse level.
func showHistory(s streams, h *history.History, format terminal.Format, page string, check bool) error {
	if err := format.Write(s.out, h, format.Text(h.Table, h.Markdown)); err != nil {
		return err
	}
	if page != "" {
		var b bytes.Buffer
		if err := errors.Join(h.Page(&b), outfile.Write(page, b.Bytes(), 0o644)); err != nil {
			return err
		}
	}
	worse := h.Worse()
	if !check || len(worse) == 0 {
		return nil
	}
	var what []string
	for _, t := range worse {
		what = append(what, h.Sentence(t))
	}
	return fmt.Errorf("a new worse level: %s", firstThree(what))
}

// firstThree is the first three of several texts, one a line, and how many more there are.
func firstThree(texts []string) string {
	if n := len(texts) - 3; n > 0 {
		texts = append(texts[:3:3], fmt.Sprintf("and %d more", n))
	}
	return strings.Join(texts, "\n  ")
}
