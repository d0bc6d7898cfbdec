package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"synclab/bench"
	"synclab/cmd/synclab/terminal"
	"synclab/reports"
)

// execute runs the scenario in separate namespaces and reports on it.
func execute(ctx context.Context, s streams, o runOptions) error {
	shown := terminal.NewProgress(s.err)
	options := bench.ExecuteOptions{
		Scenario: o.scenario, Objects: o.objects, Live: o.live, Subjects: o.subjects, Reps: o.reps, Out: o.out, Force: o.force,
		ProxyConfig: o.config, Command: commandLine(os.Args), WorkerArgs: []string{"worker"}, ProxyArgs: []string{"proxy"},
		Progress: shown.Show, Stderr: s.err, Feed: o.feed, KubeProxy: o.kubeProxy, ExecConfig: o.execConfig, MaxMemory: o.maxMemory,
		Shard: o.shard, Shards: o.shards,
	}
	if o.precision > 0 {
		options.Until = &bench.Until{Precision: o.precision, Budget: o.budget, Imprecise: func(dir string) ([]map[string]string, error) {
			return imprecise(dir, o.precision)
		}}
	}
	if o.maxTime > 0 {
		for _, step := range o.scenario.Steps {
			if step.Settle != nil {
				step.Settle.Timeout = o.maxTime
			}
			if step.React != nil {
				step.React.Timeout = o.maxTime
			}
		}
	}
	if o.dryRun {
		return listShards(s.out, options)
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
		return shardDone(s.out, dir, o, "is complete already: nothing was run (repeat it with --force)")
	case dir == "":
		return err
	case err == nil && o.shards > 0:
		return shardDone(s.out, dir, o, "is complete")
	case err != nil:
		fmt.Fprintf(s.err, "the measurements until then are in %s; 'synclab report %s' shows them\n", dir, dir)
		return err
	}
	return report(s, []string{dir}, "", terminal.Format(terminal.Formats[0]), reports.Options{})
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
	words := []string{"synclab"}
	for _, arg := range args[1:] {
		if strings.ContainsAny(arg, " \t\n'\"\\$*?[](){}<>|&;#~") || arg == "" {
			arg = strconv.Quote(arg)
		}
		words = append(words, arg)
	}
	return strings.Join(words, " ")
}
