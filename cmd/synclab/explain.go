package main

import (
	"errors"
	"io"

	"github.com/spf13/cobra"

	"synclab/cmd/synclab/terminal"
	"synclab/reports/records"
	"synclab/reports/sections"
)

func newExplain(s streams) *cobra.Command {
	var format terminal.Format
	cmd := &cobra.Command{
		Use:   "explain [RUN]",
		Short: "Say which functions take the time of syncs, and which grow faster than the cluster",
		Long: `Explain reads the profiles of a run with --profile. For each subject and kind of sync
it prints the functions with most time, those of the kernel, of tools and of the
proxier apart. If the run has several sizes, it fits the time of each function: what
share of a sync has which exponent, which function makes the sync grow faster than the
cluster, and from which size on that rules. Without an argument it uses the newest run
in ` + runsFolder + `/. The run's page has the same tables and flame graphs.

The profiles are in the run's folder: go tool pprof -http : RUN/profiles/FILE.`,
		Example: `  synclab compare size-sweep --services 2000 --profile --subjects kube-proxy/nftables
  synclab explain
  synclab explain runs/sweep -o json`,
		Args: argCount(0, 1, "a run"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				newest, err := newestRun(runsFolder)
				if err != nil {
					return badInput(err)
				}
				args = []string{newest}
			}
			runs, err := records.LoadAll(args)
			if err != nil {
				return badInput(err)
			}
			summary := sections.Summarize(runs, sections.SLOs{}.WithDefaults())
			if len(summary.Profiles) == 0 {
				return badInput(errors.New(args[0] + " has no profiles: measure with --profile"))
			}
			return format.Write(s.out, struct {
				Profiles any `json:"profiles"`
				Growth   any `json:"growth"`
				Cost     any `json:"cost"`
			}{summary.Profiles, summary.ProfileGrowth, summary.ProfileCost}, func(w io.Writer) error { return summary.Explanation().Text(w) })
		},
	}
	format.Register(cmd)
	cmd.ValidArgsFunction = func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveFilterDirs
	}
	return cmd
}
