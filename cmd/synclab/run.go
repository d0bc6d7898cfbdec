package main

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/scenarios"
	"synclab/sim"
)

// runOptions are what `synclab run` was asked for, read and checked.
type runOptions struct {
	scenario *scenarios.Scenario
	objects  *sim.Objects // nil: the cluster is generated from the scenario's shape
	subjects []string     // empty: bench.DefaultSubjects
	reps     int
	out      string // empty: a new folder in runs/
	force    bool   // replace the run that is in out
	config   *v1alpha1.KubeProxyConfiguration
	dump     bool // print the rules that were installed
}

func newRun(s streams) *cobra.Command {
	var (
		scenario  scenarioFlags
		manifests manifestFlags
		proxy     proxyConfigFlag
		o         runOptions
	)
	cmd := &cobra.Command{
		Use:   "run [SCENARIO | FILE.yaml]",
		Short: "Run a scenario and write its report",
		Long: `Run plays a scenario against each subject, in a network namespace of its own:
a simulated cluster feeds a real proxier, which writes real rules. Every value
measured is appended to a folder, and a report is made of it at the end.

The scenario is a name in the library (see 'synclab scenarios') or a .yaml file;
without one it is ` + defaultScenario + `. With -f the cluster is not generated but read.`,
		Example: `  synclab run
  synclab run steady-churn --services 10000 --endpoints 10 --subjects synclab/iptables-legacy
  synclab run size-sweep --services 20000 --reps 5 --out runs/before
  synclab run ./my-scenario.yaml --seed 7 --set steps.2.churn.rate=50
  kubectl get svc,endpointslices -A -o yaml | synclab run -f -
  synclab run -f manifests/ --proxy-config kube-proxy.yaml --dump-iptables`,
		Args: argCount(0, 1, "a scenario"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			if err = checkSubjects(cmd, o.subjects); err != nil {
				return err
			}
			if o.reps < 1 {
				return badUsage(cmd, "--reps %d: want at least 1", o.reps)
			}
			if o.force && o.out == "" {
				return badUsage(cmd, "--force replaces the run in --out, which is not given")
			}
			if flag := scenario.given(cmd); flag != "" && len(manifests.paths) > 0 {
				return badUsage(cmd, "--%s is for a generated cluster: it has no meaning with -f", flag)
			}
			if o.scenario, err = scenario.load(cmd, args); err != nil {
				return err
			}
			if o.config, err = proxy.load(); err != nil {
				return err
			}
			if o.objects, err = manifests.read(s); err != nil {
				return err
			}
			return execute(cmd.Context(), s, o)
		},
	}
	scenario.register(cmd)
	manifests.register(cmd)
	proxy.register(cmd)
	flags := cmd.Flags()
	flags.StringSliceVar(&o.subjects, "subjects", nil, "`list` of what to measure, separated by commas (default: synclab/iptables-legacy where there is one)")
	flags.IntVar(&o.reps, "reps", 3, "`number` of repetitions of each cell")
	flags.StringVar(&o.out, "out", "", "`folder` of the run (default: a new one in runs/)")
	flags.BoolVar(&o.force, "force", false, "replace the run that is in the folder --out")
	flags.BoolVar(&o.dump, "dump-iptables", false, "print the rules that were installed, as iptables-save does")
	if err := errors.Join(cmd.RegisterFlagCompletionFunc("subjects", completeSubjects), cmd.MarkFlagDirname("out")); err != nil {
		panic(err)
	}
	complete(cmd, "reps")
	return cmd
}
