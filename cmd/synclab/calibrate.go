package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench"
	"synclab/bench/raw"
	"synclab/bench/shell"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/model"
)

// calibrated are the default subjects of a calibration: what clusters run, and what they might run.
var calibrated = []string{"kube-proxy/iptables-legacy", "kube-proxy/iptables-nft", "kube-proxy/nftables", "synclab/iptables-legacy", "synclab/nftables"}

// calibrateFlags are the flags of `synclab calibrate`.
type calibrateFlags struct {
	subjects subjectFlags
	o        bench.CalibrateOptions
	again    string // folder of an earlier calibration
}

func (f *calibrateFlags) register(cmd *cobra.Command) {
	f.subjects.register(cmd, "kube-proxy's three, synclab/iptables-legacy and synclab/nftables")
	flags := cmd.Flags()
	for _, flag := range []string{"max-time", "feed"} { // --budget limits the time; all subjects have the same feed
		if err := flags.MarkHidden(flag); err != nil {
			panic(err)
		}
	}
	flags.DurationVar(&f.o.Budget, "budget", 5*time.Minute, "`time` for the whole calibration")
	flags.IntVar(&f.o.MaxServices, "max-services", 0, "Services of the largest cell: a `number` (default: 8000; with --hold-out 10000)")
	flags.BoolVar(&f.o.HoldOut, "hold-out", false, "fit to a fifth of --max-services, and compare larger cells with their predictions")
	flags.Uint64Var(&f.o.Seed, "seed", 1, "`seed` of the clusters, of their changes, and of the fit")
	flags.StringVar(&f.o.Run.Out, "out", "", "`folder` of the run (default: a new one in runs/)")
	flags.BoolVar(&f.o.Run.Force, "force", false, "replace the run that is in the folder --out")
	flags.StringVar(&f.again, "fit", "", "`folder` of an earlier calibration: its model is fitted again, and nothing is measured")
	if err := errors.Join(cmd.MarkFlagDirname("out"), cmd.MarkFlagDirname("fit")); err != nil {
		panic(err)
	}
	moreFlags(cmd, "fit")
	for _, other := range []string{"budget", "max-services", "subjects", "out", "force"} {
		cmd.MarkFlagsMutuallyExclusive("fit", other)
	}
	for _, flag := range []string{"budget", "max-services", "seed"} {
		terminal.Complete(cmd, flag)
	}
}

// read checks the flags.
func (f *calibrateFlags) read(cmd *cobra.Command) (bench.CalibrateOptions, error) {
	var run runOptions
	if err := f.subjects.apply(cmd, &run); err != nil {
		return f.o, err
	}
	switch {
	case run.maxTime > 0:
		return f.o, badUsage(cmd, "--max-time is not for calibrate: limit the time with --budget")
	case len(run.kernels) > 0:
		return f.o, badUsage(cmd, "--kernel is not for calibrate: a cost model is of the machine's own kernel, and a guest's times would not predict a node's")
	case f.o.Budget <= 0:
		return f.o, badUsage(cmd, "--budget %v: want more than 0", f.o.Budget)
	case cmd.Flags().Changed("max-services") && f.o.MaxServices < 20:
		return f.o, badUsage(cmd, "--max-services %d: want at least 20, for two sizes", f.o.MaxServices)
	case f.o.HoldOut && cmd.Flags().Changed("max-services") && f.o.MaxServices < 100:
		return f.o, badUsage(cmd, "--max-services %d: want at least 100 with --hold-out, for two sizes to fit", f.o.MaxServices)
	case f.o.Run.Force && f.o.Run.Out == "":
		return f.o, badUsage(cmd, "--force replaces the run in --out, which is not given")
	}
	o := f.o
	if o.Run.Subjects = run.subjects; len(o.Run.Subjects) == 0 {
		o.Run.Subjects = withTools(cmd, calibrated)
	}
	o.Run.Feed, o.Run.KubeProxy, o.Run.ExecConfig, o.Run.ExecEnv, o.Run.MaxMemory = run.feed, run.kubeProxy, run.execConfig, run.execEnv, run.maxMemory
	return o, nil
}

func newCalibrate(s streams) *cobra.Command {
	var flags calibrateFlags
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure small clusters and fit what larger ones would cost",
		Long: `Calibrate measures full syncs into empty tables and over existing rules, single
changes and bursts of changes, the subjects in turn, until --budget is used. It
begins with small clusters. The next cluster is always where the cost model so far
is least certain, up to --max-services and as the time allows. Then it fits a cost
model for each subject: durations and phases of a sync, memory, rules and first
packets. It keeps the model with the run as ` + model.File + `. The model is for this
kernel, these tools and this processor.

--hold-out tests the model: fitted to a fifth of --max-services, it predicts larger
clusters, with other endpoints and of another shape. The errors are printed by
quantity, by subject and by distance from the fit, and kept in ` + model.File + `.

Ctrl-C keeps what was measured until then, and its model.`,
		Example: `  synclab calibrate
  synclab calibrate --subjects kube-proxy/nftables,synclab/nftables --budget 2m
  synclab calibrate --hold-out --max-services 10000 --budget 18m`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := flags.read(cmd)
			if err != nil {
				return err
			}
			if flags.again != "" {
				return writeModel(s, flags.again, o.HoldOut, model.FitOptions{Seed: o.Seed})
			}
			_, err = calibrate(cmd.Context(), s, o)
			return err
		},
	}
	flags.register(cmd)
	return cmd
}

// calibrate measures, fits the cost model and prints it. It returns the folder, also with an error, unless nothing was
// measured.
func calibrate(ctx context.Context, s streams, o bench.CalibrateOptions) (dir string, err error) {
	if terminal.Descriptor(s.err) < 0 { // workers write to it, too
		s.err = &terminal.Turns{W: s.err}
	}
	fit := model.FitOptions{Seed: o.Seed}
	o.Run.Command, o.Run.WorkerArgs, o.Run.ProxyArgs, o.Run.Stderr = commandLine(os.Args), []string{"worker"}, []string{"proxy"}, s.err
	o.Judge = func(subject string, records []raw.Record, asked bench.CalibrationCell, cells []bench.CalibrationCell) []bench.Judgement {
		return model.Judge(subject, records, fit, asked, cells)
	}
	shown := terminal.NewProgress(s.err)
	o.Run.Progress = shown.Show
	fmt.Fprintf(s.err, "seed %d, budget %v\n", o.Seed, o.Budget)
	if busy := bench.LoadAverage(); busy > float64(runtime.NumCPU())/2 {
		fmt.Fprintf(s.err, "the machine is busy: a load of %.1f on %d CPUs; times will vary, and intervals will be wide\n", busy, runtime.NumCPU())
	}
	dir, err = bench.Calibrate(ctx, o)
	shown.End()
	if dir == "" {
		return "", err
	}
	return dir, errors.Join(err, writeModel(s, dir, o.HoldOut, fit))
}

// writeModel fits the cost model and prints it.
func writeModel(s streams, dir string, holdOut bool, o model.FitOptions) error {
	run, records, err := raw.ReadRun(dir)
	if err != nil {
		return err
	}
	m, err := model.Fit(run, records, o)
	if err != nil {
		return fmt.Errorf("fit the cost model to %s: %w", dir, err)
	}
	if holdOut {
		if m.Validation, err = model.Validate(run, records, 0, o); err != nil {
			fmt.Fprintln(s.err, err)
		}
	}
	if err := errors.Join(m.Write(dir), m.WriteTable(s.out)); err != nil {
		return err
	}
	if m.Validation != nil {
		fmt.Fprintln(s.out)
		if err := m.Validation.WriteTable(s.out); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(s.out, "\n%s/%s\n'synclab report %s' shows the measurements\n", dir, model.File, shell.Line(dir))
	return err
}
