package main

import (
	"github.com/spf13/cobra"

	"synclab/bench"
)

func newCompare(s streams) *cobra.Command {
	var flags runFlags
	var rules rulesFlags
	cmd := &cobra.Command{
		Use:   "compare [SCENARIO | FILE.yaml]",
		Short: "Run a scenario with every proxier and compare them",
		Long: `Compare is a run with all subjects, kube-proxy among them, unmodified. They take
turns, each in a namespace of its own, as processes fed by the same API front
with the same changes, with the same settings, and all are measured from outside.

kube-proxy is built from its Go module on first use, which takes some minutes and
the network. A subject that does not get in sync in --max-time is stopped and
shown with what it had reached.

A scenario with targets, such as engine, is compared at the sizes and with the
subjects that they name, and the report says which are met.
` + rulesHelp,
		Example: `  synclab compare --services 1000
  synclab compare size-sweep --services 5000 --subjects synclab/iptables-nft,kube-proxy/iptables-nft
  synclab compare --services 2000 --max-time 2m --max-memory 2Gi
  synclab compare --subjects 'kube-proxy/nftables,exec:mine=/usr/local/bin/my-proxy --kubeconfig={kubeconfig}'
  synclab compare engine --services 10000 --reps 6   # the lab's backends, at sizes up to N
  synclab compare size-sweep --reps 20 --shard 3/8 --out /mnt/sweep   # a part of it, on each of 8 machines
  synclab compare --rules --random 2000 --seed 7`,
		Args: rules.args(argCount(0, 1, "a scenario")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if rules.rules {
				return rules.compare(cmd, args, s, &flags)
			}
			o, err := flags.read(cmd, args, s)
			if err != nil {
				return err
			}
			compared(cmd, &o)
			return execute(cmd.Context(), s, o)
		},
	}
	flags.register(cmd, "all that this machine has the tools for")
	rules.register(cmd)
	return cmd
}

// compared fills in what a comparison takes where nobody chose.
func compared(cmd *cobra.Command, o *runOptions) {
	switch {
	case len(o.subjects) > 0:
	case len(o.scenario.Targets) > 0:
		o.subjects = withTools(cmd, bench.TargetSubjects(o.scenario))
	default:
		o.subjects = withTools(cmd, bench.ComparedSubjects())
	}
	if o.feed == "" {
		o.feed = bench.FeedAPI
	}
}
