package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/agreement"
	"synclab/reports/model"
)

func newSimulate(s streams) *cobra.Command {
	var (
		format terminal.Format
		from   modelFlags
		o      agreement.Options
		page   string
	)
	cmd := &cobra.Command{
		Use:   "simulate [RUN]",
		Short: "Compare the simulated sync loop with a run",
		Long: `Simulate replays the changes of a run, at their due times, through a simulation of the
sync loop in virtual time, with each subject's settings, many times. It compares the
simulated network programming latency with the measured one: once with the durations
of the run's own syncs, which tests the loop alone, and once with the cost model of a
calibration, which has no data of the run.

Without an argument it uses the newest run in ` + raw.RunsFolder + `/. The scenario agreement makes
a suitable run.`,
		Example: `  synclab simulate
  synclab compare agreement --subjects kube-proxy/nftables,synclab/nftables --out runs/agreement
  synclab simulate runs/agreement --page agreement.html
  synclab simulate runs/agreement --model runs/calibrate-20260101-120000 -o json`,
		Args: argCount(0, 1, "a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.Seeds < 1 {
				return badUsage(cmd, "--seeds %d: want at least 1", o.Seeds)
			}
			dir := ""
			if len(args) == 1 {
				dir = args[0]
			} else {
				newest, err := newestRun(raw.RunsFolder)
				if err != nil {
					return badInput(err)
				}
				dir = newest
			}
			if _, err := os.Stat(filepath.Join(dir, "run.json")); err != nil {
				return badUsage(cmd, "%s is not the folder of a run: %w", dir, err)
			}
			return agree(s, dir, from, o, func(a *agreement.Agreement) error {
				if err := format.Write(s.out, a, a.Table); err != nil || page == "" {
					return err
				}
				return writePage(page, a.Page)
			})
		},
	}
	format.Register(cmd)
	from.register(cmd)
	flags := cmd.Flags()
	registerPage(cmd, &page)
	flags.IntVar(&o.Seeds, "seeds", 50, "`number` of simulations of each repetition")
	flags.Uint64Var(&o.Seed, "seed", 1, "the first `seed`")
	for _, flag := range []string{"seeds", "seed"} {
		terminal.Complete(cmd, flag)
	}
	cmd.ValidArgsFunction = completeRuns
	return cmd
}

// agree compares the run with the simulation and shows the result.
func agree(s streams, dir string, from modelFlags, o agreement.Options, show func(*agreement.Agreement) error) error {
	var err error
	var remarks []string
	if o.Model, remarks, err = modelOfRun(dir, from); err != nil {
		return err
	}
	for _, remark := range remarks {
		fmt.Fprintln(s.err, "cost model:", remark)
	}
	a, err := agreement.Build(dir, o)
	if err != nil {
		return err
	}
	return show(a)
}

// modelOfRun returns the cost model to predict a run: the named one, or the newest one from the run's machine and
// versions. It may lack some of the run's subjects. nil: there is none, and a remark says so.
func modelOfRun(dir string, from modelFlags) (*model.Model, []string, error) {
	run, _, err := raw.ReadRun(dir)
	if err != nil {
		return nil, nil, badInput(err)
	}
	here := model.Here{Versions: run.Versions, Machine: run.Machine, Elsewhere: from.elsewhere}
	if from.path != "" {
		return loadFor(run, from.path, here)
	}
	path, err := newestModel(raw.RunsFolder, model.Here{Versions: run.Versions, Machine: run.Machine, Elsewhere: from.elsewhere, Subjects: run.Subjects})
	if err != nil { // retry with any of the subjects
		path, err = newestModel(raw.RunsFolder, here)
	}
	if err != nil {
		return nil, []string{"no cost model fits the run; only its own sync times are compared. 'synclab calibrate' makes one"}, nil
	}
	m, remarks, err := loadFor(run, path, here)
	return m, append([]string{path}, remarks...), err
}

// loadFor loads a model for the subjects of a run that it has.
func loadFor(run raw.Run, path string, here model.Here) (*model.Model, []string, error) {
	all := here
	all.Elsewhere = true
	m, _, err := model.Load(path, all)
	if err != nil {
		return nil, nil, badInput(err)
	}
	for _, name := range run.Subjects {
		if _, err := m.Subject(name); err == nil {
			here.Subjects = append(here.Subjects, name)
		}
	}
	if len(here.Subjects) == 0 {
		return nil, nil, badInput(fmt.Errorf("cost model %s: %w", path, errors.New("it has none of the run's subjects")))
	}
	m, remarks, err := model.Load(path, here)
	if err != nil {
		return nil, nil, badInput(err)
	}
	// A model that was fitted before ToNode was part of models still has the records for it.
	if lacking(m, here.Subjects) {
		if filepath.Base(path) == model.File {
			path = filepath.Dir(path)
		}
		if calibration, records, err := raw.ReadRun(path); err == nil {
			ways := model.ToNode(calibration, records)
			for _, s := range m.Subjects {
				s.ToNode = cmp.Or(s.ToNode, ways[s.Name])
			}
		}
	}
	return m, remarks, nil
}

// lacking reports whether the model has no ToNode of one of the subjects.
func lacking(m *model.Model, subjects []string) bool {
	return slices.ContainsFunc(m.Subjects, func(s *model.Subject) bool { return s.ToNode == nil && slices.Contains(subjects, s.Name) })
}
