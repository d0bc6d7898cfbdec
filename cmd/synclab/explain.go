package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"synclab/bench/lab/shell"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/verify/reproduce"
	"synclab/cmd/synclab/terminal"
	"synclab/reports/profiles"
	"synclab/reports/records"
)

func newExplain(s streams) *cobra.Command {
	var format terminal.Format
	var reproducer, subject string
	var budget time.Duration
	cmd := &cobra.Command{
		Use:   "explain [RUN]",
		Short: "Say which functions take the time of syncs, and which grow faster than the cluster",
		Long: `Explain reads the profiles of a run with --profile. For each subject and kind of sync
it prints the functions with most time, those of the kernel, of tools and of the
proxier apart. If the run has several sizes, it fits the time of each function: what
share of a sync has which exponent, which function makes the sync grow faster than the
cluster, and from which size on that rules. Without an argument it uses the newest run
in ` + raw.RunsFolder + `/. The run's page has the same tables and flame graphs.

With --reproducer it writes instead all that repeats the slowest call of a tool without
Synclab: its input, and a shell script that gives it to the tool in a new network namespace.
It runs the script, and makes the input smaller while the call stays superlinear.

The profiles are in the run's folder: go tool pprof -http : RUN/profiles/FILE.`,
		Example: `  synclab compare size-sweep --services 2000 --profile --subjects kube-proxy/nftables
  synclab explain
  synclab explain runs/sweep -o json
  synclab explain runs/sweep --reproducer slow --subject kube-proxy/iptables-nft
  synclab explain runs/sweep --reproducer slow --budget 10m   # makes the input smaller for longer`,
		Args: argCount(0, 1, "a run"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				newest, err := newestRun(raw.RunsFolder)
				if err != nil {
					return badInput(err)
				}
				args = []string{newest}
			}
			if reproducer != "" {
				return writeReproducer(cmd.Context(), s, args[0], reproducer, subject, budget)
			}
			if subject != "" || cmd.Flags().Changed("budget") {
				return badUsage(cmd, "--subject and --budget are only for --reproducer")
			}
			runs, err := records.LoadAll(args)
			if err != nil {
				return badInput(err)
			}
			collected := records.Collect(runs)
			report, problems := profiles.Read(collected)
			for _, problem := range problems {
				fmt.Fprintln(s.err, problem)
			}
			if report == nil {
				return badInput(errors.New(args[0] + " has no profiles: measure with --profile"))
			}
			return format.Write(s.out, report, report.Document(records.Title(collected)).Text)
		},
	}
	format.Register(cmd)
	cmd.Flags().StringVar(&reproducer, "reproducer", "", "write the input of the slowest call of a tool, and a script that repeats it, into a new `folder`")
	cmd.Flags().StringVar(&subject, "subject", "", "with --reproducer: the `subject` whose slowest call is meant (default: any)")
	cmd.Flags().DurationVar(&budget, "budget", 2*time.Minute, budgetText+", with --reproducer: calls with smaller inputs; 0: none")
	terminal.CompleteBy(cmd, "subject", completeSubjects)
	cmd.ValidArgsFunction = completeFolder
	return cmd
}

// writeReproducer writes and tries a reproducer.
func writeReproducer(ctx context.Context, s streams, dir, out, subject string, budget time.Duration) error {
	c, err := reproduce.Find(dir, subject)
	if err != nil {
		return badInput(err)
	}
	if err := c.Write(out); err != nil {
		return badInput(err)
	}
	fmt.Fprintf(s.out, "%s with %d Services: %s took %.3g s of the run\n", c.Record.Subject, c.Record.Services, c.Command, c.Record.Value)
	if own, err := outfile.Own(dir, filepath.Join(dir, raw.RunFile)); err != nil {
		return err
	} else if !own {
		_, err := fmt.Fprintf(s.out, "not run, since the run belongs to another user: look at what is in %s, then run sh %s\n", out, shell.Line(filepath.Join(out, reproduce.ScriptFile)))
		return err
	}
	whole, err := reproduce.Measure(ctx, out, reproduce.InputFile)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.out, "without synclab: %.3g s, of CPU %.3g s, by sh %s\n", whole.Seconds, whole.CPU, shell.Line(filepath.Join(out, reproduce.ScriptFile)))
	if budget <= 0 {
		return nil
	}
	shrinking, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	small, err := c.Shrink(shrinking, out, s.progress)
	switch {
	case err != nil:
		return fmt.Errorf("the whole input is in %s; making it smaller failed: %w", out, err)
	case small == nil:
		_, err = fmt.Fprintln(s.out, "no smaller input: the time of the call does not grow faster than its Services")
		return err
	}
	text := fmt.Sprintf("smaller: %d of %d Services, %d lines, %.3g s; exponent %.2f from half of them: %s", small.Services, small.Of, small.Lines, small.Seconds, small.Exponent, filepath.Join(out, reproduce.SmallFile))
	if small.Stopped {
		text += " (--budget was used up)"
	}
	_, err = fmt.Fprintln(s.out, text)
	return err
}
