package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports"
	"synclab/reports/atlas"
	"synclab/reports/comparison"
	"synclab/reports/export"
	"synclab/reports/front"
	"synclab/reports/index"
	"synclab/reports/plan"
	"synclab/reports/records"
	"synclab/reports/sections"
)

// exports are formats of other programs.
var exports = map[string]func(io.Writer, *sections.Summary) error{"perfdash": export.PerfDash, "openmetrics": export.OpenMetrics}

func newReport(s streams) *cobra.Command {
	var f reportFlags
	cmd := &cobra.Command{
		Use:   "report [RUN...]",
		Short: "Derive the report of one run, or of several runs, from the records",
		Long: `Report reads the raw records of run folders and writes everything derived from
them: index.html, plots, summary.json, summary.md and bench.txt. Without an
argument it uses the newest run in ` + raw.RunsFolder + `/. Several runs make one report that
compares them, in the first folder unless --out names another. If that folder belongs
to another user, the report is in synclab-report-NAME in the current one. For a plan's
folder it makes the plan's page.

Shards of a sweep, or the folder that contains them, are one run. The report names
missing shards. It refuses shards that do not belong together.`,
		Example: `  synclab report
  synclab report runs/before runs/after --out runs/comparison
  synclab report sweep/shard-*
  synclab report runs/sweep --full-sync 500ms --first-packet-p99 50us
  synclab report runs/before -o json
  synclab report runs/before -o openmetrics        # for Prometheus; -o perfdash for PerfDash
  synclab report runs/plan-1                       # the page of a plan
  synclab report --atlas runs/large runs/packets   # a table for each question, as Markdown`,
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, s, args) },
	}
	f.register(cmd)
	cmd.ValidArgsFunction = completeRuns
	return cmd
}

// reportFlags are the flags of `synclab report`.
type reportFlags struct {
	format    terminal.Format
	out       string
	fullSync  time.Duration
	npl       time.Duration
	packetP99 time.Duration
	noPNG     bool
	atlas     bool
}

func (f *reportFlags) register(cmd *cobra.Command) {
	f.format.Register(cmd, slices.Sorted(maps.Keys(exports))...)
	flags := cmd.Flags()
	registerOut(cmd, &f.out, nil, "report", "the first run's, if it is yours")
	flags.BoolVar(&f.atlas, "atlas", false, "print a table for each question, with the subjects of all RUNs as columns, as Markdown")
	flags.BoolVar(&f.noPNG, "no-png", false, "draw SVG only")
	for _, slo := range []struct {
		to    *time.Duration
		name  string
		usual float64 // seconds
		what  string
	}{
		{&f.fullSync, "full-sync", comparison.ReportSLOs.FullSync, "longest median full sync"},
		{&f.npl, "npl-p99", comparison.ReportSLOs.Latency, "longest 99th percentile of network programming latency"},
		{&f.packetP99, "first-packet-p99", comparison.ReportSLOs.FirstPacket, "highest 99th percentile of the cost of a flow's first packet to the last Service"},
	} {
		flags.DurationVar(slo.to, slo.name, comparison.Duration(slo.usual), "SLO: "+slo.what+"; a `time`")
	}
	cmd.MarkFlagsMutuallyExclusive("out", "atlas")
	cmd.MarkFlagsMutuallyExclusive("output", "atlas")
}

// options checks the SLOs.
func (f *reportFlags) options(cmd *cobra.Command) (reports.Options, error) {
	for name, value := range map[string]time.Duration{"full-sync": f.fullSync, "npl-p99": f.npl, "first-packet-p99": f.packetP99} {
		if value <= 0 {
			return reports.Options{}, badUsage(cmd, "--%s %v: want more than 0", name, value)
		}
	}
	return reports.Options{NoPNG: f.noPNG, SLOs: comparison.SLOs{FullSync: f.fullSync.Seconds(), Latency: f.npl.Seconds(), FirstPacket: f.packetP99.Seconds()}}, nil
}

func (f *reportFlags) run(cmd *cobra.Command, s streams, dirs []string) error {
	options, err := f.options(cmd)
	switch {
	case err != nil:
		return err
	case len(dirs) == 0:
		newest, err := newestRun(raw.RunsFolder)
		if err != nil {
			return badInput(err)
		}
		dirs = []string{newest}
	}
	if len(dirs) == 1 && exports[string(f.format)] == nil && plan.HasAnswer(dirs[0]) {
		return planReport(s, dirs[0], f.out, f.format, options)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, "run.json")); err != nil && len(records.ShardsIn(dir)) == 0 {
			return badUsage(cmd, "%s is not the folder of a run: %w", dir, err)
		}
	}
	if f.atlas {
		page, err := atlas.Of(dirs)
		if err != nil {
			return badInput(err)
		}
		return page.Markdown(s.out)
	}
	out, err := outFolder(f.out, dirs)
	if err != nil {
		return err
	}
	_, err = report(s, dirs, out, f.format, options)
	if unread := (*reports.RunsError)(nil); errors.As(err, &unread) {
		return badInput(err)
	}
	return err
}

// registerOut adds the flags for the folder of what a command writes, and for replacing what is there; nil: it does so anyway.
func registerOut(cmd *cobra.Command, out *string, force *bool, of, usual string) {
	if force != nil {
		cmd.Flags().BoolVar(force, "force", false, "replace the "+of+" that is in the folder --out")
	}
	cmd.Flags().StringVar(out, "out", "", "`folder` of the "+of+" (default: "+usual+")")
}

// outFolder returns the folder of a report: the one of --out, else that of the first run.
func outFolder(given string, dirs []string) (string, error) {
	if given != "" {
		return given, nil
	}
	out, err := records.OutFolder(dirs)
	return out, badInput(err)
}

// freshFolder returns the folder --out, or a new one in runs/. What --out has already needs --force, before anything is measured.
func freshFolder(cmd *cobra.Command, given, kind string, force bool) (string, error) {
	if given == "" {
		return raw.NewFolder(kind, time.Now())
	}
	entries, err := os.ReadDir(given)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", badInput(err)
	case len(entries) > 0 && !force:
		return "", badUsage(cmd, "--out %s is not empty: choose another folder, or replace what is in it with --force", given)
	}
	return given, nil
}

func newIndex(s streams) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "index [FOLDER]",
		Short: "Make a front page of all runs in a folder, with their verdicts",
		Long: `Index reads the reports of the runs in a folder, by default ` + raw.RunsFolder + `/, and writes a page
with their verdicts and main figures: index.html in that folder, unless --out names
another.`,
		Example: "  synclab index\n  synclab index sweep/ --out public",
		Args:    argCount(0, 1, "a folder of runs"),
		RunE: func(_ *cobra.Command, args []string) error {
			return indexPage(s, append(args, raw.RunsFolder)[0], out)
		},
	}
	registerOut(cmd, &out, nil, "page", "that of the runs, if it is yours")
	cmd.ValidArgsFunction = completeFolder
	return cmd
}

// completeFolder completes an argument with folders.
func completeFolder(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// indexPage writes the front page of a folder of runs, and prints it.
func indexPage(s streams, folder, out string) error {
	d, err := index.Document(folder)
	if err != nil {
		return badInput(err)
	}
	if out, err = outFolder(out, []string{folder}); err != nil {
		return err
	}
	file := filepath.Join(out, "index.html")
	if err := errors.Join(writePage(file, d.Page), d.Text(s.out)); err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "\npage: %s\n", file)
	return err
}

// completeRuns offers the runs in runs/, the newest first. If none fits, it offers folders.
func completeRuns(_ *cobra.Command, given []string, typed string) ([]string, cobra.ShellCompDirective) {
	fitting := slices.DeleteFunc(runsIn(raw.RunsFolder), func(dir string) bool { return !strings.HasPrefix(dir, typed) || slices.Contains(given, dir) })
	if len(fitting) == 0 {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return fitting, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// newestRun returns the newest run folder in root.
func newestRun(root string) (string, error) {
	if runs := runsIn(root); len(runs) > 0 {
		return runs[0], nil
	}
	return "", fmt.Errorf("no run in %s/ yet: name a run folder, or make one with `synclab run`", root)
}

// runsIn returns the run folders in root, the one that was written last first; for a shard, the folder of its sweep.
func runsIn(root string) []string {
	written := map[string]time.Time{}
	for _, pattern := range []string{"run.json", "shard-*/run.json", plan.AnswerFile} {
		files, _ := filepath.Glob(filepath.Join(root, "*", pattern))
		for _, file := range files {
			dir := filepath.Dir(file)
			if sweep := filepath.Dir(dir); len(records.ShardsIn(sweep)) > 0 {
				dir = sweep
			}
			if stat, err := os.Stat(file); err == nil && stat.ModTime().After(written[dir]) {
				written[dir] = stat.ModTime()
			}
		}
	}
	return slices.SortedFunc(maps.Keys(written), func(a, b string) int { return cmp.Or(written[b].Compare(written[a]), strings.Compare(a, b)) })
}

// report builds the report and prints its summary and the path of its page.
func report(s streams, dirs []string, out string, format terminal.Format, options reports.Options) (*sections.Summary, error) {
	summary, err := reports.Build(dirs, out, options)
	if err != nil {
		return nil, err
	}
	for _, run := range summary.Runs {
		if run.Missing != "" {
			fmt.Fprintf(s.err, "%s: %s\n", run.Label, run.Missing)
		}
	}
	if !anySync(summary) {
		fmt.Fprintf(s.err, "%s: no sync was measured before the run ended, so there is no number to report\n", strings.Join(dirs, ", "))
	}
	if write := exports[string(format)]; write != nil {
		return summary, write(terminal.Verbatim(s.out), summary)
	}
	return summary, format.Write(s.out, summary, func(w io.Writer) error {
		if err := front.Terminal(w, summary); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\nreport: %s\n", filepath.Join(out, "index.html"))
		return err
	})
}

// anySync reports whether a sync was measured: a run may end before the first one.
func anySync(summary *sections.Summary) bool {
	return slices.ContainsFunc(summary.Rows, func(r sections.Row) bool {
		return r.Metric == raw.ColdStart || r.Metric == raw.FullSync || r.Metric == raw.PartialSync
	})
}
