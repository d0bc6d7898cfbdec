package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/kube-proxy/config/v1alpha1"

	"synclab/bench/lab/shim"
	"synclab/bench/lab/temporary"
	"synclab/bench/lab/upstream"
	"synclab/bench/outfile"
	"synclab/bench/raw"
	"synclab/bench/subject"
	"synclab/cmd/synclab/terminal"
	"synclab/proxier/config"
	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/manifests"
)

// defaultScenario is the default of `synclab run`.
const defaultScenario = "steady-churn"

// liveScenario is its default with a real cluster.
const liveScenario = "follow"

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
	// Not a StringSlice: a value may contain commas.
	flags.StringArrayVar(&f.sets, "set", nil, "set a field of the scenario: `field=value`, e.g. proxy.minSyncPeriod=2s (repeatable)")
	cmd.ValidArgsFunction = completeScenario
}

// load reads the scenario. ref is the command's first argument.
func (f *scenarioFlags) load(cmd *cobra.Command, args []string) (*scenarios.Scenario, error) {
	ref := defaultScenario
	if len(args) > 0 {
		ref = args[0]
	}
	sizes := scenarios.Sizes{Services: f.services, Endpoints: f.endpoints}
	// In Sizes, 0 means "not given". A given 0 is an error, not the default.
	for flag, n := range map[string]int{"services": f.services, "endpoints": f.endpoints} {
		if cmd.Flags().Changed(flag) && n < 1 {
			return nil, badUsage(cmd, "--%s %d: want at least 1", flag, n)
		}
	}
	if cmd.Flags().Changed("seed") {
		sizes.Seed = &f.seed
	}
	return loadScenario(cmd.Context(), ref, f.sets, sizes)
}

// loadScenario reads a scenario of the library, or of a file.
func loadScenario(ctx context.Context, ref string, sets []string, sizes scenarios.Sizes) (*scenarios.Scenario, error) {
	if !scenarios.IsFile(ref) {
		s, err := scenarios.Load(ref, sets, sizes)
		return s, badInput(err)
	}
	text, err := outfile.ReadInput(ctx, ref)
	if err != nil {
		return nil, badInput(fmt.Errorf("scenario: %w", err))
	}
	s, err := scenarios.Parse(ref, text, sets, sizes)
	return s, badInput(err)
}

// given returns the first given flag that describes a simulated cluster only; empty: none.
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
	flags *pflag.FlagSet
	// aState: the objects are one of several states of a cluster, and may be without Services.
	aState bool
}

func (f *manifestFlags) register(cmd *cobra.Command) {
	f.flags = cmd.Flags()
	f.flags.StringArrayVarP(&f.paths, "filename", "f", nil,
		"`file` or folder of Kubernetes objects, or - for stdin: dumps of kubectl, support bundles, or plain manifests (repeatable)")
	registerStrict(cmd)
}

// registerStrict adds the flag that all inputs of a command share.
func registerStrict(cmd *cobra.Command) {
	if cmd.Flags().Lookup("strict") == nil {
		cmd.Flags().Bool("strict", false, "refuse what is otherwise left out with a message: objects of a dump that cannot be used, files of a folder that cannot be read, and unknown fields, also of the configuration")
		moreFlags(cmd, "strict")
	}
}

// isStrict returns the value of that flag.
func isStrict(flags *pflag.FlagSet) bool {
	strict, err := flags.GetBool("strict")
	return err == nil && strict
}

// read returns the objects, nil when no file was named. It prints what it omits to s.err.
func (f *manifestFlags) read(ctx context.Context, s streams) (*sim.Objects, error) {
	if len(f.paths) == 0 {
		return nil, nil
	}
	objects, err := manifests.ReadObjects(f.paths, outfile.Interruptible(ctx, s.in), manifests.ReadOptions{
		Open:       func(path string) (*os.File, error) { return outfile.OpenInput(ctx, path) },
		Strict:     isStrict(f.flags),
		NoServices: f.aState,
		LeftOut:    func(l manifests.LeftOut) { fmt.Fprintln(s.err, "left out:", l) },
		Warned:     func(warning manifests.Warning) { fmt.Fprintln(s.err, "warning:", warning) },
	})
	if err == nil && len(objects.Services) > 0 && len(objects.Slices) == 0 {
		fmt.Fprintln(s.err, "note: the input has no EndpointSlices, Endpoints or pods, so no Service has endpoints; kubectl get svc,endpointslices,nodes -A -o yaml dumps them")
	}
	return objects, badInput(err)
}

// proxyConfigFlag names a KubeProxyConfiguration file.
type proxyConfigFlag struct {
	path  string
	flags *pflag.FlagSet
}

func (f *proxyConfigFlag) register(cmd *cobra.Command) {
	f.registerAs(cmd, "proxy-config", "`file` with the proxier's KubeProxyConfiguration, v1alpha1, or with a kube-proxy ConfigMap (default: the one captured with -f, else kube-proxy's defaults)")
}

func (f *proxyConfigFlag) registerAs(cmd *cobra.Command, flag, usage string) {
	f.flags = cmd.Flags()
	f.flags.StringVar(&f.path, flag, "", usage)
	registerStrict(cmd)
}

// find sets the file to the one captured together with the first of some objects, unless a file is given.
func (f *proxyConfigFlag) find(s streams, objects []string) {
	for _, path := range objects {
		if f.path != "" || path == "-" {
			continue
		}
		beside := capturedConfig(path)
		if _, err := os.Stat(beside); err == nil {
			f.path = beside
			fmt.Fprintf(s.err, "settings: %s, captured with %s\n", beside, path)
		}
	}
}

// capturedConfig returns the file in which a capture to path has the configuration of kube-proxy.
func capturedConfig(path string) string {
	path = strings.TrimSuffix(path, ".gz")
	return strings.TrimSuffix(path, filepath.Ext(path)) + ".kube-proxy.yaml"
}

// load reads the file, and prints what is noteworthy. minor is the minor version of kube-proxy; 0: there is none, or each
// subject has its own, which subject.CheckConfig checks.
func (f *proxyConfigFlag) load(ctx context.Context, s streams, minor int) (*v1alpha1.KubeProxyConfiguration, error) {
	if f.path == "" {
		return config.New(), nil
	}
	if err := manifests.RefuseURL(f.path); err != nil {
		return nil, badInput(fmt.Errorf("proxy configuration: %w", err))
	}
	text, err := outfile.ReadInput(ctx, f.path)
	if err != nil {
		return nil, badInput(fmt.Errorf("proxy configuration: %w", err))
	}
	cfg, notes, err := config.Parse(f.path, text, config.LoadOptions{Strict: isStrict(f.flags), Minor: minor})
	for _, note := range notes {
		fmt.Fprintln(s.err, "note:", note)
	}
	return cfg, badInput(err)
}

// chooseNode makes hostnameOverride the node of the proxies. Without such a node, or in a cluster that is not
// read from files (o is nil), they run on the first.
func (f *proxyConfigFlag) chooseNode(s streams, cfg *v1alpha1.KubeProxyConfiguration, o *sim.Objects) {
	name := strings.ToLower(strings.TrimSpace(cfg.HostnameOverride))
	if name == "" || o != nil && len(o.Nodes) == 0 {
		return
	}
	if o == nil {
		fmt.Fprintf(s.err, "note: %s: hostnameOverride: %q is looked for only in a cluster from -f; proxies run on the first node\n", f.path, name)
		return
	}
	if err := subject.ChooseNode(o, name); err != nil {
		fmt.Fprintf(s.err, "note: %s: hostnameOverride: %v; proxies run on %s\n", f.path, err, o.Nodes[0].Name)
	}
}

// subjectFlags choose the subjects, their feed and their limits.
type subjectFlags struct {
	names      []string
	feed       string
	kubeProxy  upstream.Options
	execConfig string
	execEnv    []string
	maxTime    time.Duration
	maxMemory  string
	kernels    []string
	tools      string
}

// register adds the flags that choose programs, and those of measurements. usual describes the default subjects.
func (f *subjectFlags) register(cmd *cobra.Command, usual string) {
	flags := cmd.Flags()
	flags.StringSliceVar(&f.names, "subjects", nil, "`list` of subjects, separated by commas; kube-proxy@VERSION/… is another version of kube-proxy, synclab@REVISION/… of Synclab, and PROXIER@src:NAME=DIR/… a checkout; exec:NAME=COMMAND… is any other proxier; suffixes change settings: "+suffixWords()+" (default: "+usual+")")
	flags.StringVar(&f.kubeProxy.Path, "kube-proxy", "", "`binary` to run as kube-proxy (default: built from its Go module, on first use)")
	flags.StringVar(&f.kubeProxy.Source, "kube-proxy-src", "", "`folder` with a checkout of Kubernetes to build kube-proxy from; beside it, kube-proxy@VERSION/… is a release")
	registerKubeProxyVersion(cmd, &f.kubeProxy.Version)
	flags.StringSliceVar(&f.kernels, "kernel", nil, "`list` of kernels to measure on: host, or versions of Linux that run as User-mode Linux, such as 6.12; see 'synclab build kernel' (default: host)")
	flags.StringVar(&f.tools, "tools", "", "`folder` that is the root of another system, such as an unpacked image: its iptables, nft and ipset are used, with its libraries, e.g. --tools ./bookworm (default: this machine's)")
	terminal.CompleteBy(cmd, "kernel", completeKernels)
	terminal.CompleteBy(cmd, "subjects", completeSubjects)
	cmd.MarkFlagsMutuallyExclusive("kube-proxy", "kube-proxy-src", "kube-proxy-version")
	moreFlags(cmd, "kube-proxy", "kube-proxy-src", "kube-proxy-version", "tools")
	flags.StringVar(&f.feed, "feed", "", "how objects reach the subjects: `informers` in this process, or the api over HTTP, with each subject a separate process (default: api if a subject is not synclab's)")
	flags.StringVar(&f.execConfig, "exec-config", "", "`template` of the file {config} in exec:NAME=COMMAND (default: the KubeProxyConfiguration)")
	flags.StringSliceVar(&f.execEnv, "exec-env", nil, "`list` of variables of your environment that exec:NAME=COMMAND gets too (default: only PATH, HOME, TMPDIR, TZ, LANG and a few others)")
	flags.DurationVar(&f.maxTime, "max-time", 0, "`time` after which a subject that has not converged is stopped (default: the scenario's, 10m)")
	flags.StringVar(&f.maxMemory, "max-memory", "", "memory `limit` of a subject and its tools, e.g. 2Gi; beyond it the subject is stopped; needs --feed api")
	terminal.Complete(cmd, "feed", raw.FeedInformers, raw.FeedAPI)
	moreFlags(cmd, "feed", "exec-config", "exec-env", "max-time", "max-memory")
}

func registerKubeProxyVersion(cmd *cobra.Command, version *string) {
	cmd.Flags().StringVar(version, "kube-proxy-version", "", "`version` of kube-proxy to build (default: "+upstream.Pinned+")")
}

// apply checks the flags and puts them into a run's options.
func (f *subjectFlags) apply(cmd *cobra.Command, o *runOptions) error {
	if err := checkSubjects(cmd, f.names); err != nil {
		return err
	}
	if f.feed != "" && f.feed != raw.FeedInformers && f.feed != raw.FeedAPI {
		return badUsage(cmd, "--feed %q: want %s or %s", f.feed, raw.FeedInformers, raw.FeedAPI)
	}
	if cmd.Flags().Changed("max-time") && f.maxTime <= 0 {
		return badUsage(cmd, "--max-time %v: want more than 0", f.maxTime)
	}
	for _, name := range f.execEnv {
		if _, set := os.LookupEnv(name); !set {
			return badUsage(cmd, "--exec-env: the environment has no variable %q; want names only, without values", name)
		}
	}
	if err := checkKernels(cmd, f.kernels); err != nil {
		return err
	}
	if err := f.useTools(cmd.Context()); err != nil {
		return err
	}
	o.subjects, o.feed, o.kubeProxy, o.maxTime, o.kernels, o.execEnv = f.names, f.feed, f.kubeProxy, f.maxTime, f.kernels, f.execEnv
	if f.maxMemory != "" {
		size, err := resource.ParseQuantity(f.maxMemory)
		if err != nil || size.Value() <= 0 {
			return badUsage(cmd, "--max-memory %q: want a size such as 512Mi or 2Gi", f.maxMemory)
		}
		o.maxMemory = uint64(size.Value())
	}
	if f.execConfig != "" {
		text, err := outfile.ReadInput(cmd.Context(), f.execConfig)
		if err != nil {
			return badInput(fmt.Errorf("--exec-config: %w", err))
		}
		o.execConfig = string(text)
	}
	return nil
}

// version returns the version of kube-proxy to run; empty: unknown.
func (f *subjectFlags) version() string {
	if f.kubeProxy.Path != "" || f.kubeProxy.Source != "" {
		return ""
	}
	return cmp.Or(f.kubeProxy.Version, upstream.Pinned)
}

// useTools makes the tools of --tools those of the process, until run ends.
func (f *subjectFlags) useTools(ctx context.Context) error {
	if f.tools == "" {
		return nil
	}
	dir, err := temporary.New("")
	if err != nil {
		return err
	}
	atEnd(ctx, func() { _ = dir.Remove() })
	release, err := shim.Use(ctx, f.tools, dir.Path)
	if err != nil {
		return badInput(fmt.Errorf("--tools %s: %w", f.tools, err))
	}
	atEnd(ctx, release)
	return nil
}

// withTools returns the names of subjects whose tools this machine has. It prints the omitted ones in one line.
func withTools(cmd *cobra.Command, names []string) []string {
	there, lacking := subject.WithTools(names)
	if lacking != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "left out:", lacking)
	}
	return there
}

// checkSubjects requires known subjects, each once, since records identify subjects by name.
func checkSubjects(cmd *cobra.Command, list []string) error {
	if len(list) == 0 && cmd.Flags().Changed("subjects") {
		return badUsage(cmd, `--subjects "": want at least one, such as %s`, subject.All()[0].Name)
	}
	flag := "--subjects: "
	if cmd.Flags().Lookup("subjects") == nil { // synclab pr makes them of other flags
		flag = ""
	}
	var names []string
	for _, text := range list {
		subject, err := subject.Parse(text)
		if err != nil {
			return badUsage(cmd, "%s%w", flag, err)
		}
		if slices.Contains(names, subject.Name) {
			return badUsage(cmd, "%s%s is given twice", flag, subject.Name)
		}
		names = append(names, subject.Name)
	}
	return nil
}

// suffixWords returns the suffixes of subjects' names.
func suffixWords() string {
	var words []string
	for _, suffix := range subject.Suffixes() {
		words = append(words, suffix[0])
	}
	return strings.Join(words, ", ")
}

// completeSubjects completes the last word of a list with subjects that the list lacks, and a + with suffixes.
func completeSubjects(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, subject := range subject.All() {
		if !slices.Contains(strings.Split(before, ","), subject.Name) {
			words = append(words, before+subject.Name)
		}
	}
	if base, _, ok := strings.Cut(typed[len(before):], "+"); ok {
		words = nil
		for _, suffix := range []string{"+bucket", "+gogc50", "+tuned"} {
			if subject, err := subject.Parse(base + suffix); err == nil {
				words = append(words, before+subject.Name)
			}
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// What flags of several commands mean.
const (
	budgetText  = "`time` to measure in"
	profileText = "sample where subjects, their tools and the kernel spend CPU time, with perf"
)

// clusterFlags name a cluster as kubectl does.
type clusterFlags struct {
	kubeconfig string // empty: $KUBECONFIG, then ~/.kube/config
	context    string // empty: the file's current one
	// allowExec lets root run the kubeconfig's credential plugin.
	allowExec bool
}

// register adds the flags. of describes the cluster.
func (f *clusterFlags) register(cmd *cobra.Command, of string) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "kubeconfig `file` "+of)
	flags.StringVar(&f.context, "context", "", "`context` of the kubeconfig (default: its current one)")
	flags.BoolVar(&f.allowExec, "allow-exec-plugins", false, "as root too, run the program that the kubeconfig names for credentials")
}

// mostOfKubeconfig is the size in bytes of the largest kubeconfig. One with hundreds of clusters has some hundred KiB.
const mostOfKubeconfig = 16 << 20

// restConfig reads the kubeconfig. Errors are usage errors.
func (f clusterFlags) restConfig() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = f.kubeconfig
	rules.WarnIfAllMissing = false
	for _, path := range append([]string{rules.ExplicitPath}, rules.Precedence...) {
		// Not kept open: client-go reads the files by their names.
		if f, err := outfile.OpenInput(context.Background(), path); err == nil {
			stat, err := f.Stat()
			if f.Close(); err == nil && stat.Size() > mostOfKubeconfig {
				return nil, badInput(fmt.Errorf("kubeconfig: %s: larger than %d MiB", path, mostOfKubeconfig>>20))
			}
		} else if errors.Is(err, outfile.ErrNotRegular) {
			return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
		}
	}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: f.context}).ClientConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	case clientcmd.IsEmptyConfig(err):
		where := f.kubeconfig
		if where == "" {
			where = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
		}
		if where == "" {
			return nil, badInput(errors.New("kubeconfig: none is given, $KUBECONFIG is not set, and there is no ~/.kube/config; name one with --kubeconfig FILE"))
		}
		return nil, badInput(fmt.Errorf("kubeconfig: %s names no cluster", where))
	case err != nil:
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	}
	if cfg.ExecProvider != nil && os.Geteuid() == 0 && !f.allowExec {
		return nil, badInput(fmt.Errorf("kubeconfig: its credential plugin %q would run as root: allow that with --allow-exec-plugins, or run synclab as another user", cfg.ExecProvider.Command))
	}
	return cfg, nil
}

// newClient uses contentType, or JSON if the server does not support it.
func newClient(cfg *rest.Config, contentType string) (kubernetes.Interface, error) {
	cfg.ContentType = contentType
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, badInput(fmt.Errorf("kubeconfig: %w", err))
	}
	return client, nil
}

// client returns a client that reads the cluster in protobuf.
func (f clusterFlags) client() (kubernetes.Interface, error) {
	cfg, err := f.restConfig()
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.Burst = -1, -1 // three lists and three watches
	cfg.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	return newClient(cfg, "application/vnd.kubernetes.protobuf")
}
