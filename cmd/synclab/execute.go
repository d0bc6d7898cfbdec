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
	"synclab/bench/shell"
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
	options := bench.ExecuteOptions{
		Scenario: o.scenario, Objects: o.objects, Live: o.live, Subjects: o.subjects, Reps: o.reps, Out: o.out, Force: o.force,
		ProxyConfig: o.config, Command: commandLine(os.Args), WorkerArgs: []string{"worker"}, ProxyArgs: []string{"proxy"},
		Progress: func(p bench.Progress) { show(p); also(p) }, Stderr: s.err, Feed: o.feed, KubeProxy: o.kubeProxy, ExecConfig: o.execConfig, ExecEnv: o.execEnv, MaxMemory: o.maxMemory, Kernels: o.kernels,
		Shard: o.shard, Shards: o.shards, Profile: o.profile,
	}
	if o.precision > 0 {
		options.Until = &bench.Until{Precision: o.precision, Budget: o.budget, Imprecise: func(dir string) ([]map[string]string, error) {
			return imprecise(dir, o.precision)
		}}
	}
	if o.maxTime > 0 {
		o.scenario.SetTimeouts(o.maxTime)
	}
	if o.dryRun {
		return nil, listShards(s.out, options)
	}
	if o.dump {
		options.Dump = func(subject, rules string) {
			shown.End()
			fmt.Fprintf(s.out, "# %s\n%s", subject, rules)
		}
	}
	dir, err := bench.Execute(ctx, options)
	shown.End()
	var input *bench.InputError
	switch {
	case errors.As(err, &input):
		return nil, badInput(err)
	case errors.Is(err, bench.ErrShardComplete):
		return nil, shardDone(s.out, dir, o, "is complete already: nothing was run (repeat it with --force)")
	case dir == "":
		return nil, err
	case err == nil && o.shards > 0:
		return nil, shardDone(s.out, dir, o, "is complete")
	case err != nil:
		fmt.Fprintf(s.err, "the measurements until then are in %s; 'synclab report %s' shows them\n", dir, shell.Line(dir))
		return nil, err
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

// shardFlags choose a part of a run, for sweeps over several machines.
type shardFlags struct {
	shard  string // i/n, from 1
	index  int    // from 0
	shards int
	dryRun bool
}

func (f *shardFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.shard, "shard", "", "run `part` i of n, e.g. 3/40, in a separate folder below --out; a complete part is not run again")
	flags.IntVar(&f.index, "shard-index", 0, "the part's `number` from 0, as in an Indexed Job; with --shards")
	flags.IntVar(&f.shards, "shards", 0, "`number` of shards that the run is divided into")
	flags.BoolVar(&f.dryRun, "dry-run", false, "list which cells and repetitions each shard would measure, and run nothing")
	for _, flag := range []string{"shard", "shard-index", "shards"} {
		terminal.Complete(cmd, flag)
	}
	cmd.MarkFlagsMutuallyExclusive("shard", "shard-index")
	cmd.MarkFlagsMutuallyExclusive("shard", "shards")
	moreFlags(cmd, "shard", "shard-index", "shards", "dry-run")
}

// apply checks the flags and puts them into a run's options.
func (f *shardFlags) apply(cmd *cobra.Command, o *runOptions) error {
	given := cmd.Flags().Changed
	switch {
	case given("shard"):
		which, of, _ := strings.Cut(f.shard, "/")
		i, err := strconv.Atoi(which)
		n, err2 := strconv.Atoi(of)
		if err != nil || err2 != nil || i < 1 || i > n {
			return badUsage(cmd, "--shard %q: want i/n with i from 1 to n, such as 3/40", f.shard)
		}
		o.shard, o.shards = i, n
	case given("shards") && f.shards < 1:
		return badUsage(cmd, "--shards %d: want at least 1", f.shards)
	case given("shard-index") && !given("shards"):
		return badUsage(cmd, "--shard-index %d: the number of shards is missing: want --shards", f.index)
	case given("shard-index") && (f.index < 0 || f.index >= f.shards):
		return badUsage(cmd, "--shard-index %d: want 0 to %d", f.index, f.shards-1)
	case given("shard-index"):
		o.shard, o.shards = f.index+1, f.shards
	case given("shards") && !f.dryRun:
		return badUsage(cmd, "--shards %d: the shard to run is missing: want --shard i/n or --shard-index; --dry-run lists all", f.shards)
	case given("shards"):
		o.shards = f.shards
	}
	if o.shards > 0 && given("kubeconfig") {
		return badUsage(cmd, "--kubeconfig takes no shards: each shard would measure another cluster")
	}
	o.dryRun = f.dryRun
	return nil
}

// listShards prints the units of each shard, or of the chosen one.
func listShards(w io.Writer, options bench.ExecuteOptions) error {
	chosen := options.Shard
	options.Shards = max(1, options.Shards)
	shards, err := bench.Divide(options)
	if err != nil {
		return err
	}
	rows := [][]string{{"shard", "unit", "cell", "repetition", "subjects"}}
	for _, s := range shards {
		if chosen != 0 && s.Shard != chosen {
			continue
		}
		rows = append(rows, []string{s.String(), "", strconv.Itoa(len(s.Units)) + " units", "", ""})
		for _, u := range s.Units {
			rows = append(rows, []string{"", strconv.Itoa(u.Number), u.Cell(), strconv.Itoa(u.Rep), strings.Join(u.Subjects, " ")})
		}
	}
	if err := terminal.Columns(w, rows...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nsweep %s: %d units in %d shards\n", shards[0].Sweep, shards[0].Total, len(shards))
	return err
}

// shardDone prints the state of a shard, and the command for one report of all shards.
func shardDone(w io.Writer, dir string, o runOptions, stands string) error {
	_, err := fmt.Fprintf(w, "shard %d/%d %s\nits folder: %s\nreport of all shards: synclab report %s\n", o.shard, o.shards, stands, dir, shell.Line(filepath.Dir(dir)))
	return err
}
