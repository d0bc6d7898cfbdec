package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/bench/verify/conform"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	"synclab/proxier/iptables"
	"synclab/reports/doc"
	"synclab/reports/sections"
	"synclab/scenarios"
	"synclab/sim"
)

// conformFlags are the flags of `synclab conform`.
type conformFlags struct {
	scenario  scenarioFlags
	manifests manifestFlags
	proxy     proxyConfigFlag
	subjects  subjectFlags
	random    int
	variant   string
	family    string
	workers   int
	minimize  string
	then      []string
	verdicts  bool
	out       string
}

// The default size of the library's scenarios: the form of the rules does not depend on it.
const (
	smallServices  = 30
	smallEndpoints = 3
)

func newConform(s streams) *cobra.Command { return newConformWith(s, &conformFlags{}) }

func newConformWith(s streams, f *conformFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "conform [SCENARIO...]",
		Short: "Compare what two proxiers do with the same Services: rule by rule, or by packets",
		Long: `Conform measures nothing. It compares the rules that two proxiers write for the same
Services, one by one: kube-proxy's and synclab's, unless --subjects names two. Without
a scenario, -f or --random it compares every scenario of the library in a small size.
A difference is printed as a diff by Service, with the command that reproduces it.
Differences that docs/differences.md explains are only counted. When the podCIDRs or
addresses of the node change, kube-proxy exits: both are started again, and compared.

With --verdicts it sends real packets, TCP and UDP, to every address of every Service
instead: from a pod, from the node and from outside. That compares subjects whose
rules cannot be compared: modes nftables, ipvs and userspace, and any other program.
The first subject is the reference.

The exit status is 1 if a difference is unexplained or a packet looped, 2 for bad input, and 3 if synclab
could not compare: that says nothing about the proxiers.`,
		Example: `  synclab conform                                     # every scenario of the library
  synclab conform --random 2000 --seed 7              # random clusters
  synclab conform -f dump.yaml                        # your own Services
  synclab conform --kube-proxy-version v1.36.3        # another kube-proxy
  synclab conform mixed-types --minimize small.yaml   # with a small reproducer
  synclab conform --verdicts --subjects kube-proxy/iptables-nft,kube-proxy/nftables`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if f.verdicts {
				return f.byPackets(cmd, args, s)
			}
			return f.byRules(cmd, args, s)
		},
	}
	f.scenario.register(cmd)
	f.manifests.register(cmd)
	f.proxy.register(cmd)
	f.subjects.register(cmd, "kube-proxy and synclab; with --verdicts every mode that this machine has the tools for")
	flags := cmd.Flags()
	flags.Lookup("max-time").Usage = "`time` after which a subject that has not converged is stopped (default: 1m; with --verdicts 10m)"
	hideFlags(cmd, "feed") // only for runs
	flags.BoolVar(&f.verdicts, "verdicts", false, "compare by packets instead of rules")
	registerOut(cmd, &f.out, nil, "run of --verdicts", "a new one in runs/")
	flags.IntVar(&f.random, "random", 0, "`number` of random clusters, from --seed on")
	flags.StringVar(&f.variant, "variant", "", "`iptables` legacy or nft (default: both)")
	flags.StringVar(&f.family, "family", "", "`family` of random clusters, IPv4 or IPv6 (default: either, or both)")
	flags.IntVar(&f.workers, "workers", 2, "`number` of concurrent kube-proxies")
	flags.StringVar(&f.minimize, "minimize", "", "minimize the objects of a difference, and write them to this `file`")
	flags.StringArrayVar(&f.then, "then", nil, "with -f: `file` or folder of the next state of the objects (repeatable, a state each)")
	for _, flag := range []string{"random", "variant", "family", "workers", "minimize", "then"} {
		cmd.MarkFlagsMutuallyExclusive("verdicts", flag)
	}
	cmd.MarkFlagsMutuallyExclusive("filename", "random")
	terminal.Complete(cmd, "variant", variants...)
	terminal.Complete(cmd, "family", string(corev1.IPv4Protocol), string(corev1.IPv6Protocol))
	moreFlags(cmd, "proxy-config", "variant", "family", "workers", "then")
	return cmd
}

// verdictScenario sends packets to every address.
const verdictScenario = "verdicts"

// byPackets compares the ends of packets, and fails if differences are unexplained.
func (f *conformFlags) byPackets(cmd *cobra.Command, args []string, s streams) error {
	if len(args) > 0 {
		return badUsage(cmd, "--verdicts takes no scenario, got %q; -f takes your own Services", args[0])
	}
	flags := runFlags{scenario: f.scenario, manifests: f.manifests, proxy: f.proxy, subjects: f.subjects}
	flags.o.reps, flags.o.budget, flags.o.out = 1, usualBudget, f.out
	o, err := flags.read(cmd, []string{verdictScenario}, s)
	if err != nil {
		return err
	}
	compared(cmd, &o)
	if len(o.subjects) < 2 {
		return badUsage(cmd, "--verdicts compares two --subjects or more, not %s", orWords(o.subjects))
	}
	summary, err := measure(cmd.Context(), s, o)
	if err != nil || summary == nil {
		return ofComparison(err)
	}
	return verdictOfPackets(summary.PacketAnswers())
}

// verdictOfPackets returns what decides the exit status of a comparison by packets.
func verdictOfPackets(answers sections.PacketAnswers) error {
	var parts []string
	if answers.Unexplained > 0 {
		parts = append(parts, doc.Plural(answers.Unexplained, "unexplained difference"))
	}
	if answers.Looped > 0 {
		parts = append(parts, doc.Plural(answers.Looped, "packet")+" looped")
	}
	failed := len(parts) > 0
	if unseen := answers.Unseen(); unseen != "" {
		parts = append(parts, unseen+": see above")
	}
	err := errors.New(strings.Join(parts, "; "))
	switch {
	case failed:
		return err
	case answers.Packets == 0:
		return &notCompared{errors.New(strings.Join(append([]string{"no packets were compared"}, parts...), "; "))}
	case len(answers.Missing) > 0:
		return &notCompared{err}
	}
	return nil
}

// request reads the flags and the files that they name.
func (f *conformFlags) request(cmd *cobra.Command, args []string, s streams) (q conform.Request, err error) {
	for _, flag := range []string{"out", "max-memory", "exec-config", "exec-env", "feed"} {
		if cmd.Flags().Changed(flag) {
			return q, badUsage(cmd, "--%s is for --verdicts, which is not given", flag)
		}
	}
	if cmd.Flags().Changed("max-time") && f.subjects.maxTime <= 0 {
		return q, badUsage(cmd, "--max-time %v: want more than 0", f.subjects.maxTime)
	}
	q = conform.Request{Workers: f.workers, MaxTime: f.subjects.maxTime, Clusters: f.random, Seed: f.scenario.seed}
	if !cmd.Flags().Changed("seed") {
		q.Seed = 1
	}
	q.Limit.Variant, q.Limit.Family = iptables.Variant(f.variant), corev1.IPFamily(f.family)
	switch {
	case f.random < 0 || f.workers < 1:
		return q, badUsage(cmd, "--random %d, --workers %d: want at least 1", f.random, f.workers)
	case f.variant != "" && !slices.Contains(variants, f.variant):
		return q, badUsage(cmd, "--variant %q: want legacy or nft", f.variant)
	case len(f.then) > 0 && len(f.manifests.paths) == 0:
		return q, badUsage(cmd, "--then needs -f, which is not given")
	}
	if f.family != "" {
		if _, err := familiesOf(cmd, f.family); err != nil {
			return q, err
		}
	}
	if q.First, q.Second, err = rulesSubjects(cmd, f.subjects.names); err != nil {
		return q, err
	}
	if q.Kernel, err = f.kernel(cmd, f.subjects.kernels, s); err != nil {
		return q, err
	}
	if f.minimize != "" {
		q.Minimize = minimizeTries
	}
	f.proxy.find(s, f.manifests.paths)
	cfg, err := f.proxy.load(cmd.Context(), s, upstream.Minor(f.subjects.version()))
	if err != nil {
		return q, err
	}
	if cfg.Mode != config.ModeIPTables {
		fmt.Fprintf(s.err, "note: %s: mode is %s; conform compares the rules of mode iptables\n", f.proxy.path, cfg.Mode)
		cfg.Mode = config.ModeIPTables
	}
	if f.proxy.path != "" {
		q.Limit.Config = cfg
	}
	if err := f.subjects.useTools(cmd.Context()); err != nil {
		return q, err
	}
	variants := []iptables.Variant{q.Limit.Variant}
	if f.variant == "" {
		if variants, err = conform.Variants(); err != nil {
			return q, err
		}
		if len(variants) == 1 {
			q.Limit.Variant = variants[0]
			fmt.Fprintf(s.err, "comparing iptables-%s only\n", variants[0])
		}
	}
	f.manifests.aState = len(f.then) > 0
	if q.Objects, err = f.manifests.read(cmd.Context(), s); err != nil {
		return q, err
	}
	for _, path := range f.then {
		next, err := (&manifestFlags{paths: []string{path}, flags: cmd.Flags(), aState: true}).read(cmd.Context(), s)
		if err != nil {
			return q, err
		}
		q.Then = append(q.Then, next)
	}
	f.proxy.chooseNode(s, cfg, q.Objects)
	q.Name = strings.Join(f.manifests.paths, " -f ")
	q.Setting = conform.Setting{Variant: variants[0], Families: clusterFamilies(q.Objects), Config: cfg}
	if len(args) == 0 && q.Objects == nil && q.Clusters == 0 {
		for _, scenario := range scenarios.List() {
			args = append(args, scenario.Name)
		}
	}
	for _, name := range args {
		scenario, err := f.load(cmd, name)
		if err != nil {
			return q, err
		}
		for _, variant := range variants {
			q.Scenarios = append(q.Scenarios, conform.ScenarioRequest{Ref: name, Scenario: scenario, Variant: variant, Config: subject.ProxyConfig(cfg, scenario, true)})
		}
	}
	return q, nil
}

// kernel returns the path of the kernel to compare on; empty: the machine's own.
func (f *conformFlags) kernel(cmd *cobra.Command, names []string, s streams) (string, error) {
	if err := checkKernels(cmd, names); err != nil {
		return "", err
	}
	if len(names) > 1 {
		return "", badUsage(cmd, "--kernel %s: conform compares on one kernel", strings.Join(names, ","))
	}
	if len(names) == 0 || names[0] == raw.HostKernel {
		return "", nil
	}
	path, _, err := upstream.Linux(cmd.Context(), upstream.LinuxOptions{Version: names[0], Progress: s.progress})
	return path, err
}

// load reads a scenario, in a small size by default.
func (f *conformFlags) load(cmd *cobra.Command, name string) (*scenarios.Scenario, error) {
	sizes := scenarios.Sizes{Services: cmp.Or(f.scenario.services, smallServices), Endpoints: cmp.Or(f.scenario.endpoints, smallEndpoints)}
	if cmd.Flags().Changed("seed") {
		sizes.Seed = &f.scenario.seed
	}
	return loadScenario(cmd.Context(), name, f.scenario.sets, sizes)
}

func clusterFamilies(o *sim.Objects) (families []corev1.IPFamily) {
	for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
		if o != nil && slices.ContainsFunc(o.Services, func(s *corev1.Service) bool { return slices.Contains(s.Spec.IPFamilies, family) }) {
			families = append(families, family)
		}
	}
	return families
}

// rulesSubjects returns the two subjects to compare.
func rulesSubjects(cmd *cobra.Command, names []string) (first, second conform.Subject, err error) {
	if err := checkSubjects(cmd, names); err != nil {
		return first, second, err
	}
	switch len(names) {
	case 0:
		return conform.Subject{KubeProxy: true}, conform.Subject{}, nil
	case 2:
	default:
		return first, second, badUsage(cmd, "conform compares two --subjects, not %d", len(names))
	}
	both := make([]conform.Subject, 2)
	for i, name := range names {
		known := subject.All()
		at := slices.IndexFunc(known, func(s subject.Spec) bool { return s.Name == name && s.Classic() })
		if at < 0 {
			return first, second, badUsage(cmd, "--subjects: conform compares iptables-legacy and iptables-nft of synclab and kube-proxy, not %s", name)
		}
		both[i] = conform.Subject{KubeProxy: !known[at].Own, Variant: known[at].Variant}
	}
	return both[0], both[1], nil
}

// minimizeTries is the number of smaller clusters to try, at about a second each.
const minimizeTries = 150

// byRules compares the rules and prints the differences.
func (f *conformFlags) byRules(cmd *cobra.Command, args []string, s streams) error {
	q, err := f.request(cmd, args, s)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	if q.First.KubeProxy || q.Second.KubeProxy {
		build := f.subjects.kubeProxy
		build.Progress = s.progress
		var version string
		if q.KubeProxy, version, err = upstream.KubeProxy(ctx, build); err != nil {
			return ofComparison(err)
		}
		q.Minor = upstream.Minor(version)
		fmt.Fprintf(s.err, "kube-proxy %s", version)
		if q.Clusters > 0 {
			fmt.Fprintf(s.err, ", %d random clusters from seed %d on", q.Clusters, q.Seed)
		}
		fmt.Fprintln(s.err)
	}
	return f.execute(cmd, s, &q)
}

func (f *conformFlags) execute(cmd *cobra.Command, s streams, q *conform.Request) error {
	var last conform.Event
	differing := 0 // batches
	var shown *terminal.Counter
	end := func() {
		if shown != nil {
			shown.End()
			shown = nil
		}
	}
	err := q.Execute(cmd.Context(), s.err, []string{rulesWorker}, func(e conform.Event) {
		last = e
		if shown == nil {
			shown = terminal.NewCounter(s.err, "comparing states", e.Total)
		}
		shown.Show(e.States, e.Total)
		if e.Failure == nil {
			return
		}
		end()
		if e.Failure.Error == "" {
			differing++
		}
		f.tell(cmd, s, e.Failure, differing)
	})
	end()
	if err != nil {
		return ofComparison(err)
	}
	return verdictOf(s, &last)
}

// verdictOf prints the counts of a comparison, and returns what decides the exit status.
func verdictOf(s streams, e *conform.Event) error {
	different := doc.Plural(e.Unexplained, "unexplained difference")
	if e.Differing > 0 {
		different += " in " + doc.Plural(e.Differing, "state")
	}
	fmt.Fprintf(s.out, "%s, %s: %s%s\n", doc.Plural(e.Clusters, "cluster"), doc.Plural(e.States, "state"), different, explained(e.Entries))
	var failed []string
	if e.Unexplained > 0 {
		failed = append(failed, different)
	}
	if e.NotCompared > 0 {
		failed = append(failed, "could not compare "+doc.Plural(e.NotCompared, "cluster")+" to the end: see above")
	}
	err := errors.New(strings.Join(failed, "; "))
	switch {
	case e.Unexplained > 0:
		return err
	case e.NotCompared > 0:
		return &notCompared{err}
	case e.States == 0:
		return &notCompared{errors.New("no state was compared")}
	}
	return nil
}

// tell prints one difference and writes its minimized form, or prints why a batch was not compared.
func (f *conformFlags) tell(cmd *cobra.Command, s streams, failure *conform.Failure, n int) {
	if failure.Error != "" {
		fmt.Fprintf(s.out, "could not compare %s\n", failure.Error)
	} else {
		fmt.Fprintf(s.out, "%s: %s\n%s\n", failure.Batch, failure.What, failure.Text)
	}
	fmt.Fprintf(s.out, "reproduce with: %s\n", again(cmd, failure.Again.Args, failure.Again.Flags...))
	if failure.After == "" {
		fmt.Fprintln(s.out)
		return
	}
	file := f.minimize
	if n > 1 {
		file = strings.TrimSuffix(file, ".yaml") + "-" + strconv.Itoa(n) + ".yaml"
	}
	small := [][2]string{{"filename", file}, {"then"}, {"random"}, {"seed"}, {"minimize"}, {"services"}, {"endpoints"}, {"set"}}
	err := outfile.Write(file, []byte(failure.After), 0o644)
	if failure.Before != "" {
		before := strings.TrimSuffix(file, ".yaml") + "-before.yaml"
		err = errors.Join(err, outfile.Write(before, []byte(failure.Before), 0o644))
		small[0][1], small[1][1] = before, file
	}
	if err != nil {
		fmt.Fprintln(s.err, "synclab:", err)
		return
	}
	fmt.Fprintf(s.out, "smaller: %s\n\n", again(cmd, nil, small...))
}

func explained(entries map[string]int) string {
	if len(entries) == 0 {
		return ", 0 explained"
	}
	var each []string
	sum := 0
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		each = append(each, fmt.Sprintf("%s %s", name, doc.Grouped(int64(entries[name]))))
		sum += entries[name]
	}
	return fmt.Sprintf(", %s explained (%s; see docs/differences.md)", doc.Grouped(int64(sum)), strings.Join(each, ", "))
}
