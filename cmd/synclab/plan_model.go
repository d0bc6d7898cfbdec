package main

import (
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
	"synclab/bench/upstream"
	"synclab/reports/model"
)

// planModel are the flags that say what a plan rests on: a cost model that is there, or a calibration.
type planModel struct {
	model    modelFlags
	subjects subjectFlags
	today    string
	budget   time.Duration
	within   time.Duration
	asked    bench.CalibrationCell // what a calibration is to know most of
}

// What a plan may take.
const (
	// A calibration for a plan goes up to what is asked for, within these numbers of Services.
	leastCalibrated, largestCalibrated = 4000, 16000
	// planningTime of --within is kept for the plan itself.
	planningTime = 75 * time.Second
	// shortestBudget makes a model of five subjects on two CPUs that is worth something.
	shortestBudget = 75 * time.Second
)

func (f *planModel) register(cmd *cobra.Command) {
	f.subjects.register(cmd, "those of the cost model")
	f.model.register(cmd)
	flags := cmd.Flags()
	for _, flag := range []string{"max-time", "max-memory", "feed"} { // of a run, not of a plan
		if err := flags.MarkHidden(flag); err != nil {
			panic(err)
		}
	}
	flags.StringVar(&f.today, "today", "", "the `subject` that is in use today (default: the first of --subjects, or else of the calibration's)")
	flags.DurationVar(&f.budget, "budget", 8*time.Minute, "`time` that a calibration may take, if there is no cost model yet; less where --within leaves less")
	flags.DurationVar(&f.within, "within", 10*time.Minute, "`time` that all of it may take, building kube-proxy for a calibration included")
	if err := cmd.RegisterFlagCompletionFunc("today", completeSubjects); err != nil {
		panic(err)
	}
	complete(cmd, "budget")
	complete(cmd, "within")
}

// check refuses what is wrong before anything starts. wanted are the subjects that have to be in the model, today's first;
// none: all that it has.
func (f *planModel) check(cmd *cobra.Command) (wanted []string, err error) {
	var unused runOptions
	if err := f.subjects.apply(cmd, &unused); err != nil {
		return nil, err
	}
	switch {
	case f.budget <= 0:
		return nil, badUsage(cmd, "--budget %v: want more than 0", f.budget)
	case f.within <= 0:
		return nil, badUsage(cmd, "--within %v: want more than 0", f.within)
	}
	if f.today == "" {
		return f.subjects.names, nil
	}
	today, err := bench.ParseSubject(f.today)
	if err != nil {
		return nil, badUsage(cmd, "--today: %w", err)
	}
	isToday := func(text string) bool {
		subject, err := bench.ParseSubject(text)
		return err == nil && subject.Name == today.Name
	}
	if len(f.subjects.names) > 0 && !slices.ContainsFunc(f.subjects.names, isToday) {
		return nil, badUsage(cmd, "--today %s is not among --subjects", f.today)
	}
	return append([]string{f.today}, slices.DeleteFunc(slices.Clone(f.subjects.names), isToday)...), nil
}

// load gives the model, where it is, and the subjects to compare, today's first. Without one that answers here, it
// calibrates now. began is when all of it did. pace says how fast the machine is beside an earlier calibration.
func (f *planModel) load(ctx context.Context, s streams, wanted []string, began time.Time, seed uint64) (m *model.Model, dir string, subjects []string, pace string, err error) {
	f.model.kubeProxy = f.subjects.kubeProxy.Version
	if path := f.subjects.kubeProxy.Path; path != "" {
		if _, f.model.kubeProxy, err = upstream.KubeProxy(ctx, f.subjects.kubeProxy); err != nil {
			return nil, "", nil, "", badInput(fmt.Errorf("--kube-proxy %s: %w", path, err))
		}
	}
	m, dir, subjects, err = f.found(ctx, s, wanted)
	if err == nil { // how fast this machine was then may not be how fast it is now
		return m, dir, subjects, m.At(bench.MeasurePace(ctx)), nil
	}
	if !errors.Is(err, errNoCalibration) {
		return nil, "", nil, "", err
	}
	_, reasons, _ := strings.Cut(err.Error(), "\n")
	fmt.Fprintf(s.err, "no calibration in %s/ answers here: calibrating now\n", runsFolder)
	if reasons != "" {
		fmt.Fprintln(s.err, reasons)
	}
	if dir, err = f.calibrate(ctx, s, wanted, began, seed); err != nil {
		return nil, "", nil, "", err
	}
	here := f.model
	here.path = dir
	if m, dir, err = here.load(ctx, s, nil); err != nil { // a subject that it could not measure is told of below
		return nil, "", nil, "", err
	}
	subjects, err = f.compared(s, m, dir, wanted)
	return m, dir, subjects, "", err
}

// found is what load gives where there is a model already. One of a calibration that was interrupted before it could answer
// is passed over, unless it was named: to calibrate again is what it was waiting for.
func (f *planModel) found(ctx context.Context, s streams, wanted []string) (m *model.Model, dir string, subjects []string, err error) {
	if m, dir, err = f.model.load(ctx, s, wanted); err != nil {
		return nil, "", nil, err
	}
	subjects, err = f.compared(s, m, dir, wanted)
	if err != nil && f.model.path == "" && m.Status != "" && m.Status != bench.StatusComplete {
		return nil, "", nil, fmt.Errorf("%w:\n%s is passed over, since it was interrupted: %w", errNoCalibration, dir, err)
	}
	return m, dir, subjects, err
}

// compared are the subjects that a model is asked about, today's first.
func (f *planModel) compared(s streams, m *model.Model, dir string, wanted []string) ([]string, error) {
	var needed []string
	for _, text := range wanted {
		subject, err := bench.ParseSubject(text)
		if err != nil {
			return nil, badInput(err)
		}
		needed = append(needed, subject.Name) // of exec:NAME=COMMAND, the model knows the name
	}
	subjects, remarks, err := answered(m, dir, needed, len(f.subjects.names) > 0)
	for _, remark := range remarks {
		fmt.Fprintln(s.err, "cost model:", remark)
	}
	return subjects, err
}

// interrupted says what comes of a calibration that was ended before it was done, whose folder is dir: the same command finds
// it, and answers from it if it can.
func (f *planModel) interrupted(dir string, wanted []string) string {
	again := fmt.Sprintf("what was measured until then is too little to answer from: the same command begins again (records in %s)", dir)
	m, _, err := model.Load(dir, model.Here{Elsewhere: true})
	if err != nil {
		return again
	}
	if _, err := f.compared(streams{err: io.Discard}, m, dir, wanted); err != nil {
		return again
	}
	return fmt.Sprintf("what was measured until then, and a model of it, is in %s: the same command answers from that; to measure again, remove it", dir)
}

// answered are the subjects to compare, today's first: those that are needed, and unless these were chosen all others that
// the model can be asked about. A needed one that it cannot be asked about is bad input, since an answer about another subject
// would be none. Where none is needed, the first that was to be calibrated is in use today, and needed.
func answered(m *model.Model, dir string, needed []string, chosen bool) (subjects, remarks []string, err error) {
	all := slices.Clone(m.Asked)
	for _, s := range m.Subjects {
		if !slices.Contains(all, s.Name) {
			all = append(all, s.Name)
		}
	}
	if len(needed) == 0 {
		needed = all[:1]
	}
	for _, name := range needed {
		if lacking := m.Answers(name); lacking != nil {
			which := "which was chosen"
			if name == needed[0] {
				which = "which is in use today"
			}
			return nil, nil, badInput(fmt.Errorf("the calibration in %s does not answer about %s, %s: %w; measure it with `synclab calibrate --subjects %s`, longer if that was too short (--budget), or name another with --today or --subjects",
				dir, name, which, lacking, strings.Join(needed, ",")))
		}
	}
	subjects = slices.Clone(needed)
	for _, name := range all {
		if chosen || slices.Contains(subjects, name) {
			continue
		}
		if lacking := m.Answers(name); lacking != nil {
			remarks = append(remarks, fmt.Sprintf("%s is left out: %v", name, lacking))
			continue
		}
		subjects = append(subjects, name)
	}
	return subjects, remarks, nil
}

// What a law should rest on, to be relied on without a remark.
const (
	fewestPoints = 4   // sizes, and numbers of changed Services
	largestError = 0.3 // relative, at sizes that were left out of the fit
)

// thin are remarks on subjects that the model knows little of, or nothing though they are calibrated where nobody chooses.
func thin(m *model.Model, subjects []string, chosen bool) []string {
	var remarks []string
	for _, s := range m.Subjects {
		if !slices.Contains(subjects, s.Name) {
			continue
		}
		for i := range s.Terms {
			term := &s.Terms[i]
			if term.Quantity != model.Total || term.Kind != model.Full && term.Kind != model.Partial {
				continue
			}
			if term.Points < fewestPoints || term.Score > largestError {
				remarks = append(remarks, fmt.Sprintf("%s: what is said of its %s syncs rests on %d points, and missed sizes that were left out by %.0f %%: calibrate longer, on a machine that is idle",
					s.Name, term.Kind, term.Points, 100*term.Score))
				break
			}
		}
	}
	if chosen {
		return remarks
	}
	for _, name := range withUsual(nil) {
		if !slices.Contains(subjects, name) {
			remarks = append(remarks, fmt.Sprintf("%s is not in the cost model: 'synclab calibrate' measures it, if the budget is large enough", name))
		}
	}
	return remarks
}

// calibrate measures wanted subjects, or the usual ones, in what is left of the time, and says in which folder that is.
func (f *planModel) calibrate(ctx context.Context, s streams, wanted []string, began time.Time, seed uint64) (string, error) {
	chosen, asked := len(f.subjects.names) > 0, wanted
	if !chosen {
		wanted = withUsual(wanted)
	}
	wanted, err := f.buildKubeProxy(ctx, s, wanted, chosen)
	if err != nil {
		return "", err
	}
	if len(wanted) == 0 {
		return "", errors.New("there is nothing that could be calibrated here; `synclab doctor` says what is missing")
	}
	budget := calibrationTime(f.budget, f.within-time.Since(began))
	if budget < f.budget {
		fmt.Fprintf(s.err, "%v of --within are used: calibrating for %v instead of %v\n", time.Since(began).Round(time.Second), budget, f.budget)
	}
	o := bench.CalibrateOptions{Budget: budget, Seed: seed, Asked: f.asked, MaxServices: min(largestCalibrated, max(leastCalibrated, f.asked.Services))}
	o.Run.Subjects, o.Run.KubeProxy, o.Run.Out = wanted, f.subjects.kubeProxy, newPlanFolder("calibrate")
	if f.subjects.execConfig != "" {
		text, err := os.ReadFile(f.subjects.execConfig)
		if err != nil {
			return "", badInput(fmt.Errorf("--exec-config: %w", err))
		}
		o.Run.ExecConfig = string(text)
	}
	dir := o.Run.Out
	err = calibrate(ctx, streams{in: s.in, out: s.err, err: s.err}, o)
	if ctx.Err() != nil {
		fmt.Fprintln(s.err, f.interrupted(dir, asked))
		return "", ctx.Err()
	}
	return dir, err
}

// calibrationTime is how long a calibration may take when so much is left for all.
func calibrationTime(budget, left time.Duration) time.Duration {
	return max(min(budget, left-planningTime), min(budget, shortestBudget)).Round(time.Second)
}

// withUsual are the subjects of a calibration where none were chosen but, maybe, today's.
func withUsual(today []string) []string {
	all := slices.Clone(today)
	for _, name := range calibrated {
		if about, err := bench.ParseSubject(name); err == nil && about.Available() == nil && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// buildKubeProxy makes sure that there is one, where one is wanted: that takes minutes, once, and what is left of the time is
// the calibration's. Where it cannot be had, subjects that nobody chose are left out.
func (f *planModel) buildKubeProxy(ctx context.Context, s streams, wanted []string, chosen bool) ([]string, error) {
	isKubeProxy := func(text string) bool {
		subject, err := bench.ParseSubject(text)
		return err == nil && subject.Proxier == bench.KubeProxy
	}
	if !slices.ContainsFunc(wanted, isKubeProxy) {
		return wanted, nil
	}
	o := f.subjects.kubeProxy
	o.Progress = func(text string) { fmt.Fprintln(s.err, text) }
	_, _, err := upstream.KubeProxy(ctx, o)
	switch {
	case err == nil:
		return wanted, nil
	case chosen || isKubeProxy(f.today) || ctx.Err() != nil:
		return nil, err
	}
	fmt.Fprintf(s.err, "without kube-proxy: %v\n", err)
	return slices.DeleteFunc(slices.Clone(wanted), isKubeProxy), nil
}

// newPlanFolder is a folder in runs/ that is not there yet.
func newPlanFolder(kind string) string {
	name := filepath.Join(runsFolder, kind+"-"+time.Now().Format("20060102-150405"))
	folder := name
	for n := 2; ; n++ {
		if _, err := os.Stat(folder); errors.Is(err, os.ErrNotExist) {
			return folder
		}
		folder = fmt.Sprintf("%s-%d", name, n)
	}
}
