package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"synclab/bench"
	"synclab/bench/lab/shell"
	"synclab/bench/subject"
	"synclab/cmd/synclab/live"
	"synclab/cmd/synclab/terminal"
	"synclab/reports"
	"synclab/reports/history"
	"synclab/reports/sections"
)

// execute runs the scenario in separate namespaces and reports on it.
func execute(ctx context.Context, s streams, o runOptions) error {
	_, err := measure(ctx, s, o)
	return err
}

// measure is execute; it returns the summary of a whole run, too. With --listen, the live page takes the same events as
// the terminal.
func measure(ctx context.Context, s streams, o runOptions) (*sections.Summary, error) {
	if err := checkConfig(s, o); err != nil {
		return nil, err
	}
	if o.listen == "" || o.dryRun {
		return measureShown(ctx, s, o, func(bench.Progress) {})
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("--listen: %w", err)
	}
	page := live.Start(listener, o.scenario.Name)
	fmt.Fprintf(s.err, "live page: %s\n", page.URL())
	summary, err := measureShown(ctx, s, o, page.Show)
	if summary != nil {
		page.Done(summary)
	}
	if closed := page.Close(); err == nil {
		err = closed
	}
	return summary, err
}

// checkConfig refuses a configuration file that a subject would refuse, and prints what subjects do otherwise than it says.
func checkConfig(s streams, o runOptions) error {
	if o.configFile == "" {
		return nil
	}
	names := slices.Clone(o.subjects)
	for _, step := range o.scenario.Steps {
		if step.Migrate != nil {
			names = append(names, step.Migrate.To)
		}
	}
	version := (&subjectFlags{kubeProxy: o.kubeProxy}).version()
	notes, err := subject.CheckConfig(o.config, subject.ProxyConfig(o.config, o.scenario, o.objects == nil), names, version)
	for _, note := range notes {
		fmt.Fprintf(s.err, "note: %s: %s\n", o.configFile, note)
	}
	if err != nil {
		return badInput(fmt.Errorf("%s: %w", o.configFile, err))
	}
	return nil
}

// measureShown runs, reports, and gives the events of the progress to another consumer as well.
func measureShown(ctx context.Context, s streams, o runOptions, also func(bench.Progress)) (*sections.Summary, error) {
	shown := terminal.NewProgress(s.err)
	show := shown.Show
	if o.json {
		show = terminal.NewEvents(s.out).Progress
	}
	o.unsampled = true
	if o.precision > 0 {
		o.until = &bench.Until{Precision: o.precision, Budget: o.budget, Imprecise: func(dir string) ([]map[string]string, error) {
			return imprecise(dir, o.precision)
		}}
	}
	options := o.options(s, func(p bench.Progress) { show(p); also(p) })
	if o.dryRun {
		return nil, showShard(s.out, options)
	}
	if o.dump {
		options.Dump = func(subject, rules string) {
			shown.End()
			fmt.Fprintf(s.out, "# %s\n%s", subject, rules)
		}
	}
	dir, err := bench.Execute(ctx, options)
	shown.End()
	switch {
	case errors.Is(err, bench.ErrShardComplete):
		return nil, shardDone(s.out, dir, o, "is complete already: nothing was run (repeat it with --force)")
	case err == nil && o.shards > 0:
		return nil, shardDone(s.out, dir, o, "is complete")
	case err != nil:
		return nil, notMeasured(s, dir, err)
	}
	if o.history != "" {
		if err := history.Append(o.history, dir); err != nil {
			return nil, err
		}
	}
	if o.json {
		summary, err := reports.Build([]string{dir}, dir, reports.Options{})
		if err != nil {
			return nil, err
		}
		return summary, terminal.NewEvents(s.out).Done(dir, summary)
	}
	return report(s, []string{dir}, dir, terminal.Format(terminal.Formats[0]), reports.Options{})
}

// notMeasured says where the measurements of a run are that failed or was interrupted.
func notMeasured(s streams, dir string, err error) error {
	if input := (*bench.InputError)(nil); errors.As(err, &input) {
		return badInput(err)
	}
	if dir != "" {
		fmt.Fprintf(s.err, "the measurements until then are in %s; 'synclab report %s' shows them\n", dir, shell.Line(dir))
	}
	return err
}

// options are those of package bench.
func (o *runOptions) options(s streams, show func(bench.Progress)) bench.ExecuteOptions {
	if o.maxTime > 0 {
		o.scenario.SetTimeouts(o.maxTime)
	}
	return bench.ExecuteOptions{
		Scenario: o.scenario, Objects: o.objects, Live: o.live, Subjects: o.subjects, Reps: o.reps, Out: o.out, Force: o.force,
		ProxyConfig: o.config, Command: commandLine(os.Args), WorkerArgs: []string{worker}, ProxyArgs: []string{"proxy"},
		Progress: show, Stderr: s.err, Feed: o.feed, KubeProxy: o.kubeProxy, ExecConfig: o.execConfig, ExecEnv: o.execEnv, MaxMemory: o.maxMemory, Kernels: o.kernels,
		Shard: o.shard, Shards: o.shards, Profile: o.profile, OnlyProfiled: !o.unsampled, Until: o.until,
	}
}

// runOnly runs without a report.
func (o *runOptions) runOnly(ctx context.Context, s streams) (dir string, err error) {
	shown := terminal.NewProgress(s.err)
	defer shown.End()
	return bench.Execute(ctx, o.options(s, shown.Show))
}

// imprecise returns the swept values of the cells of a run that need more repetitions.
func imprecise(dir string, share float64) ([]map[string]string, error) {
	cells, err := reports.Imprecise(dir, share)
	var out []map[string]string
	for _, cell := range cells {
		out = append(out, cell.Params)
	}
	return out, err
}

// commandLine returns the arguments as typed in a shell.
func commandLine(args []string) string {
	return shell.Line(append([]string{"synclab"}, args[1:]...)...)
}

// again returns the command line that repeats cmd with other arguments: with every flag that was set, and those of
// instead in their place. One without a value is left out.
func again(cmd *cobra.Command, args []string, instead ...[2]string) string {
	words := append([]string{"synclab", cmd.Name()}, args...)
	for _, flag := range instead {
		if flag[1] != "" {
			words = append(words, "--"+flag[0], flag[1])
		}
	}
	return shell.Line(append(words, flagWords(cmd, func(name string) bool {
		return !slices.ContainsFunc(instead, func(flag [2]string) bool { return flag[0] == name })
	})...)...)
}

// flagWords returns the flags of cmd that were set, as words of a command line. keep chooses among them.
func flagWords(cmd *cobra.Command, keep func(name string) bool) (words []string) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !keep(f.Name) {
			return
		}
		list, several := f.Value.(pflag.SliceValue)
		switch {
		case f.Value.Type() == "bool":
			word := "--" + f.Name
			if f.Value.String() != "true" {
				word += "=" + f.Value.String()
			}
			words = append(words, word)
		case several && f.Value.Type() == "stringArray":
			for _, value := range list.GetSlice() {
				words = append(words, "--"+f.Name, value)
			}
		case several: // a list in one value, with its commas
			words = append(words, "--"+f.Name, strings.TrimSuffix(strings.TrimPrefix(f.Value.String(), "["), "]"))
		default:
			words = append(words, "--"+f.Name, f.Value.String())
		}
	})
	return words
}

// registerShard adds the flags of a part of a run, for sweeps over several machines.
func (f *runFlags) registerShard(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.shard, "shard", "", "run `part` I/N of N, from 0 to N-1, in a separate folder below --out; a complete part is not run again")
	flags.BoolVar(&f.o.dryRun, "dry-run", false, "print how many repetitions of cells the run or its shard has, and run nothing")
	moreFlags(cmd, "shard", "dry-run")
}

// readShard checks --shard.
func (f *runFlags) readShard(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("shard") {
		return nil
	}
	which, of, _ := strings.Cut(f.shard, "/")
	i, err := strconv.Atoi(which)
	n, err2 := strconv.Atoi(of)
	if err != nil || err2 != nil || i < 0 || i >= n {
		return badUsage(cmd, "--shard %q: want I/N with I from 0 to N-1, such as 3/40", f.shard)
	}
	if cmd.Flags().Changed("kubeconfig") {
		return badUsage(cmd, "--kubeconfig takes no shards: each shard would measure another cluster")
	}
	f.o.shard, f.o.shards = i, n
	return nil
}

// showShard prints the size of a run or of its shard.
func showShard(w io.Writer, options bench.ExecuteOptions) error {
	what := "the run"
	if options.Shards > 0 {
		what = fmt.Sprintf("shard %d/%d", options.Shard, options.Shards)
	}
	options.Shards = max(1, options.Shards)
	s, err := bench.Divide(options)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s of sweep %s: %d of %d repetitions of cells\n", what, s.Sweep, s.Units, s.Total)
	return err
}

// shardDone prints the state of a shard, and the command for one report of all shards.
func shardDone(w io.Writer, dir string, o runOptions, stands string) error {
	_, err := fmt.Fprintf(w, "shard %d/%d %s\nits folder: %s\nreport of all shards: synclab report %s\n", o.shard, o.shards, stands, dir, shell.Line(filepath.Dir(dir)))
	return err
}
