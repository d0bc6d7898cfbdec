package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/history"
	"synclab/scenarios"
	"synclab/sim"
)

// runOptions are the options of `synclab run`, read and checked.
type runOptions struct {
	scenario   *scenarios.Scenario
	objects    *sim.Objects         // nil: the cluster is generated from the scenario's shape
	live       kubernetes.Interface // the cluster to follow; nil: none
	subjects   []string             // empty: bench.DefaultSubjects
	feed       string               // empty: what the subjects need
	kubeProxy  upstream.Options
	execConfig string
	execEnv    []string
	maxTime    time.Duration // 0: the scenario's
	maxMemory  uint64        // bytes; 0: no limit
	kernels    []string      // empty: the machine's own
	reps       int
	precision  float64       // a share; 0: repeat reps times
	budget     time.Duration // of the run, with precision
	until      *bench.Until  // decides how often cells are repeated; nil: reps
	out        string        // empty: a new folder in runs/
	force      bool          // replace the run in out
	config     *v1alpha1.KubeProxyConfiguration
	configFile string // that config was read from; empty: kube-proxy's defaults
	profile    bool   // sample where the time goes
	unsampled  bool   // with profile: also measure without samples
	dump       bool   // print the rules that were installed
	shard      int    // from 0, of shards
	shards     int    // 0: the whole run
	dryRun     bool   // print the size of the run, and run nothing
	json       bool   // print events instead of tables
	listen     string // address of the live page; empty: none
	history    string // file that a complete run is appended to; empty: none
}

// runFlags are the flags of a run and of a comparison.
type runFlags struct {
	scenario  scenarioFlags
	manifests manifestFlags
	proxy     proxyConfigFlag
	subjects  subjectFlags
	cluster   clusterFlags
	shard     string // as given: "3/8"
	precision string // as given: "5%"
	quick     bool
	trace     bool
	anywhere  bool // of --listen
	o         runOptions
}

// usualBudget is the default budget with --precision: about three repetitions of ten subjects.
const usualBudget = 20 * time.Minute

// register adds the flags. usual describes the default subjects. precision is the default of --precision; empty: three
// repetitions.
func (f *runFlags) register(cmd *cobra.Command, usual, precision string) {
	f.scenario.register(cmd)
	f.manifests.register(cmd)
	f.proxy.register(cmd)
	f.subjects.register(cmd, usual)
	f.registerShard(cmd)
	flags := cmd.Flags()
	f.cluster.register(cmd, "of a real cluster whose Services are read and followed, read-only (scenario: follow)")
	flags.IntVar(&f.o.reps, "reps", bench.LeastReps, "`number` of repetitions of each cell; switches --precision off")
	flags.StringVar(&f.precision, "precision", precision, "repeat, subjects in turn, until the 95 % interval of each ratio is within this `share` of it")
	flags.DurationVar(&f.o.budget, "budget", usualBudget, budgetText+", with --precision; at least three repetitions are made")
	flags.BoolVar(&f.quick, "quick", false, "three repetitions: observed values, without verdicts")
	registerOut(cmd, &f.o.out, &f.o.force, "run", "a new one in runs/")
	flags.StringVar(&f.o.history, "history", "", "append the figures of the run to this `file`, for synclab history")
	flags.BoolVar(&f.o.profile, "profile", false, profileText+"; each cell is also measured once without")
	flags.BoolVar(&f.o.dump, "dump-iptables", false, "print the rules that were installed, as iptables-save does")
	flags.BoolVar(&f.o.json, "json", false, "print events instead of tables, one JSON object a line: progress, note, done")
	flags.StringVar(&f.o.listen, "listen", "", "serve a live page and Prometheus metrics on this `address:port` while it runs, such as "+defaultListen)
	flags.BoolVar(&f.anywhere, "anywhere", false, "allow --listen on an address that other machines can reach")
	flags.BoolVar(&f.trace, "trace", false, "print the way of one packet from pod to pod, hop by hop, in scenarios that probe flows, such as pod-networks")
	cmd.MarkFlagsMutuallyExclusive("reps", "precision", "quick")
	cmd.MarkFlagsMutuallyExclusive("precision", "profile")
	cmd.MarkFlagsMutuallyExclusive("filename", "kubeconfig")
	moreFlags(cmd, "proxy-config", "context", "allow-exec-plugins", "budget", "force", "dump-iptables", "json", "anywhere", "trace")
}

// read checks the flags and reads the files that they name.
func (f *runFlags) read(cmd *cobra.Command, args []string, s streams) (o runOptions, err error) {
	if err := f.subjects.apply(cmd, &f.o); err != nil {
		return o, err
	}
	if f.o.reps < 1 {
		return o, badUsage(cmd, "--reps %d: want at least 1", f.o.reps)
	}
	if err := f.readShard(cmd); err != nil {
		return o, err
	}
	if err := f.repetitions(cmd); err != nil {
		return o, err
	}
	if cmd.Flags().Changed("listen") {
		if err := checkListen(cmd, f.o.listen, f.anywhere); err != nil {
			return o, err
		}
	}
	if f.o.force && f.o.out == "" && f.o.shards == 0 {
		return o, badUsage(cmd, "--force replaces the run in --out, which is not given")
	}
	if err := f.checkHistory(cmd); err != nil {
		return o, err
	}
	given := f.scenario.given(cmd)
	switch isLive := cmd.Flags().Changed("kubeconfig"); {
	case given != "" && len(f.manifests.paths) > 0:
		return o, badUsage(cmd, "--%s is for a generated cluster: it has no meaning with -f", given)
	case given != "" && isLive:
		return o, badUsage(cmd, "--%s is for a generated cluster: it has no meaning with --kubeconfig", given)
	case isLive:
		if f.o.live, err = f.cluster.client(); err != nil {
			return o, err
		}
		if len(args) == 0 {
			args = []string{liveScenario}
		}
	}
	if f.o.scenario, err = f.scenario.load(cmd, args); err != nil {
		return o, err
	}
	if f.o.live == nil && slices.ContainsFunc(f.o.scenario.Steps, func(s scenarios.Step) bool { return s.Follow != nil }) {
		return o, badUsage(cmd, "scenario %s follows a real cluster: name one with --kubeconfig FILE", f.o.scenario.Name)
	}
	if f.trace && !traced(f.o.scenario) {
		return o, badUsage(cmd, "--trace: scenario %s has no step probe of method flow; pod-networks has one", f.o.scenario.Name)
	}
	f.proxy.find(s, f.manifests.paths)
	if f.o.config, err = f.proxy.load(cmd.Context(), s, 0); err != nil {
		return o, err
	}
	f.o.configFile = f.proxy.path
	if f.o.objects, err = f.manifests.read(cmd.Context(), s); err != nil {
		return o, err
	}
	f.proxy.chooseNode(s, f.o.config, f.o.objects)
	return f.o, nil
}

// checkHistory refuses a file of --history that the run could not append to, before it measures.
func (f *runFlags) checkHistory(cmd *cobra.Command) error {
	switch {
	case f.o.history == "":
		return nil
	case f.o.shards > 0:
		return badUsage(cmd, "--history is not for shards: 'synclab history' reads the folder of all shards")
	}
	if err := history.Check(f.o.history); err != nil {
		return badUsage(cmd, "--history: %w", err)
	}
	return nil
}

// traced makes the probes of flows trace one packet. It reports whether there are any.
func traced(s *scenarios.Scenario) (any bool) {
	for _, step := range s.Steps {
		if step.Probe != nil && step.Probe.Method == "flow" {
			step.Probe.Trace, any = true, true
		}
	}
	return any
}

// parseShare reads a share such as 5% or 0.05.
func parseShare(text string) (float64, error) {
	number, percent := strings.CutSuffix(text, "%")
	share, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		share /= 100
	}
	return share, err
}

// repetitions reads how often cells are repeated: a number of times, or until they are precise.
func (f *runFlags) repetitions(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case given("precision") && f.o.shards > 0:
		return badUsage(cmd, "--precision is not for shards, which have no results of each other: use --reps")
	case f.o.budget <= 0:
		return badUsage(cmd, "--budget %v: want more than 0", f.o.budget)
	case f.quick || given("reps") || f.o.shards > 0 || f.o.profile || f.precision == "":
		if given("budget") {
			return badUsage(cmd, "--budget is only for --precision")
		}
		return nil
	}
	share, err := parseShare(f.precision)
	if err != nil || !(share > 0 && share < 1) {
		return badUsage(cmd, "--precision %q: want a share such as 5%% or 0.05", f.precision)
	}
	f.o.precision = share
	return nil
}

func newRun(s streams) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "run [SCENARIO | FILE.yaml]",
		Short: "Run a scenario and write its report",
		Long: `Run plays a scenario against each subject, in a separate network namespace: a
simulated cluster feeds a real proxier, which writes real rules. Every measured
value is appended to a file in the run's folder. At the end, run makes a report.

The scenario is a name in the library (see 'synclab scenarios') or a .yaml file;
without one it is ` + defaultScenario + `. With -f the cluster is read from files instead of
generated. With --kubeconfig a real cluster is read and followed, and never changed.

Synclab's own subjects run in this process, on informers. With --feed api, or if a
subject is another program, such as kube-proxy/iptables-nft, all subjects are
processes that are fed over HTTP and measured from outside.

With --shard a run is divided among several machines: repetitions of cells, each
with all its subjects on one machine. 'synclab report' on the folder of the shards
makes one report of them.`,
		Example: `  synclab run
  synclab run steady-churn --services 10000 --endpoints 10 --subjects synclab/iptables-legacy
  synclab run size-sweep --services 20000 --reps 5 --out runs/before
  synclab run steady-churn --reps 6 --history history.jsonl   # see 'synclab history'
  synclab run handshakes --trace --set shape.podNetwork=vxlan --subjects kube-proxy/nftables
  synclab run ./my-scenario.yaml --seed 7 --set steps.churn.rate=50
  synclab run --subjects kube-proxy/iptables-legacy --services 1000
  kubectl get svc,endpointslices -A -o yaml | synclab run -f -
  synclab run --kubeconfig ~/.kube/config --subjects kube-proxy/nftables
  synclab run size-sweep --listen 127.0.0.1:8080   # its progress in a browser
  synclab run size-sweep --reps 20 --shard 3/8 --dry-run
  synclab run size-sweep --reps 20 --shard 3/8 --out /mnt/sweep
  synclab run size-sweep --services 2000 --profile --subjects kube-proxy/nftables   # then: synclab explain
  synclab run -f manifests/ --proxy-config kube-proxy.yaml --dump-iptables`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := flags.read(cmd, args, s)
			if err != nil {
				return err
			}
			usualSubject(cmd, &o)
			return execute(cmd.Context(), s, o)
		},
	}
	flags.register(cmd, "synclab/iptables-legacy where there is one", "")
	return cmd
}

func newMigrate(s streams) *cobra.Command {
	var flags runFlags
	var from, to string
	cmd := &cobra.Command{
		Use:   "migrate --from SUBJECT --to SUBJECT",
		Short: "Replace one proxier by another under traffic, and back, and say what it costs",
		Long: `Migrate runs the scenario of that name: pods send flows while the first proxier ends and
the second one starts over its rules, and later back again. The report says for each
move how long it took, which flows failed, what was left behind, which Services are
treated differently afterwards, and ends in a verdict:

  don't         the next proxier did not take over, Services are no longer reachable, or
                new flows keep reaching wrong endpoints
  go with care  flows were lost, something was left behind, or the next proxier treats
                some of these Services differently (docs/differences.md)
  go            nothing of that

docs/migrate.md has the exact rules. With -f the Services are yours.`,
		Example: `  synclab migrate --from kube-proxy/iptables-nft --to kube-proxy/nftables
  synclab migrate --from kube-proxy/ipvs --to kube-proxy/nftables --kernel 6.12 -f dump.yaml
  synclab migrate --from kube-proxy@v1.36.3/nftables --to kube-proxy/nftables --reps 6`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkSubjects(cmd, []string{to}); err != nil {
				return err
			}
			flags.subjects.names = []string{from}
			flags.scenario.sets = append(flags.scenario.sets, "steps.5.migrate.to="+to)
			o, err := flags.read(cmd, []string{"migrate"}, s)
			if err != nil {
				return err
			}
			summary, err := measure(cmd.Context(), s, o)
			if err == nil && summary != nil && len(summary.Moves) == 0 {
				err = errors.New("no move was measured, since a subject was stopped before: give its start more --max-time")
			}
			return err
		},
	}
	flags.register(cmd, "--from", "")
	cmd.Flags().StringVar(&from, "from", "", "`subject` that runs first")
	cmd.Flags().StringVar(&to, "to", "", "`subject` that replaces it")
	for _, flag := range []string{"from", "to"} {
		terminal.CompleteBy(cmd, flag, completeSubjects)
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
	hideFlags(cmd, "subjects", "feed", "kubeconfig", "context", "allow-exec-plugins", "profile") // the scenario decides them
	return cmd
}

// usualSubject sets the default subjects of a run, and prints a line if they differ from the usual ones.
func usualSubject(cmd *cobra.Command, o *runOptions) {
	if len(o.subjects) > 0 {
		return
	}
	o.subjects = subject.DefaultSubjects()
	usual := subject.All()[0].Name
	if _, lacking := subject.WithTools([]string{usual}); lacking != "" {
		fmt.Fprintf(cmd.ErrOrStderr(), "left out: %s; measuring instead: %s\n", lacking, strings.Join(o.subjects, ", "))
	}
}

func newCompare(s streams) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "compare [SCENARIO | FILE.yaml]",
		Short: "Run a scenario with synclab and kube-proxy in every mode and compare them",
		Long: `Compare runs a scenario with several subjects, unmodified kube-proxy among them. They
take turns, each as a process in a separate namespace. The same fake API server feeds all
of them with the same changes and settings, and all are measured from outside.
kube-proxy is built from its Go module on first use, which takes some minutes and
the network. All subjects have kube-proxy's settings. Suffixes of a name change them:

  +bucket   runner policy token-bucket (synclab)
  +gogcN    GOGC=N instead of 100 (any subject), such as +gogc50
  +tuned    what 'synclab proxy' does by default: token-bucket, GOGC=50, memory
            returned after the first full sync (synclab)

A subject that does not converge in --max-time is stopped. The report shows how far
it came.

Cells are repeated until the 95 % interval of each ratio is within --precision, or
--budget is used. The ratios are those of the scenario's targets, else of cold
starts, reactions or syncs. An interval takes six repetitions. With fewer, as with
--quick, the report shows the observed values and gives no verdict.

A scenario with targets, such as engine, is compared at the sizes and with the
subjects that they name. The report says which targets are met.

'synclab conform' compares what proxiers do, and measures nothing.`,
		Example: `  synclab compare --services 1000
  synclab compare size-sweep --services 5000 --subjects synclab/iptables-nft,kube-proxy/iptables-nft
  synclab compare --subjects synclab/nftables,synclab/nftables+tuned,kube-proxy/nftables+gogc50
  synclab compare --services 2000 --max-time 2m --max-memory 2Gi
  synclab compare --precision 2% --budget 1h
  synclab compare --subjects 'kube-proxy/nftables,exec:mine=/usr/local/bin/my-proxy --kubeconfig={kubeconfig}'
  synclab compare engine --services 10000 --reps 6   # the lab's backends, at sizes up to N
  synclab compare size-sweep --reps 20 --shard 3/8 --out /mnt/sweep   # a part of it, on each of 8 machines
  synclab compare --tools ./trixie --subjects kube-proxy/iptables-nft   # iptables of an unpacked image`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := flags.read(cmd, args, s)
			if err != nil {
				return err
			}
			compared(cmd, &o)
			return execute(cmd.Context(), s, o)
		},
	}
	flags.register(cmd, "every mode of kube-proxy and of synclab that this machine has the tools for", "5%")
	return cmd
}

// compared sets the defaults of a comparison.
func compared(cmd *cobra.Command, o *runOptions) {
	switch {
	case len(o.subjects) > 0:
	case len(o.scenario.Targets) > 0:
		o.subjects = withTools(cmd, subject.TargetSubjects(o.scenario))
	default:
		o.subjects = withTools(cmd, subject.ComparedSubjects())
	}
	if o.feed == "" {
		o.feed = raw.FeedAPI
	}
}
