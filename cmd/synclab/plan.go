package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/proxier/runner"
	"synclab/reports"
	"synclab/reports/capacity"
)

// planFlags are those of `synclab plan`.
type planFlags struct {
	cluster       planCluster
	grow          []string
	promise       promiseFlags
	from          planModel
	minSyncPeriod time.Duration
	policy        string
	length, way   time.Duration
	seed          uint64
	out           string
	force         bool
	noPNG         bool
	check         bool
	format        outputFormat
}

func (f *planFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.cluster.register(cmd)
	flags.StringSliceVar(&f.grow, "grow", nil, "how the cluster shall grow, a `list`: services=2x,endpoints=+20%,nodes=5000,churn=1.5x (churn, if not given, grows as the number of endpoints does)")
	f.promise.register(cmd)
	flags.DurationVar(&f.minSyncPeriod, "min-sync-period", 0, "minSyncPeriod in use today: a `time` (default 1s)")
	flags.StringVar(&f.policy, "policy", "", "what minSyncPeriod counts in use today: `token-bucket`, between starts of syncs, or completion-to-start, from the end of one (default: each subject's own)")
	f.from.register(cmd)
	flags.DurationVar(&f.length, "length", 0, "`time` that is simulated for each answer (default: as long as its quantiles need)")
	flags.DurationVar(&f.way, "way", 0, "`time` that a change takes until the proxier on a node is told of it, added to every latency")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of what is simulated, and of a calibration")
	flags.StringVar(&f.out, "out", "", "`folder` of the plan and its page (default: a new one in runs/)")
	flags.BoolVar(&f.force, "force", false, "replace the plan that is in the folder --out")
	flags.BoolVar(&f.noPNG, "no-png", false, "draw SVG only")
	flags.BoolVar(&f.check, "check", false, "exit with status 1 when the subject in use, as it is set today, breaks a promise in the cluster grown by --grow (without: in that of today)")
	f.format.register(cmd)
	if err := cmd.MarkFlagDirname("out"); err != nil {
		panic(err)
	}
	var policies []string
	for _, policy := range runner.Policies() {
		policies = append(policies, string(policy))
	}
	complete(cmd, "policy", policies...)
	if err := cmd.RegisterFlagCompletionFunc("grow", completeGrowth); err != nil {
		panic(err)
	}
	for _, flag := range []string{"min-sync-period", "length", "way", "seed"} {
		complete(cmd, flag)
	}
}

// completeGrowth completes the last part of a list by what does not grow in it yet.
func completeGrowth(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, name := range grown {
		if !strings.Contains(","+before, ","+name+"=") {
			words = append(words, before+name+"=2x")
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func newPlan(s streams) *cobra.Command {
	var flags planFlags
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Say how far a cluster can grow, what breaks first, and which settings suit",
		Long: `Plan takes a cluster as it is today, how it changes and shall grow, and what is
promised in it. For each subject it says how large the cluster may get until a
promise breaks, and which, what minSyncPeriod suits, and what memory to give.

What syncs cost is asked of a cost model, the newest that 'synclab calibrate' made
on this machine. Where there is none, plan calibrates first: minutes. Latency and
CPU come from the sync loop in virtual time, on all nodes. What is measured,
interpolated and extrapolated is told apart.

The cluster is given in numbers, or counted: in a dump (-f), in a live cluster
(--kubeconfig, listed once), or in a recorded trace. Flags overrule what was
counted. Changes are a rate (--churn), those of a trace (--churn-from), or what
differs between two dumps (--earlier, --apart), which is a lower bound.

The subject in use today is the first of --subjects, or else of the calibration's,
unless --today names it; one that the cost model knows too little of is refused.
The exit status is 2 for bad input, and with --check 1 for a broken promise.`,
		Example: `  synclab plan --services 20000 --endpoints 20 --churn 50
  synclab plan --services 8000 --churn 20 --grow services=2x,churn=+50% --npl-p99 2s --cpu 250m
  synclab plan -f dump.yaml --earlier yesterday.yaml --apart 24h --grow services=40000
  synclab plan --kubeconfig ~/.kube/config --churn-from trace.jsonl --today kube-proxy/nftables
  synclab plan --services 8000 --churn 20 --model runs/calibrate-1 --check -o json`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.plan(cmd, s)
		},
	}
	flags.register(cmd)
	cmd.SetFlagErrorFunc(badValue)
	return cmd
}

// badValue says what a flag wants instead of how Go failed to read it.
func badValue(cmd *cobra.Command, err error) error {
	given, rest, _ := strings.Cut(strings.TrimPrefix(err.Error(), "invalid argument "), ` for "`)
	names, _, ok := strings.Cut(rest, `" flag: `)
	name := ""
	for _, long := range strings.Fields(names) {
		name = strings.TrimPrefix(long, "--") // of "-o, --output", the last
	}
	flag := cmd.Flags().Lookup(name)
	if !ok || flag == nil {
		return badUsage(cmd, "%w", err)
	}
	want := map[string]string{
		"int": "a whole number", "uint64": "a whole number of 0 or more", "float64": "a number", "duration": "a time such as 500ms, 10s or 5m", "bool": "true or false",
	}[flag.Value.Type()]
	if want == "" {
		return badUsage(cmd, "%w", err)
	}
	return badUsage(cmd, "--%s %s: want %s", name, given, want)
}

// plan reads the question, answers it, and shows the answer.
func (f *planFlags) plan(cmd *cobra.Command, s streams) error {
	began := time.Now()
	ctx := cmd.Context()
	wanted, err := f.from.check(cmd)
	if err != nil {
		return err
	}
	out, err := f.folder(cmd)
	if err != nil {
		return err
	}
	q, notes, err := f.question(ctx, cmd, s)
	if err != nil {
		return err
	}
	for _, note := range notes {
		fmt.Fprintln(s.err, note)
	}
	asked := q.Today.At(q.Growth, 1)
	f.from.asked = bench.CalibrationCell{Services: asked.Services, Endpoints: max(1, int(math.Round(asked.Endpoints)))}
	m, dir, subjects, pace, err := f.from.load(ctx, s, wanted, began, f.seed)
	if err != nil {
		return err
	}
	q.Subjects = subjects
	lacking := thin(m, subjects, len(f.from.subjects.names) > 0)
	for _, remark := range lacking {
		fmt.Fprintln(s.err, "cost model:", remark)
	}
	fmt.Fprintf(s.err, "in use today: %s; compared: %s\n", subjects[0], strings.Join(subjects, ", "))
	answer, err := capacity.Ask(ctx, m, q, func(done, of int, what string) { fmt.Fprintf(s.err, "[%d/%d] %s\n", done, of, what) })
	if err != nil {
		return errors.Join(ctx.Err(), err)
	}
	answer.Command = commandLine(os.Args)
	if pace != "" {
		answer.Remarks = append(answer.Remarks, pace)
	}
	answer.Remarks = slices.Concat(answer.Remarks, lacking, notes, beyondTested(answer))
	if err := reports.WriteAnswer(out, answer); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	if err := reports.BuildCapacity(answer, out, reports.Options{NoPNG: f.noPNG}); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	fmt.Fprintf(s.err, "cost model of %s; %v in all\n\n", dir, time.Since(began).Round(time.Second))
	if err := showPlan(s, answer, out, f.format); err != nil {
		return err
	}
	if f.check {
		return checkPromises(s.err, answer)
	}
	return nil
}

// question reads what is asked, but for the subjects. notes say what was derived from where.
func (f *planFlags) question(ctx context.Context, cmd *cobra.Command, s streams) (q capacity.Question, notes []string, err error) {
	if q.Promise, err = f.promise.read(cmd); err != nil {
		return q, nil, err
	}
	given := cmd.Flags().Changed
	switch {
	case f.minSyncPeriod < 0:
		return q, nil, badUsage(cmd, "--min-sync-period %v: want 0 or more", f.minSyncPeriod)
	case f.policy != "" && !slices.Contains(runner.Policies(), runner.Policy(f.policy)):
		return q, nil, badUsage(cmd, "--policy %q: want %s or %s", f.policy, runner.TokenBucket, runner.CompletionToStart)
	case given("length") && f.length <= 0:
		return q, nil, badUsage(cmd, "--length %v: want more than 0", f.length)
	case f.way < 0:
		return q, nil, badUsage(cmd, "--way %v: want 0 or more", f.way)
	}
	if given("min-sync-period") || given("policy") {
		q.Policy = &capacity.Policy{Runner: runner.Policy(f.policy), MinSyncPeriod: time.Second}
		if given("min-sync-period") {
			q.Policy.MinSyncPeriod = f.minSyncPeriod
		}
	}
	q.Seed, q.Length, q.Way = f.seed, f.length, f.way
	if q.Today, notes, err = f.cluster.read(ctx, cmd, s); err != nil {
		return q, nil, err
	}
	if q.Growth, err = parseGrowth(f.grow, q.Today); err != nil {
		return q, nil, badUsage(cmd, "%w", err)
	}
	if err := q.Validate(); err != nil { // before anything is calibrated
		return q, nil, badUsage(cmd, "%w", err)
	}
	return q, notes, nil
}

// folder is where the plan goes. Nothing is in the way there.
func (f *planFlags) folder(cmd *cobra.Command) (string, error) {
	if f.force && f.out == "" {
		return "", badUsage(cmd, "--force replaces the plan in --out, which is not given")
	}
	if f.out == "" {
		return newPlanFolder("plan"), nil
	}
	if reports.HasAnswer(f.out) && !f.force {
		return "", badInput(fmt.Errorf("%s holds a plan; --force replaces it", f.out))
	}
	return f.out, nil
}

// planReport makes the page of a plan again, from the answer that its folder keeps.
func planReport(s streams, dir, out string, format outputFormat, options reports.Options) error {
	a, err := reports.LoadAnswer(dir)
	if err != nil {
		return badInput(err)
	}
	if out == "" {
		out = dir
	}
	if err := reports.BuildCapacity(a, out, options); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return showPlan(s, a, out, format)
}

// showPlan prints the answer: words, a table, and where the page is.
func showPlan(s streams, a *capacity.Answer, out string, format outputFormat) error {
	page := filepath.Join(out, reports.CapacityPage)
	if format != "table" {
		fmt.Fprintln(s.err, "page:", page)
	}
	return format.write(s.out, a, func(w io.Writer) error {
		for _, words := range a.Words {
			fmt.Fprintln(w, words)
		}
		fmt.Fprintln(w)
		if err := columns(w, planTable(a)...); err != nil {
			return err
		}
		for i, why := range whyLines(a) {
			if i == 0 {
				fmt.Fprintln(w, "\nWhat breaks first:")
			}
			fmt.Fprintln(w, "-", why)
		}
		fmt.Fprintln(w, "\nTo bear in mind:")
		for _, remark := range a.Remarks {
			fmt.Fprintln(w, "-", remark)
		}
		_, err := fmt.Fprintf(w, "\npage: %s\n", page)
		return err
	})
}

// errPromises: the subject in use breaks a promise.
var errPromises = errors.New("promises are broken")

// checkPromises fails when the subject in use breaks a promise where it shall hold, by the median. Promises that hold by the
// median, but not for sure, are told of.
func checkPromises(w io.Writer, a *capacity.Answer) error {
	one := inUse(a)
	at, where := one.Today, "today"
	if one.Target != nil {
		at, where = *one.Target, "in the cluster grown by --grow"
	}
	var unsure, unknown []string
	for _, name := range a.Question.Promise.Promised() {
		if _, known := at.Promised[name]; !known {
			unknown = append(unknown, promiseWords[name])
			continue
		}
		if !slices.Contains(at.Holds, name) && !slices.Contains(at.Breaks, name) {
			unsure = append(unsure, promiseWords[name])
		}
	}
	if len(unsure) > 0 {
		fmt.Fprintf(w, "%s may not hold %s %s: what it promises is within the interval of the estimate\n", one.Name, strings.Join(unsure, ", "), where)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(w, "of %s the calibration has no %s: these promises were not checked\n", one.Name, strings.Join(unknown, ", "))
	}
	if len(at.Breaks) == 0 {
		return nil
	}
	var broken []string
	for _, name := range at.Breaks {
		broken = append(broken, fmt.Sprintf("%s is %s", promiseWords[name], promiseValue(name, at.Promised[name].Median)))
	}
	return fmt.Errorf("%s, %s: %w: %s", one.Name, where, errPromises, strings.Join(broken, ", "))
}
