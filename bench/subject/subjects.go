package subject

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/shim"
	"synclab/bench/upstream"
	"synclab/bench/visible"
	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// Spec is a proxy that can be measured: a proxier and its backend.
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
	// Backend of the proxier; empty if the lab does not know it.
	Backend proxier.BackendKind
	// Variant of iptables; empty for other backends.
	Variant iptables.Variant
	// Layout of the iptables rules of the lab's own proxier; empty: classic, or none.
	Layout iptables.Layout
	// Command of an Exec subject: words, in which a run replaces {config}, {kubeconfig} and {node}.
	Command []string
}

// The proxiers of a Spec.
const (
	Synclab   = "synclab"
	KubeProxy = "kube-proxy"
	// Cilium is the control plane of Cilium's load balancer. It writes BPF maps, over which package socketlb runs Cilium's
	// programs.
	Cilium = "cilium"
	Exec   = "exec"
)

// IPVS is a backend of kube-proxy that Synclab's own proxier does not have. Not every kernel has it.
const IPVS proxier.BackendKind = "ipvs"

// All returns all subjects that have names.
func All() []Spec {
	return []Spec{
		{Name: "synclab/iptables-legacy", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Legacy},
		{Name: "synclab/iptables-nft", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Nft},
		{Name: "synclab/iptables-legacy-tree", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Legacy, Layout: iptables.Tree},
		{Name: "synclab/iptables-nft-tree", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Nft, Layout: iptables.Tree},
		{Name: "synclab/nftables", Proxier: Synclab, Backend: proxier.Nftables},
		{Name: "synclab/userspace", Proxier: Synclab, Backend: proxier.Userspace, Variant: iptables.Legacy},
		{Name: "kube-proxy/iptables-legacy", Proxier: KubeProxy, Backend: proxier.Iptables, Variant: iptables.Legacy},
		{Name: "kube-proxy/iptables-nft", Proxier: KubeProxy, Backend: proxier.Iptables, Variant: iptables.Nft},
		{Name: "kube-proxy/nftables", Proxier: KubeProxy, Backend: proxier.Nftables},
		{Name: "kube-proxy/ipvs", Proxier: KubeProxy, Backend: IPVS},
		{Name: "cilium/lb", Proxier: Cilium},
	}
}

// Own returns the lab's own proxier with each backend whose rules alone carry packets.
func Own() []Spec {
	return slices.DeleteFunc(All(), func(s Spec) bool { return s.Proxier != Synclab || !s.RulesCarry() })
}

// OwnTables are the nf_tables tables of each proxier with the backend nftables. The lab's own proxier has two: it fills
// one while packets still traverse the other.
var OwnTables = map[string][]string{Synclab: {"synclab", "synclab-2"}, KubeProxy: {"kube-proxy"}}

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
		return Spec{Proxier: Exec, Command: words}.withSettings(Exec + ":" + name)
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
func IsKubeProxy(name string) bool {
	return strings.HasPrefix(name, KubeProxy+"/") || strings.HasPrefix(name, KubeProxy+"@")
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

// Gate returns the feature gate that a version of kube-proxy needs for the subject's mode; empty: none. Mode nftables was
// behind a gate before 1.31. Later versions may refuse the gate.
func (s Spec) Gate(version string) string {
	minor := upstream.Minor(version)
	if s.Proxier == KubeProxy && s.Backend == proxier.Nftables && minor > 0 && minor < 31 {
		return "NFTablesProxyMode"
	}
	return ""
}

// Tool returns the tool that writes the subject's rules; empty: none that the lab knows. The lab's own proxier needs
// none for nftables, because it uses netlink.
func (s Spec) Tool() string {
	switch {
	case s.Variant != "":
		return iptables.Binary(s.Variant, corev1.IPv4Protocol, "restore")
	case s.Backend == proxier.Nftables && s.Proxier != Synclab:
		return "nft"
	case s.Backend == IPVS:
		return "ipset"
	}
	return ""
}

// Available returns an error if the machine lacks the tool that writes the subject's rules.
func (s Spec) Available() error {
	tool := s.Tool()
	if tool == "" {
		return nil
	}
	if _, err := iptables.FindBinary(tool); err != nil {
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
		subject, err := Parse(name)
		tool := subject.Tool()
		if err != nil || tool == "" || has(tool) {
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
		if subject.Proxier == Synclab && subject.Available() == nil {
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
		if subject.Layout == "" && subject.RulesCarry() {
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

// RulesetReader returns the reader of the subject's rules, for package visible; empty: to be detected.
func (s Spec) RulesetReader() string {
	switch {
	case s.Backend == proxier.Nftables && s.Proxier == Synclab:
		return visible.SynclabNftables
	case s.Backend == proxier.Nftables:
		return visible.Nftables
	case s.Backend == IPVS:
		return visible.IPVS
	case s.Backend == proxier.Userspace:
		return visible.Userspace
	case s.Proxier == Cilium:
		return visible.Cilium
	case s.Variant != "":
		return "iptables-" + string(s.Variant)
	}
	return ""
}

// HasTools reports whether the subject writes rules with tools, which the shim sees.
func (s Spec) HasTools() bool {
	return s.Proxier != Cilium && (s.Proxier != Synclab || s.Backend != proxier.Nftables)
}

// HasMetrics reports whether the subject serves metrics under kube-proxy's names. Exec subjects may.
func (s Spec) HasMetrics() bool { return s.Proxier == Synclab || s.Proxier == KubeProxy }

// ServesHealthPorts reports whether the subject is known to answer at the health check NodePorts of Services.
func (s Spec) ServesHealthPorts() bool { return s.HasMetrics() }

// OldHealthPorts reports whether answers at health check NodePorts may lack what kube-proxy 1.30 and later put there:
// serviceProxyHealthy, and a header with the number of endpoints.
func (s Spec) OldHealthPorts(version string) bool {
	minor := upstream.Minor(version)
	return s.Proxier == Exec || s.Proxier == KubeProxy && minor > 0 && minor < 30
}

// ClusterIPsOnly reports whether packets to other addresses of Services reach no endpoint: Cilium has further programs for
// them, which Synclab does not run.
func (s Spec) ClusterIPsOnly() bool { return s.Proxier == Cilium }

// Stdin is what the subject's process reads when it starts: the program of Cilium waits for commands.
func (s Spec) Stdin() string {
	if s.Proxier == Cilium {
		return "hive/start\n"
	}
	return ""
}

// RulesCarry reports whether rules of iptables or nftables alone decide where packets go. The lab does not know that of
// Exec subjects.
func (s Spec) RulesCarry() bool {
	return s.Backend != IPVS && s.Backend != proxier.Userspace && s.Proxier != Cilium
}

// OfProcess reports whether the subject can only be measured as a separate process.
func (s Spec) OfProcess() bool {
	return s.Backend == proxier.Userspace || s.Version != "" || s.Settings.OfProcess()
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
