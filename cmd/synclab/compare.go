package main

import (
	"github.com/spf13/cobra"

	"synclab/bench/raw"
	"synclab/bench/subject"
)

func newCompare(s streams) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use:   "compare [SCENARIO | FILE.yaml]",
		Short: "Run a scenario with synclab and kube-proxy in every mode and compare them",
		Long: `Compare runs a scenario with several subjects, unmodified kube-proxy among them. They
take turns, each as a process in a separate namespace. The same fake API server feeds all
of them with the same changes and settings, and all are measured from outside.
kube-proxy is built from its Go module on first use, which takes some minutes and
the network. All subjects have kube-proxy's settings. Suffixes of a name change them:

  +bucket   runner policy token-bucket (synclab)
  +gogcN    GOGC=N instead of 100 (any subject), such as +gogc50
  +tuned    what 'synclab proxy' does by default: token-bucket, GOGC=50, memory
            returned after the first full sync (synclab)

A subject that does not converge in --max-time is stopped. The report shows how far
it came.

Cells are repeated until the 95 % interval of each ratio is within --precision, or
--budget is used. The ratios are those of the scenario's targets, else of cold
starts, reactions or syncs. An interval takes six repetitions. With fewer, as with
--quick, the report shows the observed values and gives no verdict.

A scenario with targets, such as engine, is compared at the sizes and with the
subjects that they name. The report says which targets are met.

'synclab conform' compares what proxiers do, and measures nothing.`,
		Example: `  synclab compare --services 1000
  synclab compare size-sweep --services 5000 --subjects synclab/iptables-nft,kube-proxy/iptables-nft
  synclab compare --subjects synclab/nftables,synclab/nftables+tuned,kube-proxy/nftables+gogc50
  synclab compare --services 2000 --max-time 2m --max-memory 2Gi
  synclab compare --precision 2% --budget 1h
  synclab compare --subjects 'kube-proxy/nftables,exec:mine=/usr/local/bin/my-proxy --kubeconfig={kubeconfig}'
  synclab compare engine --services 10000 --reps 6   # the lab's backends, at sizes up to N
  synclab compare size-sweep --reps 20 --shard 3/8 --out /mnt/sweep   # a part of it, on each of 8 machines
  synclab compare --tools ./trixie --subjects kube-proxy/iptables-nft   # iptables of an unpacked image`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := flags.read(cmd, args, s)
			if err != nil {
				return err
			}
			compared(cmd, &o)
			return execute(cmd.Context(), s, o)
		},
	}
	flags.register(cmd, "every mode of kube-proxy and of synclab that this machine has the tools for", "5%")
	return cmd
}

// compared sets the defaults of a comparison.
func compared(cmd *cobra.Command, o *runOptions) {
	switch {
	case len(o.subjects) > 0:
	case len(o.scenario.Targets) > 0:
		o.subjects = withTools(cmd, subject.TargetSubjects(o.scenario))
	default:
		o.subjects = withTools(cmd, subject.ComparedSubjects())
	}
	if o.feed == "" {
		o.feed = raw.FeedAPI
	}
}
