package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/verify/soak"
	"synclab/scenarios"
)

// soakFlags are the flags of `synclab soak`.
type soakFlags struct {
	seed      uint64
	budget    time.Duration
	seeds     int
	subjects  subjectFlags
	duration  time.Duration
	services  int
	without   []string
	keepGoing bool
	minimize  time.Duration
	tries     int
	out       string
}

func newSoak(s streams) *cobra.Command {
	var f soakFlags
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Run random changes and faults with real packets, and check invariants",
		Long: `Soak generates a random scenario from a seed, runs it with a subject, and continues
with the next seed and the next subject until the time is over. Once faults are
cleared, all invariants must be met. No flow may ever reach a wrong endpoint. No flow
may be lost except by faults that lose flows.

It stops at the first seed that fails, prints the commands that reproduce the
failure, and searches for the shortest scenario that fails in the same way. Its exit
status is then 1. Its folder has the scenarios, their records and summary.json.`,
		Example: `  synclab soak --budget 10m
  synclab soak --seed 17 --seeds 1 --subjects synclab/nftables
  synclab soak --budget 1h --keep-going --subjects synclab/iptables-legacy,kube-proxy/iptables-legacy
  synclab soak --without fault --budget 5m`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.seed, "seed", 0, "`seed` of the first scenario; each next scenario has the next seed (default: from the clock)")
	flags.DurationVar(&f.budget, "budget", 10*time.Minute, budgetText+"; no scenario starts after it")
	flags.IntVar(&f.seeds, "seeds", 0, "maximum `number` of scenarios (default: as many as the time allows)")
	f.subjects.register(cmd, "all of synclab's whose tools this machine has")
	flags.DurationVar(&f.duration, "duration", time.Minute, "`time` of a scenario's steps without settle steps")
	flags.IntVar(&f.services, "services", 300, "maximum `number` of Services of a scenario")
	flags.StringSliceVar(&f.without, "without", nil, "`list` of kinds of steps and faults to omit, separated by commas")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "continue after a failed seed")
	flags.DurationVar(&f.minimize, "minimize", 5*time.Minute, "`time` to minimize a failing scenario; 0: do not minimize")
	flags.IntVar(&f.tries, "tries", 2, "maximum `number` of runs of a smaller scenario until it fails")
	registerOut(cmd, &f.out, nil, "soak", "a new one in runs/")
	hideFlags(cmd, "feed", "max-time") // only for runs: a soak sets them
	return cmd
}

func (f *soakFlags) run(cmd *cobra.Command, s streams) error {
	var o runOptions
	if err := f.subjects.apply(cmd, &o); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("feed"), cmd.Flags().Changed("max-time"):
		return badUsage(cmd, "--feed and --max-time are only for run: a soak uses the feed api, and its settle steps have timeouts")
	case f.seeds < 0:
		return badUsage(cmd, "--seeds %d: want at least 1", f.seeds)
	}
	if err := f.check(cmd); err != nil {
		return err
	}
	now := time.Now()
	if !cmd.Flags().Changed("seed") {
		f.seed = uint64(now.Unix())
	}
	random := scenarios.RandomOptions{Duration: f.duration, Services: f.services, Without: f.without}
	if _, err := scenarios.Random(f.seed, random); err != nil {
		return badUsage(cmd, "%w", err)
	}
	if len(o.subjects) == 0 {
		o.subjects = withTools(cmd, ownSubjects())
	}
	if f.out == "" {
		var err error
		if f.out, err = raw.NewFolder("soak", now); err != nil {
			return err
		}
	}
	soaking, err := soak.New(soak.Options{
		Seed: f.seed, Time: f.budget, Seeds: f.seeds, Subjects: o.subjects,
		Random: random,
		Run: soak.Execute(bench.ExecuteOptions{
			ProxyConfig: nil, WorkerArgs: []string{worker}, ProxyArgs: []string{"proxy"}, Stderr: s.err,
			KubeProxy: o.kubeProxy, ExecConfig: o.execConfig, ExecEnv: o.execEnv, MaxMemory: o.maxMemory, Kernels: o.kernels,
		}, flagWords(cmd, ofRuns)),
		Dir: f.out, KeepGoing: f.keepGoing, Minimize: f.minimize, Tries: f.tries, Flags: flagWords(cmd, ofScenarios), Where: flagWords(cmd, ofRuns),
		Tell: s.progress,
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "soak: seeds from %d, %s; folder %s\n", f.seed, strings.Join(o.subjects, ", "), f.out)
	summary, err := soaking.Run(cmd.Context())
	fmt.Fprint(s.out, summary.Text())
	if err == nil && len(summary.Failed) > 0 {
		err = fmt.Errorf("%d of %d seeds failed; see %s", len(summary.Failed), summary.Seeds, filepath.Join(f.out, "summary.json"))
	}
	return err
}

// check refuses flag values that no soak can have.
func (f *soakFlags) check(cmd *cobra.Command) error {
	switch {
	case f.budget <= 0:
		return badUsage(cmd, "--budget %v: want more than 0", f.budget)
	case f.duration <= 0:
		return badUsage(cmd, "--duration %v: want more than 0", f.duration)
	case f.services < 1:
		return badUsage(cmd, "--services %d: want at least 1", f.services)
	case f.tries < 1:
		return badUsage(cmd, "--tries %d: want at least 1", f.tries)
	case f.minimize < 0:
		return badUsage(cmd, "--minimize %v: want 0 or more", f.minimize)
	}
	return nil
}

// ownSubjects returns all subjects of synclab.
func ownSubjects() []string {
	var names []string
	for _, about := range subject.Own() {
		names = append(names, about.Name)
	}
	return names
}

// programs are the flags that soak and run share.
var programs = []string{"kernel", "tools", "kube-proxy", "kube-proxy-src", "kube-proxy-version", "exec-config", "exec-env", "max-memory"}

// ofRuns reports whether a flag is one of run too.
func ofRuns(name string) bool { return slices.Contains(programs, name) }

// ofScenarios reports whether a flag decides which scenario a seed makes.
func ofScenarios(name string) bool {
	return slices.Contains([]string{"duration", "services", "without"}, name)
}
