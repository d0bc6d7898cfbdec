package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/bench/soak"
	"synclab/scenarios"
)

// soakFlags are those of `synclab soak`.
type soakFlags struct {
	seed      uint64
	minutes   float64
	seeds     int
	subjects  subjectFlags
	duration  time.Duration
	services  int
	without   []string
	keepGoing bool
	minimize  time.Duration
	tries     int
	out       string
	virtual   bool
	hours     float64
}

func newSoak(s streams) *cobra.Command {
	var f soakFlags
	cmd := &cobra.Command{
		Use:   "soak",
		Short: "Play random changes and faults with real packets, and look for what must never happen",
		Long: `Soak makes a random scenario of a seed, plays it with a subject, and goes on with
the next seed and the next subject until the time is over. After faults are
healed, all invariants have to hold; no flow may ever reach a wrong endpoint, and
none may be lost but for faults that lose flows.

It stops at the first seed that fails, prints the commands that show it again,
and looks for the shortest scenario that fails in the same way. Its exit status
is then 1. Its folder holds the scenarios, their records and summary.json.

With --virtual there is no kernel, no packet and no folder: the proxier of each
seed lives for some hours of virtual time, with a model of the kernel's tables.`,
		Example: `  synclab soak --minutes 10
  synclab soak --seed 17 --seeds 1 --subjects synclab/nftables
  synclab soak --minutes 60 --keep-going --subjects synclab/iptables-legacy,kube-proxy/iptables-legacy
  synclab soak --without fault --minutes 5
  synclab soak --virtual --seed 1 --seeds 42 --hours 24`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	flags := cmd.Flags()
	flags.Uint64Var(&f.seed, "seed", 0, "`seed` of the first scenario; the next has the next one (default: of the clock)")
	flags.Float64Var(&f.minutes, "minutes", 10, "`minutes` after which no further scenario begins")
	flags.IntVar(&f.seeds, "seeds", 0, "`number` of scenarios at most (default: as many as the time allows)")
	f.subjects.register(cmd, "all of synclab's that this machine has the tools for")
	flags.DurationVar(&f.duration, "duration", time.Minute, "`time` that the steps of a scenario take, without settling")
	flags.IntVar(&f.services, "services", 300, "`number` of Services of a scenario at most")
	flags.StringSliceVar(&f.without, "without", nil, "`list` of kinds of steps and faults to leave out, separated by commas")
	flags.BoolVar(&f.keepGoing, "keep-going", false, "go on after a seed failed")
	flags.BoolVar(&f.virtual, "virtual", false, "in virtual time instead, on tables in memory; --seed, --seeds (default: 1) and --hours count")
	flags.Float64Var(&f.hours, "hours", 24, "with --virtual: simulated `hours` of each seed")
	flags.DurationVar(&f.minimize, "minimize", 5*time.Minute, "`time` for making a scenario that fails smaller; 0: do not")
	flags.IntVar(&f.tries, "tries", 2, "`number` of times that a smaller scenario is played until it fails")
	flags.StringVar(&f.out, "out", "", "`folder` of the soak (default: a new one in runs/)")
	if err := cmd.MarkFlagDirname("out"); err != nil {
		panic(err)
	}
	for _, flag := range []string{"seed", "minutes", "seeds", "duration", "services", "without", "minimize", "tries", "hours"} {
		complete(cmd, flag)
	}
	for _, flag := range []string{"feed", "max-time"} { // of runs: a soak decides them
		if err := flags.MarkHidden(flag); err != nil {
			panic(err)
		}
	}
	return cmd
}

func (f *soakFlags) run(cmd *cobra.Command, s streams) error {
	var o runOptions
	if err := f.subjects.apply(cmd, &o); err != nil {
		return err
	}
	switch {
	case cmd.Flags().Changed("feed"), cmd.Flags().Changed("max-time"):
		return badUsage(cmd, "--feed and --max-time are for run: a soak feeds through the api, and its settle steps say how long")
	case f.seeds < 0:
		return badUsage(cmd, "--seeds %d: want at least 1", f.seeds)
	}
	if !f.virtual {
		if err := f.checkReal(cmd); err != nil {
			return err
		}
	}
	now := time.Now()
	if !cmd.Flags().Changed("seed") {
		f.seed = uint64(now.Unix())
	}
	if f.virtual {
		return f.runVirtual(cmd, s)
	}
	random := scenarios.RandomOptions{Duration: f.duration, Services: f.services, Without: f.without}
	if _, err := scenarios.Random(f.seed, random); err != nil {
		return badUsage(cmd, "%w", err)
	}
	if len(o.subjects) == 0 {
		o.subjects = withTools(cmd, ownSubjects())
	}
	if f.out == "" {
		f.out = filepath.Join("runs", "soak-"+now.Format("20060102-150405"))
	}
	soaking, err := soak.New(soak.Options{
		Seed: f.seed, Time: time.Duration(f.minutes * float64(time.Minute)), Seeds: f.seeds, Subjects: o.subjects,
		Random: random,
		Run: soak.Execute(bench.ExecuteOptions{
			ProxyConfig: nil, WorkerArgs: []string{"worker"}, ProxyArgs: []string{"proxy"}, Stderr: s.err,
			KubeProxy: o.kubeProxy, ExecConfig: o.execConfig, MaxMemory: o.maxMemory,
		}),
		Dir: f.out, KeepGoing: f.keepGoing, Minimize: f.minimize, Tries: f.tries, Flags: f.again(cmd),
		Tell: func(line string) { fmt.Fprintln(s.err, line) },
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "soak: seeds from %d, %s; folder %s\n", f.seed, strings.Join(o.subjects, ", "), f.out)
	summary, err := soaking.Run(cmd.Context())
	fmt.Fprint(s.out, summary.Text())
	if err == nil && len(summary.Failed) > 0 {
		err = fmt.Errorf("%d of %d seeds failed; %s has them", len(summary.Failed), summary.Seeds, filepath.Join(f.out, "summary.json"))
	}
	return err
}

// checkReal checks the flags of a soak that is not in virtual time.
func (f *soakFlags) checkReal(cmd *cobra.Command) error {
	switch {
	case cmd.Flags().Changed("hours"):
		return badUsage(cmd, "--hours goes with --virtual")
	case !(f.minutes > 0): // nor is it NaN
		return badUsage(cmd, "--minutes %g: want more than 0", f.minutes)
	case f.duration <= 0:
		return badUsage(cmd, "--duration %v: want more than 0", f.duration)
	case f.services < 1:
		return badUsage(cmd, "--services %d: want at least 1", f.services)
	case f.tries < 1:
		return badUsage(cmd, "--tries %d: want at least 1", f.tries)
	case f.minimize < 0:
		return badUsage(cmd, "--minimize %v: want 0, which does not, or more", f.minimize)
	}
	return nil
}

// runVirtual is a soak in virtual time: what says something of the kernel, of packets or of time has no meaning there.
func (f *soakFlags) runVirtual(cmd *cobra.Command, s streams) error {
	for _, name := range []string{"minutes", "subjects", "duration", "services", "without", "keep-going", "minimize", "tries", "out"} {
		if cmd.Flags().Changed(name) {
			return badUsage(cmd, "--%s has no meaning with --virtual, which takes --seed, --seeds and --hours", name)
		}
	}
	if f.hours <= 0 {
		return badUsage(cmd, "--hours %g: want more than 0", f.hours)
	}
	return runVirtualSoak(cmd.Context(), s.out, s.err, virtualOptions{hours: f.hours, seeds: f.seeds, seed: f.seed})
}

// ownSubjects are all of synclab's.
func ownSubjects() []string {
	var names []string
	for _, subject := range bench.Subjects() {
		if subject.Proxier == bench.Synclab {
			names = append(names, subject.Name)
		}
	}
	return names
}

// again are the flags without which a seed makes another scenario.
func (f *soakFlags) again(cmd *cobra.Command) string {
	text := ""
	for _, name := range []string{"duration", "services", "without"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed {
			text += fmt.Sprintf(" --%s %s", name, strings.Trim(flag.Value.String(), "[]"))
		}
	}
	return text
}
