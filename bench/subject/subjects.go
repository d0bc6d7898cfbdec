package subject

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/shim"
	"synclab/bench/lab/upstream"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// Spec is a proxy that can be measured: a proxier and its mode. What it can do is in its fields and methods, so that other
// packages need not compare the name of a proxier, a backend or a variant. Zero means that the lab does not know, as of
// Exec subjects.
type Spec struct {
	// Name as in records: "synclab/iptables-legacy", "kube-proxy/nftables", "kube-proxy@v1.34.2/nftables",
	// "synclab@src:NAME/nftables", "exec:NAME", with the suffixes of its settings: "synclab/nftables+tuned".
	Name string
	Settings
	// Proxier is Synclab, KubeProxy, Cilium or Exec.
	Proxier string
	// Version of KubeProxy, such as v1.34.2; of Synclab, a revision that git knows; of both, src:NAME of a checkout. Empty:
	// the run's version.
	Version string
	// Source is the folder of the checkout. Records have only its NAME, and run.json the digest of the build.
	Source string
	// ConfigFile and ToolsRoot are the paths behind Config and Tools. Records have only these names.
	ConfigFile, ToolsRoot string
	// Command of an Exec subject: words, in which a run replaces {config}, {kubeconfig} and {node}.
	Command []string
	// Own: it is Synclab's own proxier, which can run in the lab's process, logs each sync, and whose exact rules are known.
	Own bool
	// HasMetrics: it serves metrics under kube-proxy's names, and answers at the health check NodePorts of Services. Exec
	// subjects may.
	HasMetrics bool
	// OwnOptions: it reads no KubeProxyConfiguration.
	OwnOptions bool
	// Stdin is what its process reads when it starts.
	Stdin string
	start func(Spec, Process) (path string, args, env []string)
	Mode
}

// Mode is what a proxier writes into the kernel, and how. Its name is the second part of a subject's name.
type Mode struct {
	mode string
	// Backend is set only if the subject behaves as kube-proxy's mode of that name: its settings, the names in its rules, and
	// what its tables have then follow. Empty: the lab does not know it.
	Backend proxier.BackendKind
	// Variant of iptables; empty for other backends.
	Variant iptables.Variant
	// Layout of the iptables rules of the lab's own proxier; empty: classic, or none.
	Layout iptables.Layout
	// Carrier decides where packets go.
	Carrier Carrier
	// Tables are its own tables in nf_tables.
	Tables []string
	// RulesetReader is the reader of its rules, for package visible; empty: to be detected.
	RulesetReader string
	// Tool writes its rules; empty: none that the lab knows.
	Tool string
	// FullSyncHourly: it writes everything each hour, also in clusters of more than backend.LargeCluster endpoints.
	FullSyncHourly bool
	// CanaryLocks: its check of the canary chain takes the xtables lock. A check that fails counts as a flush.
	CanaryLocks bool
	// Superlinear: its syncs take more time per Service in larger clusters, so that the first cells of a plan are small.
	Superlinear bool
	// kernel returns an error if the machine's kernel lacks what it needs; nil: every kernel has that.
	kernel func() error
}

// Carrier decides where packets go. The zero value is that of Exec subjects, whose carrier the lab does not know.
type Carrier int

const (
	// Rules of iptables or nftables alone.
	Rules Carrier = iota + 1
	// VirtualServers of IPVS.
	VirtualServers
	// Relay is the proxier's process, to which rules lead.
	Relay
	// Sockets: BPF programs choose endpoints at the sockets of the node. It writes BPF maps and no tables.
	Sockets
)

// The proxiers of a Spec.
const (
	Synclab   = "synclab"
	KubeProxy = "kube-proxy"
	Cilium    = "cilium"
	Exec      = "exec"
)

// IPVS is a backend of kube-proxy that Synclab's own proxier does not have. Not every kernel has it.
const IPVS proxier.BackendKind = "ipvs"

// All returns all subjects that have names.
func All() []Spec { return slices.Concat(synclabs(), kubeProxies(), ciliums()) }

// with returns the subjects of a proxier, one for each mode.
func (s Spec) with(modes ...Mode) (all []Spec) {
	for _, m := range modes {
		s.Name, s.Mode = s.Proxier+"/"+m.mode, m
		all = append(all, s)
	}
	return all
}

// iptablesRules is the mode of a proxier that writes kube-proxy's rules with iptables-restore.
func iptablesRules(variant iptables.Variant) Mode {
	name := "iptables-" + string(variant)
	return Mode{
		mode: name, Backend: proxier.Iptables, Variant: variant, Carrier: Rules, RulesetReader: name,
		Tool: iptables.Binary(variant, corev1.IPv4Protocol, "restore"),
	}
}

// Own returns the lab's own proxier with each backend whose rules alone carry packets.
func Own() []Spec {
	return slices.DeleteFunc(All(), func(s Spec) bool { return !s.Own || !s.RulesCarry() })
}

// Parse returns the subject with a name, which may have a version, "kube-proxy@v1.34.2/nftables", a revision of Synclab,
// "synclab@HEAD~1/nftables", or a checkout of either, "kube-proxy@src:NAME=DIR/nftables". It makes a subject of
// "exec:NAME=COMMAND ARG…". Spaces separate the words of the command; quotes have no meaning.
func Parse(text string) (Spec, error) {
	if rest, ok := strings.CutPrefix(text, Exec+":"); ok {
		name, command, _ := strings.Cut(rest, "=")
		words := strings.Fields(command)
		if name == "" || len(words) == 0 {
			return Spec{}, fmt.Errorf("subject %q: want exec:NAME=COMMAND ARG…", text)
		}
		return Spec{Proxier: Exec, Command: words, start: startCommand}.withSettings(Exec + ":" + name)
	}
	program, mode := cutMode(text)
	proxier, build, built := strings.Cut(program, "@")
	base, _, _ := strings.Cut(mode, "+")
	for _, s := range All() {
		if s.Name != proxier+"/"+base {
			continue
		}
		if built {
			var err error
			if s.Version, s.Source, err = cutBuild(proxier, build); err != nil {
				return Spec{}, fmt.Errorf("subject %q: %w", text, err)
			}
			proxier += "@" + s.Version
		}
		return s.withSettings(proxier + "/" + mode)
	}
	var known []string
	for _, s := range All() {
		known = append(known, s.Name)
	}
	return Spec{}, fmt.Errorf("subject %q is not known; want one of %s, kube-proxy@VERSION/…, synclab@REVISION/…, either@src:NAME=DIR/…, or exec:NAME=COMMAND…", text, strings.Join(known, ", "))
}

// Named returns the subject with a name. Nothing is known of a name that Parse refuses, such as that of an Exec subject in
// records, which have no commands.
func Named(name string) Spec {
	s, _ := Parse(name)
	return s
}

// cutMode splits "kube-proxy@src:NAME=DIR/nftables+config:NAME=FILE" before the mode. Folders and files have slashes and
// plus signs, too: the mode is the first one that ends before a plus sign or at the end.
func cutMode(text string) (program, mode string) {
	for end := range len(text) + 1 {
		if end < len(text) && text[end] != '+' {
			continue
		}
		slash := strings.LastIndexByte(text[:end], '/')
		if slash >= 0 && slices.ContainsFunc(All(), func(s Spec) bool { return strings.HasSuffix(s.Name, text[slash:end]) }) {
			return text[:slash], text[slash+1:]
		}
	}
	program, mode, _ = strings.Cut(text, "/")
	return program, mode
}

var (
	// checkout is a build of a checkout: its name, and its folder, which a name of records lacks.
	checkout = regexp.MustCompile(`^(src:[A-Za-z0-9][A-Za-z0-9._-]{0,40})(?:=(.+))?$`)
	// revision is what git rev-parse may get.
	revision = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/~^-]{0,60}$`)
)

// cutBuild reads what follows the @ of a subject.
func cutBuild(proxier, build string) (version, source string, err error) {
	if strings.HasPrefix(build, "src:") && (proxier == KubeProxy || proxier == Synclab) {
		parts := checkout.FindStringSubmatch(build)
		if parts == nil {
			return "", "", fmt.Errorf("want %s@src:NAME=DIR/MODE, with a NAME of letters, digits, dots and hyphens", proxier)
		}
		return parts[1], parts[2], nil
	}
	switch {
	case proxier == KubeProxy:
		version, err = upstream.ParseVersion(build)
	case proxier != Synclab:
		err = fmt.Errorf("%s has no versions", proxier)
	case !revision.MatchString(build):
		err = fmt.Errorf("%q is no revision of git: want a commit, a tag or a branch", build)
	default:
		version = build
	}
	return version, "", err
}

// Program returns the name of the subject's program in run.json, which subjects of one build share.
func (s Spec) Program() string {
	switch {
	case s.Proxier == Exec:
		return s.Name
	case s.Version != "":
		return s.Proxier + "@" + s.Version
	}
	return s.Proxier
}

// IsKubeProxy reports whether a name is that of a kube-proxy, of any version.
func IsKubeProxy(name string) bool { return IsBaseline(name) || strings.HasPrefix(name, KubeProxy+"@") }

// IsBaseline reports whether a name is that of a kube-proxy of the run's version, with which others are compared.
func IsBaseline(name string) bool { return strings.HasPrefix(name, KubeProxy+"/") }

// Baseline returns the kube-proxy with default settings that writes to the same tables as the subject, with any version and
// layout. It is empty if unknown.
func (s Spec) Baseline() string {
	switch {
	case s.Variant != "":
		return KubeProxy + "/iptables-" + string(s.Variant)
	case s.Backend != "":
		return KubeProxy + "/" + string(s.Backend)
	}
	return ""
}

// Build builds the subject's program if necessary, and returns its path and version. A kube-proxy is that of the run's
// options, unless its name says another. The path is empty if the program is this one.
func (s Spec) Build(ctx context.Context, run upstream.Options) (path, version string, err error) {
	if s.Version != "" {
		run.Path, run.Source, run.Version = "", s.Source, s.Version
	}
	switch {
	case s.Proxier == KubeProxy:
		return upstream.KubeProxy(ctx, run)
	case s.Proxier == Synclab && s.Version != "":
		path, err = upstream.Synclab(ctx, run)
		return path, s.Version, err
	}
	return "", "", nil
}

// Available returns an error if the machine lacks the tool that writes the subject's rules.
func (s Spec) Available() error {
	if s.Tool == "" {
		return nil
	}
	if _, err := iptables.FindBinary(s.Tool); err != nil {
		return fmt.Errorf("subject %s: %w", s.Name, err)
	}
	return nil
}

// WithTools returns the names of subjects whose tools this machine has. It also returns unknown names, which fail later
// with an error. lacking describes the omitted subjects and their missing tools; empty: none.
func WithTools(names []string) (there []string, lacking string) {
	return withTools(names, func(tool string) bool {
		_, err := iptables.FindBinary(tool)
		return err == nil
	})
}

func withTools(names []string, has func(tool string) bool) (there []string, lacking string) {
	var tools []string
	without := map[string][]string{} // by tool
	for _, name := range names {
		tool := Named(name).Tool
		if tool == "" || has(tool) {
			there = append(there, name)
			continue
		}
		if without[tool] == nil {
			tools = append(tools, tool)
		}
		without[tool] = append(without[tool], name)
	}
	var parts []string
	for _, tool := range tools {
		parts = append(parts, fmt.Sprintf("%s, since %s is missing (package %s)", strings.Join(without[tool], ", "), tool, iptables.Package(tool)))
	}
	return there, strings.Join(parts, "; ")
}

// DefaultSubjects returns the default subject of a run: the lab's proxier with iptables. It writes kube-proxy's rules,
// so its results apply to most clusters. Variant legacy comes first, since an ordinary user can run it at any size (see
// kernel.SendLimit). Without iptables it is nftables, which needs no tool.
func DefaultSubjects() []string {
	for _, subject := range All() {
		if subject.Own && subject.Available() == nil {
			return []string{subject.Name}
		}
	}
	return nil // never reached: nftables is always available
}

// ComparedSubjects returns the default subjects of a comparison: kube-proxy's modes iptables and nftables, and the lab's own
// proxier in the same modes, in layout classic. See WithTools for missing tools.
func ComparedSubjects() []string {
	var names []string
	for _, subject := range All() {
		if !subject.Tree() && subject.RulesCarry() {
			names = append(names, subject.Name)
		}
	}
	return names
}

// TargetSubjects returns the subjects that a scenario's targets name.
func TargetSubjects(s *scenarios.Scenario) []string {
	var names []string
	for _, t := range s.Targets {
		for _, name := range []string{t.Subject, t.Beside} {
			if name != "" && !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}

// KnownBackend reports whether the lab knows the subject's backend, so that it can read, count and empty its rules.
func (s Spec) KnownBackend() bool { return s.Backend != "" }

// Iptables reports whether iptables-save prints the subject's rules.
func (s Spec) Iptables() bool { return s.Variant != "" }

// Legacy reports whether the subject's rules are in legacy tables, so that its tools take the xtables lock.
func (s Spec) Legacy() bool { return s.Variant == iptables.Legacy }

// Nftables reports whether the subject's rules are in tables of its own in nf_tables.
func (s Spec) Nftables() bool { return len(s.Tables) > 0 }

// Tree reports whether a tree of address prefixes dispatches packets to Services.
func (s Spec) Tree() bool { return s.Layout == iptables.Tree }

// Classic reports whether the subject writes kube-proxy's rules of mode iptables, as in layout classic.
func (s Spec) Classic() bool { return s.Carrier == Rules && s.Iptables() && !s.Tree() }

// KernelInterface is the kernel interface that most of the subject's writes use: legacy or nf_tables. It is empty if
// unknown. No tool writes the servers of IPVS, and a Relay has far fewer rules.
func (s Spec) KernelInterface() string {
	switch {
	case s.Carrier != Rules:
		return ""
	case s.Legacy():
		return "legacy"
	}
	return "nf_tables"
}

// CheckKernel returns an error if the machine's kernel lacks what the subject needs.
func (s Spec) CheckKernel() error {
	if s.kernel == nil {
		return nil
	}
	return s.kernel()
}

// HasTools reports whether the subject writes rules with tools, which the shim sees. Exec subjects may.
func (s Spec) HasTools() bool { return s.Tool != "" || len(s.Command) > 0 }

// OldHealthPorts reports whether answers at health check NodePorts may lack what kube-proxy 1.30 and later put there:
// serviceProxyHealthy, and a header with the number of endpoints.
func (s Spec) OldHealthPorts(version string) bool {
	minor := upstream.Minor(version)
	return s.Proxier == Exec || s.Proxier == KubeProxy && minor > 0 && minor < 30
}

// ClusterIPsOnly reports whether packets to other addresses of Services reach no endpoint: Cilium has further programs for
// them, which Synclab does not run.
func (s Spec) ClusterIPsOnly() bool { return s.Carrier == Sockets }

// RulesCarry reports whether rules of iptables or nftables alone decide where packets go. Those of Exec subjects may.
func (s Spec) RulesCarry() bool { return s.Carrier == Rules || s.Carrier == 0 }

// OfProcess reports whether the subject can only be measured as a separate process.
func (s Spec) OfProcess() bool {
	return s.Carrier == Relay || s.Version != "" || s.Settings.OfProcess()
}

// Writes reports whether a call writes rules of the subject's backend.
func (s Spec) Writes(c shim.Call) bool {
	asks := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(c.Args, word) })
	}
	if c.Tool == "nft" {
		return s.Backend != proxier.Iptables && asks("-f", "--file") && !asks("-c", "--check")
	}
	return s.Backend != proxier.Nftables && strings.HasSuffix(c.Tool, "-restore") && !asks("-t", "--test", "-V", "--version")
}
