package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/bench/machine"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/upstream"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/model"
)

// planModel are the flags for the basis of a plan: an existing cost model, or a calibration.
type planModel struct {
	model    modelFlags
	subjects subjectFlags
	today    string
	budget   time.Duration
	within   time.Duration
	asked    bench.CalibrationCell // the cluster that a calibration is for
}

// Limits of a plan.
const (
	// A calibration for a plan goes up to the asked size, within these numbers of Services.
	leastCalibrated, largestCalibrated = 4000, 16000
	// planningTime is the part of --within that is reserved for the plan itself.
	planningTime = 75 * time.Second
	// shortestBudget is the shortest time for a useful model of five subjects on two CPUs.
	shortestBudget = 75 * time.Second
)

func (f *planModel) register(cmd *cobra.Command) {
	f.subjects.register(cmd, "those of the cost model")
	f.model.register(cmd)
	flags := cmd.Flags()
	for _, flag := range []string{"max-time", "max-memory", "feed"} { // flags of a run, not of a plan
		if err := flags.MarkHidden(flag); err != nil {
			panic(err)
		}
	}
	flags.StringVar(&f.today, "today", "", "the `subject` in use today (default: the first of --subjects, else of the calibration's)")
	flags.DurationVar(&f.budget, "budget", 8*time.Minute, "`time` for a calibration, if there is no cost model yet; less if --within leaves less")
	flags.DurationVar(&f.within, "within", 10*time.Minute, "`time` for the whole plan, including the build of kube-proxy for a calibration")
	if err := cmd.RegisterFlagCompletionFunc("today", completeSubjects); err != nil {
		panic(err)
	}
	terminal.Complete(cmd, "budget")
	terminal.Complete(cmd, "within")
}

// check refuses wrong flags before anything starts. wanted are the subjects that the model must have, today's first;
// none: all that it has.
func (f *planModel) check(cmd *cobra.Command) (wanted []string, err error) {
	var unused runOptions
	if err := f.subjects.apply(cmd, &unused); err != nil {
		return nil, err
	}
	switch {
	case len(unused.kernels) > 0:
		return nil, badUsage(cmd, "--kernel is not for plan: a cost model is of the machine's own kernel, and a guest's times would not predict a node's")
	case f.budget <= 0:
		return nil, badUsage(cmd, "--budget %v: want more than 0", f.budget)
	case f.within <= 0:
		return nil, badUsage(cmd, "--within %v: want more than 0", f.within)
	}
	if f.today == "" {
		return f.subjects.names, nil
	}
	today, err := subject.Parse(f.today)
	if err != nil {
		return nil, badUsage(cmd, "--today: %w", err)
	}
	isToday := func(text string) bool {
		subject, err := subject.Parse(text)
		return err == nil && subject.Name == today.Name
	}
	if len(f.subjects.names) > 0 && !slices.ContainsFunc(f.subjects.names, isToday) {
		return nil, badUsage(cmd, "--today %s is not among --subjects", f.today)
	}
	return append([]string{f.today}, slices.DeleteFunc(slices.Clone(f.subjects.names), isToday)...), nil
}

// load returns the model, its folder, and the subjects to compare, today's first. If no model is valid here, it
// calibrates. began is the start of the whole command. pace compares the machine's speed with that of an earlier
// calibration.
func (f *planModel) load(ctx context.Context, s streams, wanted []string, began time.Time, seed uint64) (m *model.Model, dir string, subjects []string, pace string, err error) {
	f.model.kubeProxy = f.subjects.kubeProxy.Version
	if path := f.subjects.kubeProxy.Path; path != "" {
		if _, f.model.kubeProxy, err = upstream.KubeProxy(ctx, f.subjects.kubeProxy); err != nil {
			return nil, "", nil, "", badInput(fmt.Errorf("--kube-proxy %s: %w", path, err))
		}
	}
	m, dir, subjects, err = f.found(ctx, s, wanted)
	if err == nil { // the machine's speed may have changed since then
		return m, dir, subjects, m.At(machine.MeasurePace(ctx)), nil
	}
	if !errors.Is(err, errNoCalibration) {
		return nil, "", nil, "", err
	}
	_, reasons, _ := strings.Cut(err.Error(), "\n")
	fmt.Fprintf(s.err, "no calibration in %s/ is valid here: calibrating now\n", raw.RunsFolder)
	if reasons != "" {
		fmt.Fprintln(s.err, reasons)
	}
	if dir, err = f.calibrate(ctx, s, wanted, began, seed); err != nil {
		return nil, "", nil, "", err
	}
	here := f.model
	here.path = dir
	if m, dir, err = here.load(ctx, s, nil); err != nil { // compared reports subjects that were not measured
		return nil, "", nil, "", err
	}
	subjects, err = f.compared(s, m, dir, wanted)
	return m, dir, subjects, "", err
}

// found returns load's results for an existing model. It skips an interrupted calibration that cannot answer yet, unless
// it was named: the plan then calibrates again.
func (f *planModel) found(ctx context.Context, s streams, wanted []string) (m *model.Model, dir string, subjects []string, err error) {
	if m, dir, err = f.model.load(ctx, s, wanted); err != nil {
		return nil, "", nil, err
	}
	subjects, err = f.compared(s, m, dir, wanted)
	if err != nil && f.model.path == "" && m.Status != "" && m.Status != raw.StatusComplete {
		return nil, "", nil, fmt.Errorf("%w:\n%s is skipped, since it was interrupted: %w", errNoCalibration, dir, err)
	}
	return m, dir, subjects, err
}

// compared returns the subjects to compare, today's first.
func (f *planModel) compared(s streams, m *model.Model, dir string, wanted []string) ([]string, error) {
	var needed []string
	for _, text := range wanted {
		subject, err := subject.Parse(text)
		if err != nil {
			return nil, badInput(err)
		}
		needed = append(needed, subject.Name) // for exec:NAME=COMMAND, the model has only the name
	}
	subjects, remarks, err := answered(m, dir, needed, len(f.subjects.names) > 0)
	for _, remark := range remarks {
		fmt.Fprintln(s.err, "cost model:", remark)
	}
	return subjects, err
}

// interrupted describes the use of an interrupted calibration in folder dir. The same command finds it, and answers from
// it if it can.
func (f *planModel) interrupted(dir string, wanted []string) string {
	again := fmt.Sprintf("the measurements until then are too few for an answer: the same command starts again (records in %s)", dir)
	m, _, err := model.Load(dir, model.Here{Elsewhere: true})
	if err != nil {
		return again
	}
	if _, err := f.compared(streams{err: io.Discard}, m, dir, wanted); err != nil {
		return again
	}
	return fmt.Sprintf("the measurements until then, and their model, are in %s: the same command answers from them; remove the folder to measure again", dir)
}

// answered returns the subjects to compare, today's first: the needed ones and, unless they were chosen, all others that
// the model can answer about. A needed subject without an answer is bad input. If none is needed, the first subject that
// was to be calibrated is in use today, and needed.
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
			return nil, nil, badInput(fmt.Errorf("the calibration in %s has no answer for %s, %s: %w; measure it with `synclab calibrate --subjects %s`, with a larger --budget if it was too short, or name another subject with --today or --subjects",
				dir, name, which, lacking, strings.Join(needed, ",")))
		}
	}
	subjects = slices.Clone(needed)
	for _, name := range all {
		if chosen || slices.Contains(subjects, name) {
			continue
		}
		if lacking := m.Answers(name); lacking != nil {
			remarks = append(remarks, fmt.Sprintf("%s is omitted: %v", name, lacking))
			continue
		}
		subjects = append(subjects, name)
	}
	return subjects, remarks, nil
}

// What the fit of a quantity needs to be used without a remark.
const (
	fewestPoints = 4   // sizes, and numbers of changed Services
	largestError = 0.3 // relative, at sizes excluded from the fit
)

// thin returns remarks on subjects with little data in the model, and on default subjects without any.
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
				remarks = append(remarks, fmt.Sprintf("%s: the fit of its %s syncs has %d points, and an error of %.0f %% at sizes excluded from the fit: calibrate longer, on an idle machine",
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

// calibrate measures the wanted subjects, or the default ones, in the remaining time. It returns the folder.
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
		return "", errors.New("no subject can be calibrated here; `synclab doctor` shows what is missing")
	}
	budget := calibrationTime(f.budget, f.within-time.Since(began))
	if budget < f.budget {
		fmt.Fprintf(s.err, "%v of --within have passed: calibrating for %v instead of %v\n", time.Since(began).Round(time.Second), budget, f.budget)
	}
	o := bench.CalibrateOptions{Budget: budget, Seed: seed, Asked: f.asked, MaxServices: min(largestCalibrated, max(leastCalibrated, f.asked.Services))}
	o.Run.Subjects, o.Run.KubeProxy, o.Run.ExecEnv = wanted, f.subjects.kubeProxy, f.subjects.execEnv
	if f.subjects.execConfig != "" {
		text, err := outfile.ReadInput(ctx, f.subjects.execConfig)
		if err != nil {
			return "", badInput(fmt.Errorf("--exec-config: %w", err))
		}
		o.Run.ExecConfig = string(text)
	}
	dir, err := calibrate(ctx, streams{in: s.in, out: s.err, err: s.err}, o)
	if ctx.Err() == nil {
		return dir, err
	}
	if dir != "" {
		fmt.Fprintln(s.err, f.interrupted(dir, asked))
	}
	return "", ctx.Err()
}

// calibrationTime returns the time for a calibration when left is the time for the whole plan.
func calibrationTime(budget, left time.Duration) time.Duration {
	return max(min(budget, left-planningTime), min(budget, shortestBudget)).Round(time.Second)
}

// withUsual returns today's subject, if any, and the default subjects of a calibration.
func withUsual(today []string) []string {
	all := slices.Clone(today)
	for _, name := range calibrated {
		if about, err := subject.Parse(name); err == nil && about.Available() == nil && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// buildKubeProxy builds kube-proxy if a subject needs it: that takes minutes, once, before the calibration. If the build
// fails, it removes kube-proxy's subjects unless they were chosen.
func (f *planModel) buildKubeProxy(ctx context.Context, s streams, wanted []string, chosen bool) ([]string, error) {
	isKubeProxy := func(text string) bool {
		about, err := subject.Parse(text)
		return err == nil && about.Proxier == subject.KubeProxy
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
	fmt.Fprintf(s.err, "continuing without kube-proxy: %v\n", err)
	return slices.DeleteFunc(slices.Clone(wanted), isKubeProxy), nil
}
