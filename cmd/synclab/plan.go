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
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/cmd/synclab/planning"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	"synclab/proxier/runner"
	"synclab/reports"
	"synclab/reports/capacity"
	"synclab/reports/capacity/page"
	"synclab/reports/records"
)

// planFlags are the flags of `synclab plan`.
type planFlags struct {
	cluster            planCluster
	proxy              proxyConfigFlag
	grow               []string
	slos               sloFlags
	from               planModel
	minSyncPeriod      time.Duration
	policy             string
	length, watchDelay time.Duration
	seed               uint64
	out                string
	force              bool
	noPNG              bool
	check              bool
	format             terminal.Format
}

func (f *planFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.cluster.register(cmd)
	f.proxy.register(cmd)
	flags.StringSliceVar(&f.grow, "grow", nil, "growth of the cluster, a `list`: services=2x,endpoints=+20%,nodes=5000,churn=1.5x (default of churn: grows with the number of endpoints)")
	f.slos.register(cmd)
	flags.DurationVar(&f.minSyncPeriod, "min-sync-period", 0, "minSyncPeriod in use today: a `time` (default: that of --proxy-config, or 1s)")
	flags.StringVar(&f.policy, "policy", "", "what minSyncPeriod limits today: `token-bucket`, the time between starts of syncs, or completion-to-start, from the end of one sync to the next start (default: each subject's own)")
	f.from.register(cmd)
	flags.DurationVar(&f.length, "length", 0, "simulated `time` per answer (default: as its quantiles need)")
	flags.DurationVar(&f.watchDelay, "watch-delay", 0, "`time` until a node's proxy receives a change, added to every latency")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of the simulation, and of a calibration")
	flags.StringVar(&f.out, "out", "", "`folder` of the plan and its page (default: a new one in runs/)")
	flags.BoolVar(&f.force, "force", false, "replace the plan that is in the folder --out")
	flags.BoolVar(&f.noPNG, "no-png", false, "draw SVG only")
	flags.BoolVar(&f.check, "check", false, "exit with status 1 when the subject in use, with its settings of today, violates an SLO in the cluster grown by --grow (without --grow: in today's cluster)")
	f.format.Register(cmd)
	if err := cmd.MarkFlagDirname("out"); err != nil {
		panic(err)
	}
	var policies []string
	for _, policy := range runner.Policies() {
		policies = append(policies, string(policy))
	}
	terminal.Complete(cmd, "policy", policies...)
	if err := cmd.RegisterFlagCompletionFunc("grow", completeGrowth); err != nil {
		panic(err)
	}
	for _, flag := range []string{"min-sync-period", "length", "watch-delay", "seed"} {
		terminal.Complete(cmd, flag)
	}
	moreFlags(cmd, "proxy-config", "cpu", "memory", "first-sync", "min-sync-period", "policy", "length", "watch-delay", "seed", "force", "no-png", "other-machine", "kernel", "budget", "within")
}

// completeGrowth completes the last part of a list with the quantities that the list lacks.
func completeGrowth(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, name := range planning.Grown {
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
		Short: "Find the maximum cluster size, its first limit, and the best settings",
		Long: `Plan reads the size of a cluster today, its changes, its growth and its SLOs. For each
subject it answers how large the cluster may become until an SLO is violated, and
which one, and it recommends minSyncPeriod and a memory limit.

The costs of syncs come from a cost model: the newest that 'synclab calibrate' made
on this machine. If there is none, plan calibrates first, which takes minutes.
Latency and CPU come from a simulation of the sync loop, in virtual time, on all
nodes. The answer marks what is measured, interpolated and extrapolated.

The cluster is given in numbers, or counted: in a dump (-f), in a live cluster
(--kubeconfig, listed once), or in a recorded trace. Flags override counted values.
Changes are a rate (--churn), those of a trace (--churn-from), or the difference of
two dumps (--earlier, --earlier-age), which is a lower bound.

The subject in use today is --today, else the first of --subjects, else the first of
the calibration's. If the cost model has too little data on it, plan fails.

The exit status is 2 for bad input, and with --check 1 for a violated SLO.`,
		Example: `  synclab plan --services 20000 --endpoints 20 --churn 50
  synclab plan --services 8000 --churn 20 --grow services=2x,churn=+50% --npl-p99 2s --cpu 250m
  synclab plan -f dump.yaml --earlier yesterday.yaml --earlier-age 24h --grow services=40000
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

// badValue replaces the error of a flag value that Go cannot parse by what the flag wants.
func badValue(cmd *cobra.Command, err error) error {
	given, rest, _ := strings.Cut(strings.TrimPrefix(err.Error(), "invalid argument "), ` for "`)
	names, _, ok := strings.Cut(rest, `" flag: `)
	name := ""
	for _, long := range strings.Fields(names) {
		name = strings.TrimPrefix(long, "--") // the last one of "-o, --output"
	}
	flag := cmd.Flags().Lookup(name)
	if !ok || flag == nil {
		return flagError(cmd, err)
	}
	want := map[string]string{
		"int": "a whole number", "uint64": "a whole number of 0 or more", "float64": "a number", "duration": "a time such as 500ms, 10s or 5m", "bool": "true or false",
	}[flag.Value.Type()]
	if want == "" {
		return badUsage(cmd, "%w", err)
	}
	return badUsage(cmd, "--%s %s: want %s", name, given, want)
}

// plan reads the question, answers it and shows the answer.
func (f *planFlags) plan(cmd *cobra.Command, s streams) error {
	began := time.Now()
	ctx := cmd.Context()
	wanted, err := f.from.check(cmd)
	if err != nil {
		return err
	}
	if err := f.checkFolder(cmd); err != nil {
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
	if f.cluster.uneven != "" {
		answer.Words = append([]string{"This answer is for Services with equally many endpoints, and yours differ much: it is not measured for your cluster's shape, and may be " +
			"too optimistic by several times, above all for synclab/nftables."}, answer.Words...)
	}
	if pace != "" {
		answer.Remarks = append(answer.Remarks, pace)
	}
	answer.Remarks = slices.Concat(answer.Remarks, lacking, notes, planning.BeyondTested(answer))
	out := f.out
	if out == "" {
		if out, err = raw.NewFolder("plan", time.Now()); err != nil {
			return err
		}
	}
	if err := page.WriteAnswer(out, answer); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	if err := page.Build(answer, out, !f.noPNG); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	fmt.Fprintf(s.err, "cost model of %s; %v in all\n\n", dir, time.Since(began).Round(time.Second))
	if err := showPlan(s, answer, out, f.format); err != nil {
		return err
	}
	if f.check {
		return checkSLOs(s.err, answer)
	}
	return nil
}

// question reads the question without the subjects. notes name the sources of derived values.
func (f *planFlags) question(ctx context.Context, cmd *cobra.Command, s streams) (q capacity.Question, notes []string, err error) {
	if q.SLOs, err = f.slos.read(cmd); err != nil {
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
	case f.watchDelay < 0:
		return q, nil, badUsage(cmd, "--watch-delay %v: want 0 or more", f.watchDelay)
	}
	if given("min-sync-period") || given("policy") {
		q.Policy = &capacity.Policy{Runner: runner.Policy(f.policy), MinSyncPeriod: time.Second}
		if given("min-sync-period") {
			q.Policy.MinSyncPeriod = f.minSyncPeriod
		}
	}
	q.Seed, q.Length, q.WatchDelay = f.seed, f.length, f.watchDelay
	f.proxy.find(s, f.cluster.manifests.paths)
	cfg, err := f.proxy.load(ctx, s, 0)
	if err != nil {
		return q, nil, err
	}
	if q.Today, notes, err = f.cluster.read(ctx, cmd, s); err != nil {
		return q, nil, err
	}
	if period := config.SettingsOf(cfg, cfg.Mode).MinSyncPeriod; f.proxy.path != "" && !given("min-sync-period") {
		if q.Policy == nil {
			q.Policy = &capacity.Policy{}
		}
		q.Policy.MinSyncPeriod = period
		notes = append(notes, fmt.Sprintf("from %s: minSyncPeriod %v, of mode %s", f.proxy.path, period, cfg.Mode))
	}
	if q.Growth, err = planning.ParseGrowth(f.grow, q.Today); err != nil {
		return q, nil, badUsage(cmd, "%w", err)
	}
	if err := q.Validate(); err != nil { // before a calibration starts
		return q, nil, badUsage(cmd, "%w", err)
	}
	return q, notes, nil
}

// checkFolder refuses a folder with another plan.
func (f *planFlags) checkFolder(cmd *cobra.Command) error {
	switch {
	case f.out == "" && f.force:
		return badUsage(cmd, "--force replaces the plan in --out, which is not given")
	case f.out != "" && !f.force && page.HasAnswer(f.out):
		return badInput(fmt.Errorf("%s has a plan already; replace it with --force", f.out))
	}
	return nil
}

// planReport makes the page of a plan again, from the answer in its folder.
func planReport(s streams, dir, out string, format terminal.Format, options reports.Options) error {
	a, err := page.LoadAnswer(dir)
	if err != nil {
		return badInput(err)
	}
	if out == "" {
		if out, err = records.OutFolder([]string{dir}); err != nil {
			return badInput(err)
		}
	}
	if err := page.Build(a, out, !options.NoPNG); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return showPlan(s, a, out, format)
}

// showPlan prints the answer: the page's verdict, sentences, a table, and the path of the page.
func showPlan(s streams, a *capacity.Answer, out string, format terminal.Format) error {
	path := filepath.Join(out, page.CapacityPage)
	if format != "table" {
		fmt.Fprintln(s.err, "page:", path)
	}
	return format.Write(s.out, a, func(w io.Writer) error {
		if err := page.Verdict(a).Text(w); err != nil {
			return err
		}
		fmt.Fprintln(w)
		for _, words := range a.Words {
			fmt.Fprintln(w, words)
		}
		fmt.Fprintln(w)
		if err := terminal.Columns(w, planning.Table(a)...); err != nil {
			return err
		}
		for i, why := range planning.WhyLines(a) {
			if i == 0 {
				fmt.Fprintln(w, "\nSLOs violated first, with the reason:")
			}
			fmt.Fprintln(w, "-", why)
		}
		fmt.Fprintln(w, "\nCaveats:")
		for _, remark := range a.Remarks {
			fmt.Fprintln(w, "-", remark)
		}
		_, err := fmt.Fprintf(w, "\npage: %s\n", path)
		return err
	})
}

// errSLOs: the subject in use violates SLOs.
var errSLOs = errors.New("SLOs are violated")

// checkSLOs fails when the subject in use violates an SLO by the median: in the grown cluster if --grow is given,
// else in today's. It prints SLOs that the median meets, but not the whole interval.
func checkSLOs(w io.Writer, a *capacity.Answer) error {
	one := planning.InUse(a)
	at, where := one.Today, "today"
	if one.Target != nil {
		at, where = *one.Target, "in the cluster grown by --grow"
	}
	var unsure, unknown []string
	for _, name := range a.Question.SLOs.Given() {
		if _, known := at.Quantities[name]; !known {
			unknown = append(unknown, planning.SLOWords[name])
			continue
		}
		if !slices.Contains(at.Met, name) && !slices.Contains(at.Violated, name) {
			unsure = append(unsure, planning.SLOWords[name])
		}
	}
	if len(unsure) > 0 {
		fmt.Fprintf(w, "%s may violate %s %s: the SLO is within the interval of the estimate\n", one.Name, strings.Join(unsure, ", "), where)
	}
	if len(unknown) > 0 {
		fmt.Fprintf(w, "the calibration of %s has no %s: these SLOs were not checked\n", one.Name, strings.Join(unknown, ", "))
	}
	if len(at.Violated) == 0 {
		return nil
	}
	var broken []string
	for _, name := range at.Violated {
		broken = append(broken, fmt.Sprintf("%s is %s", planning.SLOWords[name], planning.SLOValue(name, at.Quantities[name].Median)))
	}
	return fmt.Errorf("%s, %s: %w: %s", one.Name, where, errSLOs, strings.Join(broken, ", "))
}

// sloFlags are the SLOs of a cluster.
type sloFlags struct {
	programming, firstPacket, firstSync time.Duration
	cpu, memory                         string
}

// sloNames are the flags.
var sloNames = []string{"npl-p99", "first-packet-p99", "cpu", "memory", "first-sync"}

func (f *sloFlags) register(cmd *cobra.Command) {
	usual := capacity.SLOs{}.WithDefaults()
	flags := cmd.Flags()
	flags.DurationVar(&f.programming, "npl-p99", usual.ProgrammingP99, "SLO: longest 99th percentile of network programming latency, over all changes and nodes; a `time`, 0: no SLO")
	flags.DurationVar(&f.firstPacket, "first-packet-p99", usual.FirstPacketP99, "SLO: highest cost of the rules for the first packet of a flow to the last Service; a `time`, 0: no SLO")
	flags.StringVar(&f.cpu, "cpu", planning.PlainNumber(usual.CPU), "SLO: mean `CPUs` of the proxier and its tools, e.g. 0.5 or 500m; 0: no SLO")
	flags.StringVar(&f.memory, "memory", resource.NewQuantity(int64(usual.Memory), resource.BinarySI).String(), "SLO: peak memory `size` of the proxier and its largest tool together; 0: no SLO")
	flags.DurationVar(&f.firstSync, "first-sync", usual.Start, "SLO: longest first sync of a proxier that starts on empty tables; a `time`, 0: no SLO")
	for _, flag := range sloNames {
		terminal.Complete(cmd, flag)
	}
}

// leastMemory is the smallest plausible SLO for memory, in bytes: every program in Go needs more.
const leastMemory = 4 << 20

// read returns the SLOs; the zero value, for capacity's defaults, where no flag was given.
func (f *sloFlags) read(cmd *cobra.Command) (p capacity.SLOs, err error) {
	for _, slo := range []struct {
		flag string
		time time.Duration
	}{{"npl-p99", f.programming}, {"first-packet-p99", f.firstPacket}, {"first-sync", f.firstSync}} {
		if slo.time < 0 {
			return p, badUsage(cmd, "--%s %v: want more than 0, or 0 for no SLO", slo.flag, slo.time)
		}
	}
	cpu, err := resource.ParseQuantity(f.cpu)
	if err != nil || cpu.Sign() < 0 {
		return p, badUsage(cmd, "--cpu %q: want a number of CPUs such as 0.5 or 500m", f.cpu)
	}
	memory, err := resource.ParseQuantity(f.memory)
	if err != nil || memory.Sign() < 0 {
		return p, badUsage(cmd, "--memory %q: want a size such as 512Mi or 2Gi", f.memory)
	}
	if _, bare := strconv.ParseFloat(f.memory, 64); memory.Sign() > 0 && memory.Value() < leastMemory {
		if bare == nil {
			return p, badUsage(cmd, "--memory %s: that many bytes are too few for a proxier; did you mean %sMi?", f.memory, f.memory)
		}
		return p, badUsage(cmd, "--memory %s: too little for a proxier; want %dMi or more", f.memory, leastMemory>>20)
	}
	p = capacity.SLOs{
		ProgrammingP99: f.programming, FirstPacketP99: f.firstPacket, CPU: cpu.AsApproximateFloat64(), Memory: uint64(memory.Value()), Start: f.firstSync,
	}
	if p == (capacity.SLOs{}) {
		return p, badUsage(cmd, "there is no SLO: any cluster size would meet it")
	}
	if !slices.ContainsFunc(sloNames, cmd.Flags().Changed) {
		return capacity.SLOs{}, nil
	}
	return p, nil
}
