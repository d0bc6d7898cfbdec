package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/iptables"
)

// Subject is one thing that can be measured: a proxier and its backend.
type Subject struct {
	// Name as in records: "synclab/iptables-legacy", "kube-proxy/nftables", "exec:NAME".
	Name string
	// Proxier is Synclab, KubeProxy or Exec.
	Proxier string
	// Backend is "iptables" or "nftables"; empty when the lab does not know.
	Backend string
	// Variant of iptables; empty for other backends.
	Variant iptables.Variant
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
		{Name: "synclab/iptables-legacy", Proxier: Synclab, Backend: "iptables", Variant: iptables.Legacy},
		{Name: "synclab/iptables-nft", Proxier: Synclab, Backend: "iptables", Variant: iptables.Nft},
		{Name: "kube-proxy/iptables-legacy", Proxier: KubeProxy, Backend: "iptables", Variant: iptables.Legacy},
		{Name: "kube-proxy/iptables-nft", Proxier: KubeProxy, Backend: "iptables", Variant: iptables.Nft},
		{Name: "kube-proxy/nftables", Proxier: KubeProxy, Backend: "nftables"},
	}
}

// ParseSubject finds a subject by its name, or makes one of "exec:NAME=COMMAND ARG…". Words of the command are
// separated by spaces; quotes have no meaning.
func ParseSubject(text string) (Subject, error) {
	if rest, ok := strings.CutPrefix(text, Exec+":"); ok {
		name, command, _ := strings.Cut(rest, "=")
		words := strings.Fields(command)
		if name == "" || len(words) == 0 {
			return Subject{}, fmt.Errorf("subject %q: want exec:NAME=COMMAND ARG…", text)
		}
		return Subject{Name: Exec + ":" + name, Proxier: Exec, Command: words}, nil
	}
	var known []string
	for _, s := range Subjects() {
		if s.Name == text {
			return s, nil
		}
		known = append(known, s.Name)
	}
	return Subject{}, fmt.Errorf("subject %q is not known; want one of %s, or exec:NAME=COMMAND…", text, strings.Join(known, ", "))
}

// Available says whether the machine has the tool that the subject writes rules with; nil: it has.
func (s Subject) Available() error {
	tool := ""
	switch {
	case s.Variant != "":
		tool = iptables.Binary(s.Variant, corev1.IPv4Protocol, "restore")
	case s.Backend == "nftables":
		tool = "nft"
	default:
		return nil
	}
	if _, err := iptables.FindBinary(tool); err != nil {
		return fmt.Errorf("subject %s: %w", s.Name, err)
	}
	return nil
}

// DefaultSubjects are what this machine can run at any size: the legacy variant, or the nft variant where there is no
// other. (iptables-nft-restore takes minutes for a few thousand Services in one restore.)
func DefaultSubjects() ([]string, error) {
	for _, subject := range Subjects() {
		if subject.Proxier == Synclab && subject.Available() == nil {
			return []string{subject.Name}, nil
		}
	}
	return nil, errors.New("no iptables on this machine: run 'make deps', or install the package iptables")
}

// AllSubjects are the names of all subjects that this machine has the tools for: what a comparison takes.
func AllSubjects() ([]string, error) {
	var names []string
	for _, subject := range Subjects() {
		if subject.Available() == nil {
			names = append(names, subject.Name)
		}
	}
	if len(names) == 0 {
		return nil, errors.New("neither iptables nor nft on this machine: run 'make deps', or install the packages iptables and nftables")
	}
	return names, nil
}

// feedFor is how objects reach subjects when nobody said it: through the API as soon as one of them is no part of this
// program, so that all are fed, and measured, alike.
func feedFor(subjects []Subject) string {
	if slices.ContainsFunc(subjects, func(s Subject) bool { return s.Proxier != Synclab }) {
		return FeedAPI
	}
	return FeedInformers
}
