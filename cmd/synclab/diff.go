package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/diff"
	"synclab/reports/history"
	"synclab/reports/records"
	"synclab/scenarios"
)

func newDiff(s streams) *cobra.Command {
	var (
		format     terminal.Format
		thresholds thresholdFlags
		page       string
		earlier    []string
		subjects   [2]string
	)
	cmd := &cobra.Command{
		Use:   "diff RUN | RUN1 RUN2",
		Short: "Find statistically what got slower between two subjects of a run, or two runs",
		Long: `Diff compares two subjects of one run, --before and --after: by default the first and
the second of two. Subjects take turns in each repetition, so this shows the smallest
differences. With two runs, it compares every subject in every cell that both have,
before (RUN1) and after (RUN2). Each figure has the ratio, its 95 % interval, and the
p-value of a test on the repetitions. A figure is called slower only if the test shows
it. With too few repetitions, diff says so and how many it needs: at least 6 of one
run or 4 of each of two, and more for many figures.

Two runs of one program differ by more than their repetitions show: diff allows 2 %
for that, or what earlier runs of the same figure show (--history, from five runs
on). The output of two runs begins with what differs between them: machine, kernel,
tools, scenario, seed.

A figure may exceed its old value by its threshold: --threshold, or the scenario's
own, else --max-slower, or "all" in the scenario. The exit status is

  0  no figure is shown to exceed its threshold
  1  a figure is: slower, or more rules, bytes, memory or CPU time
  2  bad input, or runs with no subject in the same cell

Figures: ` + strings.Join(scenarios.ThresholdFigures(), ", ") + `.`,
		Example: `  synclab compare steady-churn --reps 10 --out ab --subjects kube-proxy@src:base=../base/nftables,kube-proxy@src:head=../head/nftables
  synclab diff ab --max-slower 5%    # fails a job of CI with status 1
  synclab diff runs/compared --before kube-proxy/iptables-nft --after kube-proxy/nftables
  synclab diff runs/before runs/after
  synclab diff runs/before runs/after --max-slower 5% --threshold peak_rss=20%
  synclab diff runs/before runs/after --threshold rules=0% --threshold all=off
  synclab diff runs/before runs/after --page diff.html
  synclab diff runs/before runs/after --history history.jsonl
  synclab diff runs/before runs/after --format github > comment.md   # for a pull request
  synclab diff runs/before runs/after -o json | jq '.rows[] | select(.verdict == "slower")'
  synclab report runs/before runs/after --out runs/comparison  # both on one page`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 && len(earlier) > 0 {
				return badUsage(cmd, "--history is for two runs: subjects of one have no scatter between runs")
			}
			if len(args) == 2 && subjects != [2]string{} {
				return badUsage(cmd, "--before and --after name subjects of one run; got two runs")
			}
			if len(args) != 1 && len(args) != 2 {
				return badUsage(cmd, "wants a run of two subjects, or two runs, before and after; got %d", len(args))
			}
			if (subjects[0] == "") != (subjects[1] == "") {
				return badUsage(cmd, "--before and --after belong together")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			options, err := thresholds.read(cmd)
			if err != nil {
				return err
			}
			if len(args) == 1 {
				if options.OneRun = true; subjects != [2]string{} {
					options.Pairs = [][2]string{subjects}
				}
				return compareRuns(s, args[0], args[0], format, page, options)
			}
			if len(earlier) > 0 {
				entries, _, err := history.Read(earlier)
				if err != nil {
					return badInput(err)
				}
				run, err := raw.ReadRunFile(args[1])
				if err != nil {
					return badInput(err)
				}
				options.Scatter = history.Of(entries, history.Options{}).Scatter(records.MachineText(run.Machine))
			}
			return compareRuns(s, args[0], args[1], format, page, options)
		},
	}
	format.Register(cmd, terminal.GitHub)
	thresholds.register(cmd, diff.DefaultThreshold)
	registerPage(cmd, &page, "comparison")
	cmd.Flags().StringArrayVar(&earlier, "history", nil, "earlier runs, which show how much runs differ: `DIR|FILE` as for synclab history (repeatable)")
	for i, flag := range []string{"before", "after"} {
		cmd.Flags().StringVar(&subjects[i], flag, "", "`subject` of one run (default: of two, the "+[]string{"first", "second"}[i]+")")
	}
	cmd.ValidArgsFunction = completeRuns
	return cmd
}

// thresholdFlags are the shares by which figures may grow.
type thresholdFlags struct {
	maxSlower shareFlag
	figures   []string
}

func (f *thresholdFlags) register(cmd *cobra.Command, usual float64) {
	f.maxSlower.share = usual
	flags := cmd.Flags()
	flags.Var(&f.maxSlower, "max-slower", "allowed increase of figures without a threshold: a `share`, such as 5%")
	flags.StringArrayVar(&f.figures, "threshold", nil, "`FIGURE=SHARE`: allowed increase of one figure, such as full_sync=5%, or off (repeatable)")
	terminal.CompleteBy(cmd, "threshold", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, figure := range append(scenarios.ThresholdFigures(), scenarios.ThresholdAll) {
			words = append(words, figure+"=")
		}
		return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// read returns the flags as options.
func (f *thresholdFlags) read(cmd *cobra.Command) (diff.Options, error) {
	o := diff.Options{Figures: map[string]float64{}}
	if cmd.Flags().Changed("max-slower") {
		o.All = &f.maxSlower.share
	}
	for _, text := range f.figures {
		if err := addThreshold(&o, text); err != nil {
			return o, badUsage(cmd, "--threshold %s: %w", text, err)
		}
	}
	return o, nil
}

// addThreshold reads "full_sync=5%".
func addThreshold(o *diff.Options, text string) error {
	figure, value, ok := strings.Cut(text, "=")
	if !ok {
		return fmt.Errorf("want FIGURE=SHARE, such as full_sync=5%%")
	}
	var f shareFlag
	if err := f.Set(value); err != nil {
		return err
	}
	if figure == scenarios.ThresholdAll {
		o.All = &f.share
		return nil
	}
	if !diff.Known(figure) {
		return fmt.Errorf("no such figure; there are %s, and %s", strings.Join(scenarios.ThresholdFigures(), ", "), scenarios.ThresholdAll)
	}
	o.Figures[figure] = f.share
	return nil
}

// shareFlag is a share on the command line: "5%", or "off", which allows any increase and is -1.
type shareFlag struct{ share float64 }

func (f *shareFlag) String() string { return strconv.FormatFloat(100*f.share, 'g', -1, 64) + "%" }
func (f *shareFlag) Type() string   { return "share" }

// Set implements pflag.Value.
func (f *shareFlag) Set(text string) error {
	if text == "off" {
		f.share = -1
		return nil
	}
	number, ok := strings.CutSuffix(text, "%")
	percent, err := strconv.ParseFloat(number, 64)
	if !ok || err != nil || !(percent >= 0 && percent <= 10_000) {
		return fmt.Errorf("want a share such as 5%%, at most 10000%%, or off")
	}
	f.share = percent / 100
	return nil
}

// registerPage adds the flag of commands that also write what they print as a page.
func registerPage(cmd *cobra.Command, page *string, what string) {
	cmd.Flags().StringVar(page, "page", "", "write the "+what+" as a page to this `file`, too")
}

func writePage(path string, page func(io.Writer) error) error {
	return outfile.WriteWith(path, 0o644, page)
}

// showCompared prints a comparison, and writes it as a page if one is asked for.
func showCompared(s streams, c comparedRuns, format terminal.Format, page string) error {
	if err := format.Write(s.out, c, format.Text(c.Table, c.Markdown)); err != nil || page == "" {
		return err
	}
	return writePage(page, c.Page)
}

// comparedRuns is a comparison of runs.
type comparedRuns interface {
	Table(w io.Writer) error
	Markdown(w io.Writer) error
	Page(w io.Writer) error
}

// diff prints the comparison and fails when a threshold is exceeded.
func compareRuns(s streams, before, after string, format terminal.Format, page string, options diff.Options) error {
	d, err := diff.Compare(before, after, options)
	if err != nil {
		return badInput(err)
	}
	if err := showCompared(s, d, format, page); err != nil {
		return err
	}
	beyond := d.Beyond()
	if len(beyond) == 0 {
		return nil
	}
	var what []string
	for _, row := range beyond {
		what = append(what, row.Sentence())
	}
	return fmt.Errorf("beyond the threshold: %s", firstThree(what))
}

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
every subject and size, and divides it into levels. A new level takes a statistical test
over the runs: Student's t on logarithms. From five runs on, a change can be shown.
Machines of other kinds have separate trends.

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
	registerPage(cmd, &page, "history")
	flags.BoolVar(&check, "check", false, "end with status 1 if the newest point shows a new worse level")
	terminal.Complete(cmd, "by", history.Bys...)
	return cmd
}

// showHistory prints the history. With check, it fails if the newest point shows a new worse level.
func showHistory(s streams, h *history.History, format terminal.Format, page string, check bool) error {
	if err := showCompared(s, h, format, page); err != nil {
		return err
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
