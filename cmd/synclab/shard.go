package main

import (
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
)

// shardFlags choose a part of a run, for sweeps over several machines.
type shardFlags struct {
	shard  string // i/n, from 1
	index  int    // from 0
	shards int
	dryRun bool
}

func (f *shardFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.shard, "shard", "", "do `part` i of n of the run, e.g. 3/40, into a folder of its own below --out; one that is complete is not done again")
	flags.IntVar(&f.index, "shard-index", 0, "the same by its `number` from 0, as an Indexed Job counts; with --shards")
	flags.IntVar(&f.shards, "shards", 0, "`number` of shards that the run is divided into")
	flags.BoolVar(&f.dryRun, "dry-run", false, "list which cells and repetitions each shard would measure, with a guess of the time, and run nothing")
	for _, flag := range []string{"shard", "shard-index", "shards"} {
		complete(cmd, flag)
	}
}

// apply checks the flags and puts them into a run's options.
func (f *shardFlags) apply(cmd *cobra.Command, o *runOptions) error {
	given := cmd.Flags().Changed
	switch {
	case given("shard") && (given("shard-index") || given("shards")):
		return badUsage(cmd, "--shard says both which and of how many: it takes no --shard-index and no --shards")
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
		return badUsage(cmd, "--shard-index %d: of how many? --shards says it", f.index)
	case given("shard-index") && (f.index < 0 || f.index >= f.shards):
		return badUsage(cmd, "--shard-index %d: want 0 to %d", f.index, f.shards-1)
	case given("shard-index"):
		o.shard, o.shards = f.index+1, f.shards
	case given("shards") && !f.dryRun:
		return badUsage(cmd, "--shards %d: which of them? --shard i/n or --shard-index say it, --dry-run lists them all", f.shards)
	case given("shards"):
		o.shards = f.shards
	}
	if o.shards > 0 && given("kubeconfig") {
		return badUsage(cmd, "shards of a cluster that is followed would each meet another cluster: --kubeconfig takes no shards")
	}
	o.dryRun = f.dryRun
	return nil
}

// listShards prints what each shard, or the chosen one, would do.
func listShards(w io.Writer, options bench.ExecuteOptions) error {
	chosen := options.Shard
	options.Shards = max(1, options.Shards)
	shards, err := bench.Divide(options)
	if err != nil {
		return err
	}
	rows := [][]string{{"shard", "unit", "cell", "repetition", "subjects", "guess"}}
	var longest, all time.Duration
	for _, s := range shards {
		longest, all = max(longest, s.Guess()), all+s.Guess()
		if chosen != 0 && s.Shard != chosen {
			continue
		}
		rows = append(rows, []string{s.String(), "", strconv.Itoa(len(s.Units)) + " units", "", "", roughly(s.Guess())})
		for _, u := range s.Units {
			rows = append(rows, []string{"", strconv.Itoa(u.Number), u.Cell(), strconv.Itoa(u.Rep), strings.Join(u.Subjects, " "), roughly(u.Guess)})
		}
	}
	if err := columns(w, rows...); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "\nsweep %s: %d units, roughly %s in all, %s in the longest of %d shards; a guess from sizes and steps, not a measurement\n",
		shards[0].Sweep, shards[0].Total, roughly(all), roughly(longest), len(shards))
	return err
}

func roughly(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// shardDone says how the shard stands, and what makes one report of them all.
func shardDone(w io.Writer, dir string, o runOptions, stands string) error {
	_, err := fmt.Fprintf(w, "shard %d/%d %s\nits folder: %s\nof all shards: synclab report %s\n", o.shard, o.shards, stands, dir, filepath.Dir(dir))
	return err
}
