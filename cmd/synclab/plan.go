package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench"
	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/bench/pass"
	"synclab/bench/raw"
	"synclab/bench/search"
	"synclab/bench/subject"
	"synclab/cmd/synclab/planning"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	"synclab/reports"
	"synclab/reports/comparison"
	"synclab/reports/doc"
	"synclab/reports/plan"
)

// planned are the default subjects of a plan, besides the one in use.
var planned = []string{"kube-proxy/iptables-legacy", "kube-proxy/nftables", "synclab/nftables"}

// planFlags are the flags of `synclab plan`.
type planFlags struct {
	cluster       planCluster
	proxy         proxyConfigFlag
	subjects      subjectFlags
	today         string
	grow          []string
	slos          sloFlags
	minSyncPeriod time.Duration
	budget        time.Duration
	precision     string
	seed          uint64
	out           string
	force, fresh  bool
	noPNG         bool
	dryRun        bool
	check         bool
	extrapolate   bool
	profile       bool
	format        terminal.Format
}

func (f *planFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	f.cluster.register(cmd)
	f.proxy.register(cmd)
	f.subjects.register(cmd, "the one in use, "+strings.Join(planned, ", "))
	hideFlags(cmd, "max-time", "max-memory", "feed", "kernel") // the SLOs and the plan decide them
	flags.StringVar(&f.today, "today", "", "the `subject` in use today (default: kube-proxy in the mode of --proxy-config, else the first of --subjects)")
	flags.StringSliceVar(&f.grow, "grow", nil, "growth of the cluster, a `list`: services=2x,endpoints=+20%,nodes=5000,churn=1.5x (default of churn: grows with the number of endpoints)")
	f.slos.register(cmd)
	flags.DurationVar(&f.minSyncPeriod, "min-sync-period", 0, "minSyncPeriod in use today: a `time` (default: that of --proxy-config, or 1s)")
	flags.DurationVar(&f.budget, "budget", 10*time.Minute, budgetText+", without the build of kube-proxy; ten minutes give a first answer, thirty a measured one")
	flags.StringVar(&f.precision, "precision", "15%", "`share` by which the sizes may differ that meet the SLOs and that violate one")
	flags.BoolVar(&f.extrapolate, "extrapolate", false, "also say what lies beyond the largest measured size, up to twice; marked")
	flags.BoolVar(&f.fresh, "fresh", false, "measure everything again, without the cells of earlier plans of the same question")
	flags.BoolVar(&f.profile, "profile", false, profileText+", to say which functions make a subject's time grow; samples cost time themselves")
	flags.Uint64Var(&f.seed, "seed", 1, "`seed` of the clusters and their changes")
	registerOut(cmd, &f.out, &f.force, "plan", "a new one in runs/")
	flags.BoolVar(&f.dryRun, "dry-run", false, "read the input, say what would be measured, and measure nothing")
	flags.BoolVar(&f.noPNG, "no-png", false, "draw SVG only")
	flags.BoolVar(&f.check, "check", false, "exit with status 1 when the subject in use, with its settings of today, violates an SLO in the cluster grown by --grow (without --grow: in today's cluster)")
	f.format.Register(cmd)
	terminal.CompleteBy(cmd, "today", completeSubjects)
	terminal.CompleteBy(cmd, "grow", completeGrowth)
	moreFlags(cmd, "proxy-config", "cpu", "memory", "first-sync", "min-sync-period", "precision", "seed", "force", "fresh", "dry-run", "no-png", "profile", "extrapolate", "set")
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
		Long: `Plan measures how large a cluster may become until an SLO is violated, and which one.
It begins with the cluster that is asked for, then halves or doubles it, up to four
times, and narrows the limit down, for each subject, until --budget is used. Each size
is measured: a cold start, memory, first packets, isolated changes, 15 seconds of
changes at the rate of that size, a burst, and with --writer-wait a restart beside two
programs that write rules. A repetition ends after its start or its packets if these
violate their SLO. The answer says "measured" where three repetitions agree at both ends
of the limit, else "observed". The latency of an hour, with its hourly full sync, is played in
virtual time from measured syncs; so are the values of minSyncPeriod (for synclab's
proxier also with a token bucket), and the recommended one is confirmed by a run.

The cluster is given in numbers (more with --set), or is yours: a dump (-f), a live
cluster (--kubeconfig, listed once), or the snapshot of a recorded trace. Its mix of
ports, types, endpoints, families and policies stays: other sizes are samples and
copies of it. Changes are a rate (--churn), those of a trace (--churn-from), or the
difference of two dumps (--earlier, --earlier-age), which is a lower bound.

The same command again uses the cells of an earlier plan, if the machine is as fast as
it was then, and goes on from an interrupted one.

The exit status is 2 for bad input, and with --check 1 for a violated SLO.`,
		Example: `  synclab plan --services 20000 --endpoints 20 --churn 50
  synclab plan --services 8000 --churn 20 --grow services=2x,churn=+50% --npl-p99 2s --cpu 250m
  synclab plan -f dump.yaml --earlier yesterday.yaml --earlier-age 24h --grow services=40000
  synclab plan --kubeconfig ~/.kube/config --churn-from trace.jsonl --today kube-proxy/nftables
  synclab plan --services 5000 --churn 5 --set shape.endpoints.distribution=zipf --budget 30m
  synclab plan --services 8000 --churn 20 --subjects kube-proxy/nftables --check -o json`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return flags.plan(cmd, s)
		},
	}
	flags.register(cmd)
	return cmd
}

// planRun is a checked plan.
type planRun struct {
	q         plan.Question
	input     *planInput
	precision float64
	notes     []string
	config    *v1alpha1.KubeProxyConfiguration
	run       runOptions
	subjects  []string // as they were asked for, the one in use first
}

// plan reads the question, measures, and shows the answer.
func (f *planFlags) plan(cmd *cobra.Command, s streams) error {
	ctx := cmd.Context()
	p, err := f.read(ctx, cmd, s)
	if err != nil {
		return err
	}
	for _, note := range p.notes {
		fmt.Fprintln(s.err, note)
	}
	if f.dryRun {
		return dryPlan(s, p)
	}
	if busy := machineLoad(); busy > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(s.err, "the machine is busy: a load of %.1f on %d CPUs; limits will be lower than on an idle one\n", busy, runtime.NumCPU())
	}
	if err := f.buildKubeProxy(ctx, s, p); err != nil {
		return err
	}
	assumed := ""
	if p.q.Assumed {
		assumed = " (assumed; --today names another)"
	}
	fmt.Fprintf(s.err, "in use today: %s%s; compared: %s\n", p.q.Subjects[0], assumed, strings.Join(p.q.Subjects, ", "))
	dir, err := f.measure(ctx, s, p)
	if dir == "" {
		return err
	}
	interrupted := err
	answer, err := answerOf(dir, p)
	if err != nil {
		return errors.Join(interrupted, err)
	}
	if err := answer.Explain(dir); err != nil {
		fmt.Fprintln(s.err, err)
	}
	out := f.out
	if out == "" {
		out = dir
	}
	if err := errors.Join(answer.Write(out), answer.Build(out, !f.noPNG)); err != nil {
		return fmt.Errorf("%s: %w", out, errors.Join(interrupted, err))
	}
	if err := errors.Join(interrupted, showPlan(s, answer, out, f.format)); err != nil {
		return err
	}
	if f.check {
		return checkSLOs(s.err, answer)
	}
	return nil
}

// dryPlan prints what a plan would measure.
func dryPlan(s streams, p *planRun) error {
	q := &p.q
	_, err := fmt.Fprintf(s.out, "%s Services first, then %s to %s: %s, %s changes a second there, %s nodes, minSyncPeriod %v\nsubjects: %s\n",
		doc.Grouped(int64(q.Asked.Services)), doc.Grouped(int64(min(smallestPlanned, q.Asked.Services))), doc.Grouped(int64(mostAsked(q))), q.Shape,
		planning.PlainNumber(q.Asked.Rate()), doc.Grouped(int64(q.Asked.Nodes)), q.MinSyncPeriod, strings.Join(q.Subjects, ", "))
	return err
}

// mostAsked is the largest size of the search.
func mostAsked(q *plan.Question) int {
	asked := q.Asked.Services
	return min(growLimit*asked, max(asked, mostPlanned(q)))
}

func answerOf(dir string, p *planRun) (*plan.Answer, error) {
	run, list, err := raw.ReadRun(dir)
	if err != nil {
		return nil, err
	}
	answer, err := plan.NewAnswer(p.q, &run, list)
	if err != nil {
		return nil, err
	}
	answer.Remarks = slices.Concat(answer.Remarks, p.notes, p.input.remarks())
	return answer, nil
}

// read checks the flags and reads the files that they name.
func (f *planFlags) read(ctx context.Context, cmd *cobra.Command, s streams) (*planRun, error) {
	p := &planRun{}
	if err := f.subjects.apply(cmd, &p.run); err != nil {
		return nil, err
	}
	given := cmd.Flags().Changed
	switch {
	case len(p.run.kernels) > 0:
		return nil, badUsage(cmd, "--kernel is not for plan: a guest's times would not predict a node's")
	case f.budget <= 0:
		return nil, badUsage(cmd, "--budget %v: want more than 0", f.budget)
	case given("max-time") || given("max-memory") || given("feed"):
		return nil, badUsage(cmd, "--max-time, --max-memory and --feed are not for plan: its SLOs decide when a subject is stopped, and each is a process")
	case given("min-sync-period") && f.minSyncPeriod <= 0:
		return nil, badUsage(cmd, "--min-sync-period %v: want more than 0", f.minSyncPeriod)
	case f.out == "" && f.force:
		return nil, badUsage(cmd, "--force replaces the plan in --out, which is not given")
	}
	share, err := parseShare(f.precision)
	if err != nil || !(share > 0 && share <= 1) {
		return nil, badUsage(cmd, "--precision %q: want a share such as 15%% or 0.15", f.precision)
	}
	p.precision = 1 + share
	q := &p.q
	if q.SLOs, q.Defaulted, err = f.slos.read(cmd); err != nil {
		return nil, err
	}
	q.Seed, q.Extrapolate = f.seed, f.extrapolate
	f.proxy.find(s, f.cluster.manifests.paths)
	if p.config, err = f.proxy.load(ctx, s, 0); err != nil {
		return nil, err
	}
	settings := config.SettingsOf(p.config, p.config.Mode)
	q.MinSyncPeriod, q.SyncPeriod = settings.MinSyncPeriod, settings.SyncPeriod
	if f.proxy.path != "" {
		p.notes = append(p.notes, fmt.Sprintf("from %s: minSyncPeriod %v, of mode %s", f.proxy.path, q.MinSyncPeriod, p.config.Mode))
	}
	if given("min-sync-period") {
		q.MinSyncPeriod = f.minSyncPeriod
	}
	if p.subjects, err = f.chosen(cmd, p); err != nil {
		return nil, err
	}
	for _, text := range p.subjects {
		about, err := subject.Parse(text)
		if err != nil {
			return nil, badUsage(cmd, "%w", err)
		}
		q.Subjects = append(q.Subjects, about.Name)
	}
	var notes []string
	if p.input, notes, err = f.cluster.read(ctx, cmd, s); err != nil {
		return nil, err
	}
	f.proxy.chooseNode(s, p.config, p.input.objects)
	p.notes = append(p.notes, notes...)
	growth, err := planning.ParseGrowth(f.grow, p.input.today)
	if err != nil {
		return nil, badUsage(cmd, "%w", err)
	}
	if growth.Endpoints > 1 && p.input.objects != nil {
		return nil, badUsage(cmd, "--grow endpoints: a dump keeps its own endpoints; want services, nodes or churn")
	}
	q.Today, q.Asked, q.Shape = p.input.today, p.input.today.Grow(growth), p.input.shape
	if err := q.Validate(); err != nil {
		return nil, badUsage(cmd, "%w", err)
	}
	p.input.asked, p.input.timeout, p.input.minSyncPeriod, p.input.seed = q.Asked, q.Timeout(), q.MinSyncPeriod, f.seed
	p.input.writers = q.SLOs.WriterWait > 0
	base, objects, err := p.input.cell(q.Asked.Services)
	if err != nil {
		return nil, err
	}
	q.SliceBytes = sliceBytes(base, objects)
	if q.Key, err = p.input.key(ctx, q, base, p.config, f.subjects.version(), p.run.execConfig, p.run.execEnv, f.profile); err != nil {
		return nil, err
	}
	switch {
	case f.out == "":
	case f.reuses() && q.GoesOn(f.out):
		f.force = true // the plan goes on from its cells
	case !f.force && plan.HasAnswer(f.out):
		return nil, badInput(fmt.Errorf("%s has a plan already, of another question or with cells that cannot be used; replace it with --force", f.out))
	}
	return p, nil
}

// reuses reports whether cells of earlier plans may be used. A program that is named by its path may be another one by now.
func (f *planFlags) reuses() bool {
	return !f.fresh && f.subjects.kubeProxy.Path == "" && f.subjects.kubeProxy.Source == ""
}

// chosen returns the subjects, the one in use first.
func (f *planFlags) chosen(cmd *cobra.Command, p *planRun) ([]string, error) {
	list := f.subjects.names
	if len(list) == 0 {
		list = withTools(cmd, planned)
	}
	today := f.today
	if today == "" && len(f.subjects.names) == 0 && f.proxy.path != "" && string(p.config.Mode) == "nftables" {
		today = "kube-proxy/nftables"
	}
	p.q.Assumed = today == ""
	if today == "" {
		return list, nil
	}
	about, err := subject.Parse(today)
	if err != nil {
		return nil, badUsage(cmd, "--today: %w", err)
	}
	isToday := func(text string) bool { return subject.Named(text).Name == about.Name }
	if len(f.subjects.names) > 0 && !slices.ContainsFunc(list, isToday) {
		return nil, badUsage(cmd, "--today %s is not among --subjects", today)
	}
	return append([]string{today}, slices.DeleteFunc(slices.Clone(list), isToday)...), nil
}

// memoryFactor times the SLO for memory, a subject is stopped, lest it takes that of the machine.
const memoryFactor = 4

// buildKubeProxy builds kube-proxy if a subject needs it. If that fails, as without a network, the default subjects that need it
// are left out.
func (f *planFlags) buildKubeProxy(ctx context.Context, s streams, p *planRun) error {
	needs := func(text string) bool { return subject.IsBaseline(subject.Named(text).Name) }
	if !slices.ContainsFunc(p.subjects, needs) {
		return nil
	}
	o := f.subjects.kubeProxy
	o.Progress = s.progress
	_, _, err := upstream.KubeProxy(ctx, o)
	if err == nil || len(f.subjects.names) > 0 || ctx.Err() != nil || f.today != "" && needs(f.today) {
		return err
	}
	p.subjects, p.q.Subjects = slices.DeleteFunc(p.subjects, needs), slices.DeleteFunc(p.q.Subjects, needs)
	p.notes = append(p.notes, fmt.Sprintf("kube-proxy is left out, since it could not be built: %v", err))
	fmt.Fprintln(s.err, p.notes[len(p.notes)-1])
	return nil
}

// growLimit is how many times larger than the asked cluster the search goes.
const growLimit = 4

// smallestPlanned is the smallest size, in Services.
const smallestPlanned = 10

// measure runs the plan. It returns the folder, also with an error, if anything was measured.
func (f *planFlags) measure(ctx context.Context, s streams, p *planRun) (string, error) {
	if terminal.Descriptor(s.err) < 0 { // workers write to it, too
		s.err = &terminal.Turns{W: s.err}
	}
	q := &p.q
	shown := terminal.NewProgress(s.err)
	asked := q.Asked.Services
	o := bench.PlanOptions{
		Run: bench.ExecuteOptions{
			Subjects: p.subjects, KubeProxy: f.subjects.kubeProxy, ExecConfig: p.run.execConfig, ExecEnv: p.run.execEnv, ProxyConfig: p.config, Out: f.out, Force: f.force,
			Command: commandLine(os.Args), WorkerArgs: []string{worker}, ProxyArgs: []string{"proxy"}, Progress: shown.Show, Stderr: s.err, Profile: f.profile,
		},
		Search: search.Options{Asked: asked, Least: min(smallestPlanned, asked), Most: mostAsked(q), Precision: p.precision, Agreeing: 3},
		Budget: f.budget, Cluster: p.input.cell, Judge: plan.Judge(q), Alike: plan.Alike(q),
		Confirm: func(brackets map[string]search.Bracket, cells []bench.PlanCell) []bench.Trial {
			return plan.Confirm(q, brackets, cells)
		},
	}
	o.Run.MaxMemory = memoryFactor * q.SLOs.Memory
	if q.SLOs.Start > 0 {
		o.Enough = append(o.Enough, pass.Bound{Metric: raw.ColdStart, Most: q.SLOs.Start})
	}
	if q.SLOs.FirstPacket > 0 {
		o.Enough = append(o.Enough, pass.Bound{Metric: raw.FirstPacket, Quantile: 0.99, Most: q.SLOs.FirstPacket})
	}
	if f.reuses() {
		var from []string
		if o.Known, from = knownCells(q.Key, f.out); len(o.Known) > 0 {
			fmt.Fprintf(s.err, "cells of the same question are in %s\n", strings.Join(from, ", "))
		}
	}
	o.Opened = func(dir string) error { return (&plan.Answer{Question: *q}).Write(dir) }
	dir, err := bench.Plan(ctx, o)
	shown.End()
	var input *bench.InputError
	if errors.As(err, &input) {
		return "", badInput(err)
	}
	return dir, err
}

// knownCells returns the cells of all plans with a key, those in the folder out first, then the newest, and their folders. A plan
// has those of earlier ones that it used: each counts once.
func knownCells(key, out string) (known []bench.PlanCell, from []string) {
	dirs := []string{out}
	entries, _ := os.ReadDir(raw.RunsFolder)         // without the folder, there are none
	for _, entry := range slices.Backward(entries) { // their names end with their times
		dirs = append(dirs, filepath.Join(raw.RunsFolder, entry.Name()))
	}
	type id struct {
		subject string
		size    int
		took    time.Duration
		records int
	}
	there := map[id]bool{}
	for _, dir := range dirs {
		if dir == "" || !plan.HasKey(dir, key) {
			continue
		}
		if own, err := outfile.Own(dir, filepath.Join(dir, "run.json")); err != nil || !own {
			continue
		}
		run, list, err := raw.ReadRun(dir)
		if err != nil {
			continue
		}
		before := len(known)
		for _, c := range bench.PlanCells(list) {
			if key := (id{c.Subject, c.Size, c.Took(), len(c.Records)}); c.Setting == "" && !there[key] {
				there[key], c.Programs = true, run.Programs
				known = append(known, c)
			}
		}
		if len(known) > before {
			from = append(from, dir)
		}
	}
	return known, from
}

// planReport makes the page of a plan again, from the answer in its folder.
func planReport(s streams, dir, out string, format terminal.Format, options reports.Options) error {
	a, err := plan.Load(dir)
	if err != nil {
		return badInput(err)
	}
	if err := a.Explain(dir); err != nil {
		fmt.Fprintln(s.err, err)
	}
	if out, err = outFolder(out, []string{dir}); err != nil {
		return err
	}
	if err := a.Build(out, !options.NoPNG); err != nil {
		return fmt.Errorf("%s: %w", out, err)
	}
	return showPlan(s, a, out, format)
}

// showPlan prints the answer and the path of its page.
func showPlan(s streams, a *plan.Answer, out string, format terminal.Format) error {
	path := filepath.Join(out, plan.CapacityPage)
	if format != "table" {
		fmt.Fprintln(s.err, "page:", path)
	}
	return format.Write(s.out, a, func(w io.Writer) error {
		if err := a.Document(nil).Text(w); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "\npage: %s\n", path)
		return err
	})
}

// errSLOs: the subject in use violates SLOs.
var errSLOs = errors.New("SLOs are violated")

// checkSLOs fails when the subject in use violates an SLO at the asked size.
func checkSLOs(w io.Writer, a *plan.Answer) error {
	use, at := a.InUse(), fmt.Sprintf("at %s Services", doc.Grouped(int64(a.Question.Asked.Services)))
	switch a.Asked(use) {
	case plan.Violates:
		return fmt.Errorf("%s, %s: %w: %s", use.Name, at, errSLOs, use.Limit(&a.Question))
	case plan.Unknown:
		fmt.Fprintf(w, "%s, %s: unknown: %s\n", use.Name, at, use.Limit(&a.Question))
	}
	return nil
}

// sloFlags are the SLOs of a cluster.
type sloFlags struct {
	programming, firstPacket, firstSync, stall, writerWait time.Duration
	cpu, memory                                            string
}

// sloNames are the flags.
var sloNames = []string{"npl-p99", "first-packet-p99", "cpu", "memory", "first-sync", "stall", "writer-wait"}

func (f *sloFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.DurationVar(&f.programming, "npl-p99", comparison.Duration(comparison.PlanSLOs.Latency), "SLO: longest 99th percentile of network programming latency, over the changes of an hour; a `time`, 0: no SLO")
	flags.DurationVar(&f.firstPacket, "first-packet-p99", comparison.Duration(comparison.PlanSLOs.FirstPacket), "SLO: highest 99th percentile of the first packet of a flow to the last Service; a `time`, 0: no SLO")
	flags.StringVar(&f.cpu, "cpu", planning.PlainNumber(comparison.PlanSLOs.CPU), "SLO: mean `CPUs` of the proxier and its tools, e.g. 0.5 or 500m; 0: no SLO")
	flags.StringVar(&f.memory, "memory", resource.NewQuantity(int64(comparison.PlanSLOs.Memory), resource.BinarySI).String(), "SLO: peak memory `size` of the proxier and its largest tool together; 0: no SLO")
	flags.DurationVar(&f.firstSync, "first-sync", comparison.Duration(comparison.PlanSLOs.Start), "SLO: longest time from the start of a proxier on empty tables until every Service is visible; a `time`, 0: no SLO")
	flags.DurationVar(&f.stall, "stall", 0, "SLO: no other process is kept from running for longer on any CPU; a `time`, 0: no SLO. Other load of this machine counts too")
	flags.DurationVar(&f.writerWait, "writer-wait", 0, "SLO: while the proxier restarts, no call of iptables and no commit of nf_tables by another program takes longer; a `time`, 0: no SLO")
	moreFlags(cmd, "stall", "writer-wait")
}

// leastMemory is the smallest plausible SLO for memory, in bytes: every program in Go needs more.
const leastMemory = 4 << 20

// read returns the SLOs. defaulted: no flag was given.
func (f *sloFlags) read(cmd *cobra.Command) (p comparison.SLOs, defaulted bool, err error) {
	for _, slo := range []struct {
		flag string
		time time.Duration
	}{{"npl-p99", f.programming}, {"first-packet-p99", f.firstPacket}, {"first-sync", f.firstSync}, {"stall", f.stall}, {"writer-wait", f.writerWait}} {
		if slo.time < 0 {
			return p, false, badUsage(cmd, "--%s %v: want more than 0, or 0 for no SLO", slo.flag, slo.time)
		}
	}
	cpu, err := resource.ParseQuantity(f.cpu)
	if err != nil || cpu.Sign() < 0 {
		return p, false, badUsage(cmd, "--cpu %q: want a number of CPUs such as 0.5 or 500m", f.cpu)
	}
	memory, err := resource.ParseQuantity(f.memory)
	if err != nil || memory.Sign() < 0 {
		return p, false, badUsage(cmd, "--memory %q: want a size such as 512Mi or 2Gi", f.memory)
	}
	if _, bare := strconv.ParseFloat(f.memory, 64); memory.Sign() > 0 && memory.Value() < leastMemory {
		if bare == nil {
			return p, false, badUsage(cmd, "--memory %s: that many bytes are too few for a proxier; did you mean %sMi?", f.memory, f.memory)
		}
		return p, false, badUsage(cmd, "--memory %s: too little for a proxier; want %dMi or more", f.memory, leastMemory>>20)
	}
	p = comparison.SLOs{Latency: f.programming.Seconds(), FirstPacket: f.firstPacket.Seconds(), CPU: cpu.AsApproximateFloat64(), Memory: uint64(memory.Value()), Start: f.firstSync.Seconds(), Stall: f.stall.Seconds(), WriterWait: f.writerWait.Seconds()}
	return p, !slices.ContainsFunc(sloNames, cmd.Flags().Changed), nil
}

// machineLoad returns the mean number of runnable threads in the last minute, 0 where it is unknown.
func machineLoad() float64 {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	load, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return 0
	}
	return load
}
