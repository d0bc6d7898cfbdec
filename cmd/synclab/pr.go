package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/bench/lab/profile"
	"synclab/bench/lab/shell"
	"synclab/bench/lab/upstream"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/verify/conform"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	"synclab/reports/comparison"
	"synclab/reports/diff"
	"synclab/reports/doc"
	"synclab/reports/estimate"
	"synclab/reports/profiles"
	"synclab/reports/records"
	"synclab/reports/review"
	"synclab/reports/sections"
	"synclab/scenarios"
)

// prFlags are the flags of `synclab pr`.
type prFlags struct {
	base, head string
	program    string
	matrix     string
	modes      []string
	gates      []string
	large      bool
	precision  string
	budget     time.Duration
	clusters   int
	services   int
	thresholds thresholdFlags
	format     terminal.Format
	out        string
	force      bool
}

// The files of a review, in its folder.
const (
	reviewPage    = "index.html"
	reviewComment = "comment.md"
	reviewData    = "review.json"
)

// largeSizes are observed once with --large. They are the sizes of k/k#139513 and of guessi/kube-proxy-benchmark, whose
// Services share their pods.
var largeSizes = []struct {
	scenarios.Sizes
	sets []string
}{
	{scenarios.Sizes{Services: 44000, Endpoints: 1}, nil},
	{scenarios.Sizes{Services: 5000, Endpoints: 50}, []string{"shape.sharedPods=50"}},
}

// largeTime is when a subject of a large size is stopped.
const largeTime = 10 * time.Minute

func newPR(s streams) *cobra.Command {
	f := prFlags{}
	cmd := &cobra.Command{
		Use:   "pr --base VERSION|DIR --head VERSION|DIR",
		Short: "Judge a change of kube-proxy: what it costs, where the time goes, whether it does the same",
		Long: `Pr builds base and head, and compares them:

  1. what they do: the rules of random clusters (modes iptables-*), and where packets end;
  2. what they cost: both in turn, over the sizes of a scenario and several modes, until
     the main figures are precise or --budget is used;
  3. where the time goes: one profile of each at the largest size, if perf is there.

It writes a page, the data, and comment.md for a pull request. Base and head are
versions of kube-proxy, or folders with checkouts of Kubernetes, with suffixes such as
+gate:NAME=BOOL. With --of synclab they are revisions or checkouts of Synclab.

The exit status is 1 if a figure is shown to exceed its threshold (--max-slower), or
if packets or rules differ.`,
		Example: `  synclab pr --base v1.36.3 --head v1.37.2
  synclab pr --base ../base --head ../head --modes nftables
  synclab pr --base v1.37.2+gate:NFTablesNetlink=false --head v1.37.2 --modes nftables
  synclab pr --base v1.36.3 --head ../head --large --budget 1h
  synclab pr --base ../base --head ../head --matrix my-scenario.yaml -o github > comment.md`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd, s) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.base, "base", "", "`build` before the change: a version, or the folder of a checkout")
	flags.StringVar(&f.head, "head", "", "`build` with the change: a version, or the folder of a checkout")
	flags.StringVar(&f.program, "of", subject.KubeProxy, "`program` that changed: "+subject.KubeProxy+" or "+subject.Synclab)
	flags.StringVar(&f.matrix, "matrix", "pull-request", "`scenario` whose sweep has the sizes: a name of the library, or a .yaml file")
	flags.StringSliceVar(&f.modes, "modes", []string{"iptables-legacy", "nftables"}, "`list` of modes, separated by commas")
	flags.StringArrayVar(&f.gates, "gate", nil, "set a feature gate of both: `NAME=BOOL` (repeatable)")
	flags.BoolVar(&f.large, "large", false, "also observe 44,000 Services with one endpoint and 5,000 on the same 50 pods, once, stopped after ten minutes")
	flags.StringVar(&f.precision, "precision", "5%", "repeat until the 95 % interval of each main ratio is within this `share` of it")
	flags.DurationVar(&f.budget, "budget", 40*time.Minute, budgetText+"; at least three repetitions are made")
	flags.IntVar(&f.services, "services", 0, "`number` of Services of the largest size (default: the matrix's own, 10,000)")
	flags.IntVar(&f.clusters, "clusters", 60, "`number` of random clusters whose rules are compared, in modes iptables-*")
	f.thresholds.register(cmd, diff.DefaultThreshold)
	f.format.Register(cmd, terminal.GitHub)
	registerOut(cmd, &f.out, &f.force, "review", "a new one in runs/")
	for _, flag := range []string{"base", "head"} {
		if err := cmd.MarkFlagRequired(flag); err != nil {
			panic(err)
		}
	}
	terminal.Complete(cmd, "of", subject.KubeProxy, subject.Synclab)
	return cmd
}

// subjectOf is the subject of a build in a mode.
func (f *prFlags) subjectOf(side, build, mode string) string {
	suffixes := ""
	if stat, err := os.Stat(build); err != nil || !stat.IsDir() {
		build, suffixes, _ = strings.Cut(build, "+")
	}
	if stat, err := os.Stat(build); err == nil && stat.IsDir() {
		build = "src:" + side + "=" + build
	}
	name := f.program + "@" + build + "/" + mode
	if suffixes != "" {
		name += "+" + suffixes
	}
	for _, gate := range f.gates {
		name += "+gate:" + gate
	}
	return name
}

// reviewing is a review that runs.
type reviewing struct {
	*prFlags
	s        streams
	scenario *scenarios.Scenario
	pairs    [][2]string // of subjects, as given: with the folders of checkouts
	names    [][2]string // of the same, in records
	share    float64
	result   review.Review
}

func (f *prFlags) run(cmd *cobra.Command, s streams) (err error) {
	r := &reviewing{prFlags: f, s: s, result: review.Review{Program: f.program, Base: f.base, Head: f.head,
		Command: again(cmd, nil, [2]string{"out"}, [2]string{"force"}), Unprofiled: "they were not taken"}}
	if f.program != subject.KubeProxy && f.program != subject.Synclab {
		return badUsage(cmd, "--of %q: want %s or %s", f.program, subject.KubeProxy, subject.Synclab)
	}
	if r.share, err = parseShare(f.precision); err != nil || !(r.share > 0 && r.share < 1) {
		return badUsage(cmd, "--precision %q: want a share such as 5%% or 0.05", f.precision)
	}
	if f.budget <= 0 || f.clusters < 0 || f.services < 0 {
		return badUsage(cmd, "--budget %v, --clusters %d, --services %d: want more than 0, and the others at least 0", f.budget, f.clusters, f.services)
	}
	thresholds, err := f.thresholds.read(cmd)
	if err != nil {
		return err
	}
	for _, mode := range f.modes {
		pair := [2]string{f.subjectOf("base", f.base, mode), f.subjectOf("head", f.head, mode)}
		r.pairs = append(r.pairs, pair)
	}
	if len(r.pairs) == 0 {
		return badUsage(cmd, "--modes: want at least one")
	}
	if err := checkSubjects(cmd, r.subjects()); err != nil {
		return err
	}
	for _, pair := range r.pairs {
		r.names = append(r.names, [2]string{subject.Named(pair[0]).Name, subject.Named(pair[1]).Name})
	}
	if r.scenario, err = loadScenario(cmd.Context(), f.matrix, nil, scenarios.Sizes{Services: f.services}); err != nil {
		return err
	}
	began := time.Now()
	if f.out, err = freshFolder(cmd, f.out, "pr", f.force); err != nil {
		return err
	}
	if err := r.compare(cmd.Context()); err != nil {
		return err
	}
	err = r.measureAll(cmd.Context(), thresholds)
	if r.result.Measured == nil {
		return err
	}
	// What follows the measurement may fail or be interrupted: then the review is without it.
	r.result.Took = time.Since(began).Seconds()
	return errors.Join(err, r.write())
}

// execute runs subjects in a folder of the review, and adds the digest of its records.
func (r *reviewing) execute(ctx context.Context, folder string, o runOptions) (dir string, err error) {
	o.feed, o.out, o.force, o.config = raw.FeedAPI, filepath.Join(r.out, folder), r.force, config.New()
	fmt.Fprintf(r.s.err, "%s:\n", folder)
	if dir, err = o.runOnly(ctx, r.s); err != nil {
		return dir, notMeasured(r.s, dir, fmt.Errorf("%s: %w", folder, err))
	}
	digest, err := upstream.Digest(filepath.Join(dir, raw.RecordsFile))
	r.result.Digests = append(r.result.Digests, [2]string{folder + "/" + raw.RecordsFile, digest})
	return dir, err
}

// subjects are all subjects.
func (r *reviewing) subjects() (all []string) {
	for _, pair := range r.pairs {
		all = append(all, pair[:]...)
	}
	return all
}

// measureAll measures the matrix, large sizes and profiles.
func (r *reviewing) measureAll(ctx context.Context, thresholds diff.Options) error {
	largest, err := largestCell(r.scenario)
	if err != nil {
		return err
	}
	r.result.Primary = review.Primary(largest.Shape.Services)
	thresholds.OneRun, thresholds.Pairs, thresholds.Primary = true, r.names, r.result.Primary
	until := &bench.Until{Precision: r.share, Budget: r.budget, Imprecise: r.imprecise}
	dir, err := r.execute(ctx, "measured", runOptions{scenario: r.scenario, subjects: r.subjects(), until: until})
	if err != nil {
		return err
	}
	if r.result.Measured, err = diff.Compare(dir, dir, thresholds); err != nil {
		return err
	}
	if r.large {
		for _, size := range largeSizes {
			if err := r.observe(ctx, size.Sizes, size.sets, thresholds); err != nil {
				return err
			}
		}
	}
	return r.profile(ctx, largest)
}

// imprecise returns all cells while the interval of a main ratio is wider than wanted: they have the same number of
// repetitions.
func (r *reviewing) imprecise(dir string) (cells []map[string]string, err error) {
	d, err := diff.Compare(dir, dir, diff.Options{OneRun: true, Pairs: r.names})
	if err != nil {
		return nil, err
	}
	wide := false
	for _, row := range d.Rows {
		cells = append(cells, row.Cell.Params)
		if r.result.Primary(&row) && row.Ratio != nil && !row.Exact && !row.Before.Stopped && !row.After.Stopped {
			wide = wide || row.Low == nil || row.RepetitionsAfter < estimate.Enough || *row.High-*row.Low > 2*r.share**row.Ratio
		}
	}
	if !wide {
		return nil, nil
	}
	return cells, nil
}

// largestCell is the scenario of the cell with the most Services, the last one of several.
func largestCell(s *scenarios.Scenario) (*scenarios.Scenario, error) {
	cells, err := s.Cells()
	if err != nil {
		return nil, badInput(err)
	}
	largest := &cells[0].Scenario
	for i := range cells {
		if c := &cells[i].Scenario; c.Shape.Services >= largest.Shape.Services {
			largest = c
		}
	}
	return largest, nil
}

// observe measures a large size once.
func (r *reviewing) observe(ctx context.Context, size scenarios.Sizes, sets []string, thresholds diff.Options) error {
	scenario, err := loadScenario(ctx, r.matrix, sets, size)
	if err != nil {
		return err
	}
	if scenario, err = largestCell(scenario); err != nil {
		return err
	}
	folder := fmt.Sprintf("observed-%d-by-%d", size.Services, size.Endpoints)
	dir, err := r.execute(ctx, folder, runOptions{scenario: scenario, subjects: r.subjects(), reps: 1, maxTime: largeTime})
	if err != nil {
		return err
	}
	observed, err := diff.Compare(dir, dir, thresholds)
	r.result.Observed = append(r.result.Observed, observed)
	return err
}

// profile takes a profile of each subject in the largest cell.
func (r *reviewing) profile(ctx context.Context, largest *scenarios.Scenario) error {
	if err := profile.Check(); err != nil {
		r.result.Unprofiled = err.Error()
		return nil
	}
	dir, err := r.execute(ctx, "profiled", runOptions{scenario: largest, subjects: r.subjects(), reps: 1, profile: true})
	if err != nil {
		return err
	}
	runs, err := records.LoadAll([]string{dir})
	if err != nil {
		return err
	}
	moved, problems := profiles.Compare(records.Collect(runs), r.names)
	for _, problem := range problems {
		fmt.Fprintln(r.s.err, problem)
	}
	r.result.Moved, r.result.Unprofiled = moved, ""
	return nil
}

// compare compares what base and head do.
func (r *reviewing) compare(ctx context.Context) error {
	for i, pair := range r.pairs {
		if spec := subject.Named(r.names[i][0]); spec.Classic() && r.program == subject.KubeProxy && r.clusters > 0 {
			r.result.Checks = append(r.result.Checks, r.rules(ctx, pair, spec))
		}
		check, err := r.packets(ctx, r.modes[i], pair)
		if err != nil {
			return err
		}
		r.result.Checks = append(r.result.Checks, check)
	}
	return ctx.Err()
}

// rules compares the rules of random clusters.
func (r *reviewing) rules(ctx context.Context, pair [2]string, mode subject.Spec) review.Check {
	check := review.Check{What: fmt.Sprintf("rules of random clusters, iptables-%s", mode.Variant)}
	request := conform.Request{Workers: 2, Clusters: r.clusters, Seed: 1, Limit: conform.Constraint{Variant: mode.Variant}}
	sides := []*conform.Subject{&request.First, &request.Second}
	for i, name := range pair {
		spec, err := subject.Parse(name)
		var path, version string
		if err == nil {
			path, version, err = spec.Build(ctx, upstream.Options{Progress: r.s.progress})
		}
		if err != nil {
			check.Failed, check.Result = true, err.Error()
			return check
		}
		if minor := upstream.Minor(version); request.Minor == 0 || 0 < minor && minor < request.Minor {
			request.Minor = minor // clusters that both can serve
		}
		*sides[i] = conform.Subject{KubeProxy: true, Name: spec.Program(), Command: path, Variant: mode.Variant}
	}
	var last conform.Event
	first := ""
	shown := terminal.NewCounter(r.s.err, check.What, 0)
	err := request.Execute(ctx, r.s.err, []string{rulesWorker}, func(e conform.Event) {
		shown.Show(e.States, e.Total)
		if last = e; e.Failure != nil && first == "" {
			first = cmp.Or(e.Failure.Error, e.Failure.Text)
		}
	})
	shown.End()
	check.Result = fmt.Sprintf("%s of %s: %s", doc.Plural(last.States, "state"), doc.Plural(last.Clusters, "cluster"), doc.Plural(last.Unexplained, "difference"))
	switch {
	case err != nil:
		check.Failed, check.Result = true, err.Error()
	case last.Unexplained > 0:
		check.Differs = true
		check.Result += fmt.Sprintf(" in %s; the first: %s", doc.Plural(last.Differing, "state"), firstLines(first, 12))
	case last.NotCompared > 0 || last.States == 0:
		check.Failed = true
		check.Result += "; not compared to the end: " + firstLines(first, 3)
	}
	return check
}

// firstLines shortens a text.
func firstLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) > n {
		lines = append(lines[:n], "…")
	}
	return strings.Join(lines, "\n")
}

// packets compares where packets end.
func (r *reviewing) packets(ctx context.Context, mode string, pair [2]string) (check review.Check, err error) {
	check.What = "packets, " + mode
	scenario, err := loadScenario(ctx, verdictScenario, nil, scenarios.Sizes{})
	if err != nil {
		return check, err
	}
	dir, err := r.execute(ctx, "packets-"+mode, runOptions{scenario: scenario, subjects: pair[:], reps: 1})
	if err != nil {
		return check, err
	}
	runs, err := records.LoadAll([]string{dir})
	if err != nil {
		return check, err
	}
	answers := sections.Summarize(runs, comparison.ReportSLOs).PacketAnswers()
	check.Result = doc.Plural(answers.Packets, "packet")
	switch err := verdictOfPackets(answers); {
	case err == nil:
		check.Result += ", 0 differences"
		if unseen := answers.Unseen(); unseen != "" {
			check.Result += "; " + unseen
		}
	default:
		check.Failed = errors.As(err, new(*notCompared))
		check.Differs = !check.Failed
		check.Result += ": " + err.Error()
	}
	return check, nil
}

// write prints the review and writes its files.
func (r *reviewing) write() error {
	data := func(w io.Writer) error { return terminal.Format("json").Write(w, &r.result, nil) }
	for name, write := range map[string]func(io.Writer) error{reviewPage: r.result.Page, reviewComment: r.result.Markdown, reviewData: data} {
		if err := writePage(filepath.Join(r.out, name), write); err != nil {
			return err
		}
	}
	if err := r.format.Write(r.s.out, &r.result, r.format.Text(r.result.Write, r.result.Markdown)); err != nil {
		return err
	}
	fmt.Fprintf(r.s.err, "review: %s, comment: %s\n", shell.Line(filepath.Join(r.out, reviewPage)), shell.Line(filepath.Join(r.out, reviewComment)))
	if r.result.Bad() {
		return fmt.Errorf("the head is worse, or does something else: see above")
	}
	if slices.ContainsFunc(r.result.Checks, func(c review.Check) bool { return c.Failed }) {
		return &notCompared{errors.New("what both do was not compared to the end: see above")}
	}
	return nil
}
