package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench"
	"synclab/proxier/config"
	"synclab/scenarios"
	"synclab/sim"
)

// defaultScenario is what `synclab run` runs.
const defaultScenario = "steady-churn"

// scenarioFlags choose a scenario and change its fields.
type scenarioFlags struct {
	services  int
	endpoints int
	seed      uint64
	sets      []string
}

func (f *scenarioFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.IntVar(&f.services, "services", 0, "`number` of Services (default: the scenario's own)")
	flags.IntVar(&f.endpoints, "endpoints", 0, "`number` of endpoints of each Service (default: the scenario's own)")
	flags.Uint64Var(&f.seed, "seed", 0, "`seed` of the cluster and of its events (default: the scenario's own)")
	// Not a StringSlice: a value may hold commas.
	flags.StringArrayVar(&f.sets, "set", nil, "set a field of the scenario: `field=value`, e.g. proxy.minSyncPeriod=2s (repeatable)")
	for _, flag := range []string{"services", "endpoints", "seed", "set"} {
		complete(cmd, flag)
	}
	cmd.ValidArgsFunction = completeScenario
}

// load reads the scenario. ref is the command's first argument.
func (f *scenarioFlags) load(cmd *cobra.Command, args []string) (*scenarios.Scenario, error) {
	ref := defaultScenario
	if len(args) > 0 {
		ref = args[0]
	}
	sizes := scenarios.Sizes{Services: f.services, Endpoints: f.endpoints}
	// Sizes takes 0 for "not given", but who writes 0 did not mean the default.
	for flag, n := range map[string]int{"services": f.services, "endpoints": f.endpoints} {
		if cmd.Flags().Changed(flag) && n < 1 {
			return nil, badUsage(cmd, "--%s %d: want at least 1", flag, n)
		}
	}
	if cmd.Flags().Changed("seed") {
		sizes.Seed = &f.seed
	}
	s, err := scenarios.Load(ref, f.sets, sizes)
	return s, badInput(err)
}

// given names one of the flags that describe a simulated cluster, if any was given: they say nothing about a real one.
func (f *scenarioFlags) given(cmd *cobra.Command) string {
	for _, flag := range []string{"services", "endpoints"} {
		if cmd.Flags().Changed(flag) {
			return flag
		}
	}
	return ""
}

// completeScenario offers the library's names, and .yaml files.
func completeScenario(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if strings.ContainsAny(typed, `./`) {
		return []string{"yaml", "yml"}, cobra.ShellCompDirectiveFilterFileExt
	}
	var names []string
	for _, s := range scenarios.List() {
		names = append(names, fmt.Sprintf("%s\t%s", s.Name, firstLine(s.Description)))
	}
	return names, cobra.ShellCompDirectiveDefault
}

// manifestFlags name files with Kubernetes objects.
type manifestFlags struct {
	paths []string
}

func (f *manifestFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringArrayVarP(&f.paths, "filename", "f", nil,
		"`file` or folder of Kubernetes objects, or - for stdin: dumps of kubectl, or plain manifests (repeatable)")
	if err := cmd.MarkFlagFilename("filename", "yaml", "yml", "json"); err != nil {
		panic(err)
	}
}

// read returns the objects, nil when no file was named, and tells s.err what it left out.
func (f *manifestFlags) read(s streams) (*sim.Objects, error) {
	if len(f.paths) == 0 {
		return nil, nil
	}
	objects, err := sim.ReadObjects(f.paths, s.in, sim.ReadOptions{
		Skipped: func(skipped sim.Skipped) { fmt.Fprintln(s.err, "left out:", skipped) },
	})
	return objects, badInput(err)
}

// proxyConfigFlag names a KubeProxyConfiguration file.
type proxyConfigFlag struct {
	path string
}

func (f *proxyConfigFlag) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.path, "proxy-config", "", "`file` with the proxier's KubeProxyConfiguration, v1alpha1 (default: kube-proxy's defaults)")
	if err := cmd.MarkFlagFilename("proxy-config", "yaml", "yml", "json"); err != nil {
		panic(err)
	}
}

func (f *proxyConfigFlag) load() (*v1alpha1.KubeProxyConfiguration, error) {
	if f.path == "" {
		return config.New(), nil
	}
	cfg, err := config.Load(f.path)
	return cfg, badInput(err)
}

// subjects that --subjects takes.
var subjects = subjectNames()

func subjectNames() []string {
	var names []string
	for _, s := range bench.Subjects() {
		names = append(names, s.Name)
	}
	return names
}

// checkSubjects wants known subjects, each once.
func checkSubjects(cmd *cobra.Command, list []string) error {
	for i, subject := range list {
		if !slices.Contains(subjects, subject) {
			return badUsage(cmd, "--subjects: %q is not known; want one or more of %s", subject, strings.Join(subjects, ","))
		}
		if slices.Contains(list[:i], subject) {
			return badUsage(cmd, "--subjects: %s stands there twice", subject)
		}
	}
	return nil
}

// completeSubjects completes the last word of a list with commas by what is not in it yet.
func completeSubjects(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, subject := range subjects {
		if !slices.Contains(strings.Split(before, ","), subject) {
			words = append(words, before+subject)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
