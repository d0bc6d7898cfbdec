package bench

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier"
	"synclab/proxier/iptables"
	"synclab/scenarios"
)

// Subject is one thing that can be measured: a proxier and its backend.
type Subject struct {
	// Name as in records: "synclab/iptables-legacy", "kube-proxy/nftables", "exec:NAME", with the suffixes of its settings:
	// "synclab/nftables+tuned".
	Name string
	// Base is the Name without suffixes.
	Base string
	Settings
	// Proxier is Synclab, KubeProxy or Exec.
	Proxier string
	// Backend is one of proxier's; empty when the lab does not know.
	Backend proxier.BackendKind
	// Variant of iptables; empty for other backends.
	Variant iptables.Variant
	// Layout of the lab's own rules in iptables; empty: classic, or none.
	Layout iptables.Layout
	// Command of an Exec subject: words, in which {config}, {kubeconfig} and {node} stand for what a run puts there.
	Command []string
}

// The proxiers a Subject can be.
const (
	Synclab   = "synclab"
	KubeProxy = "kube-proxy"
	Exec      = "exec"
)

// Subjects are all that the lab knows by name.
func Subjects() []Subject {
	return []Subject{
		{Name: "synclab/iptables-legacy", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Legacy},
		{Name: "synclab/iptables-nft", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Nft},
		{Name: "synclab/iptables-legacy-tree", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Legacy, Layout: iptables.Tree},
		{Name: "synclab/iptables-nft-tree", Proxier: Synclab, Backend: proxier.Iptables, Variant: iptables.Nft, Layout: iptables.Tree},
		{Name: "synclab/iptables-legacy-direct", Proxier: Synclab, Backend: proxier.Direct, Variant: iptables.Legacy},
		{Name: "synclab/iptables-legacy-direct-tree", Proxier: Synclab, Backend: proxier.Direct, Variant: iptables.Legacy, Layout: iptables.Tree},
		{Name: "synclab/nftables", Proxier: Synclab, Backend: proxier.Nftables},
		{Name: "kube-proxy/iptables-legacy", Proxier: KubeProxy, Backend: proxier.Iptables, Variant: iptables.Legacy},
		{Name: "kube-proxy/iptables-nft", Proxier: KubeProxy, Backend: proxier.Iptables, Variant: iptables.Nft},
		{Name: "kube-proxy/nftables", Proxier: KubeProxy, Backend: proxier.Nftables},
	}
}

// ownTables are the nf_tables tables of a proxier with the backend nftables. The lab's own fills one while packets still
// meet the other.
var ownTables = map[string][]string{Synclab: {"synclab", "synclab-2"}, KubeProxy: {"kube-proxy"}}

// ParseSubject finds a subject by its name, or makes one of "exec:NAME=COMMAND ARG…". Words of the command are
// separated by spaces; quotes have no meaning.
func ParseSubject(text string) (Subject, error) {
	if rest, ok := strings.CutPrefix(text, Exec+":"); ok {
		name, command, _ := strings.Cut(rest, "=")
		words := strings.Fields(command)
		if name == "" || len(words) == 0 {
			return Subject{}, fmt.Errorf("subject %q: want exec:NAME=COMMAND ARG…", text)
		}
		return Subject{Proxier: Exec, Command: words}.withSettings(Exec + ":" + name)
	}
	base, _, _ := strings.Cut(text, "+")
	var known []string
	for _, s := range Subjects() {
		if s.Name == base {
			return s.withSettings(text)
		}
		known = append(known, s.Name)
	}
	return Subject{}, fmt.Errorf("subject %q is not known; want one of %s, or exec:NAME=COMMAND…", text, strings.Join(known, ", "))
}

// tool is what the subject writes rules with; empty: none that the lab knows. The lab's own proxier needs none for
// nftables: it speaks netlink.
func (s Subject) tool() string {
	switch {
	case s.Variant != "":
		return iptables.Binary(s.Variant, corev1.IPv4Protocol, "restore")
	case s.Backend == proxier.Nftables && s.Proxier != Synclab:
		return "nft"
	}
	return ""
}

// Available says whether the machine has the tool that the subject writes rules with; nil: it has.
func (s Subject) Available() error {
	tool := s.tool()
	if tool == "" {
		return nil
	}
	if _, err := iptables.FindBinary(tool); err != nil {
		return fmt.Errorf("subject %s: %w", s.Name, err)
	}
	return nil
}

// WithTools are the names of subjects that this machine has the tools for, and of such as are not known: those are refused
// later, by their names. lacking says in words which are left out and for want of what; empty: none.
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
		subject, err := ParseSubject(name)
		tool := subject.tool()
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
		parts = append(parts, fmt.Sprintf("%s for want of %s (package %s)", strings.Join(without[tool], ", "), tool, iptables.Package(tool)))
	}
	return there, strings.Join(parts, "; ")
}

// DefaultSubjects are what a run measures where nobody chose: the lab's proxier with iptables, whose rules are
// kube-proxy's, so that what it shows is true of most clusters. The legacy variant goes before nft, since it is the one
// that an ordinary user can run at any size (see kernel.SendLimit); where there is no iptables, nftables needs no tool.
func DefaultSubjects() []string {
	for _, subject := range Subjects() {
		if subject.Proxier == Synclab && subject.Available() == nil {
			return []string{subject.Name}
		}
	}
	return nil // never: nftables is always there
}

// ComparedSubjects are what a comparison takes where nobody chose, as far as this machine has the tools for them (see
// WithTools): every mode of kube-proxy beside the lab's own proxier in the same mode and layout.
func ComparedSubjects() []string {
	var names []string
	for _, subject := range Subjects() {
		if subject.Layout == "" && subject.Backend != proxier.Direct {
			names = append(names, subject.Name)
		}
	}
	return names
}

// TargetSubjects are the subjects that a scenario's targets name.
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

// feedFor is how objects reach subjects when nobody said it: through the API as soon as one of them is no part of this
// program, or has settings of a process, so that all are fed, and measured, alike; and where a step needs to know when the kernel has a change.
func feedFor(subjects []Subject, s *scenarios.Scenario) string {
	if sendsFlows(s) || slices.ContainsFunc(s.Steps, func(step scenarios.Step) bool { return step.Check != nil }) {
		return FeedAPI
	}
	if slices.ContainsFunc(subjects, func(s Subject) bool { return s.Proxier != Synclab || s.ofProcess() }) {
		return FeedAPI
	}
	return FeedInformers
}
