package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"synclab/bench/machine"
	"synclab/cmd/synclab/terminal"
)

// buildVersion is the output of `synclab version`.
type buildVersion struct {
	Synclab  string `json:"synclab"`
	Commit   string `json:"commit,omitempty"`
	Modified bool   `json:"modified,omitempty"` // built from files that differ from the commit
	Go       string `json:"go"`
	Platform string `json:"platform"`
	// KubeProxy is the release whose configuration and behaviour the proxier follows.
	KubeProxy string `json:"kubeProxy,omitempty"`
}

func newVersion(s streams) *cobra.Command {
	var format terminal.Format
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print what this binary was built from",
		Example: "  synclab version\n  synclab version -o json",
		Args:    argCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			v := versionOf(debug.ReadBuildInfo())
			if v.Commit == "" {
				v.Commit = machine.Commit
			}
			return format.Write(s.out, v, func(w io.Writer) error { return v.table(w) })
		},
	}
	format.Register(cmd)
	return cmd
}

func versionOf(build *debug.BuildInfo, known bool) buildVersion {
	v := buildVersion{Synclab: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if !known {
		return v
	}
	if build.Main.Version != "" {
		v.Synclab = build.Main.Version
	}
	for _, setting := range build.Settings {
		switch setting.Key {
		case "vcs.revision":
			v.Commit = setting.Value
		case "vcs.modified":
			v.Modified = setting.Value == "true"
		}
	}
	for _, module := range build.Deps {
		if module.Path == "k8s.io/kube-proxy" { // v0.36.3 is published with Kubernetes v1.36.3
			v.KubeProxy = module.Version
		}
	}
	return v
}

func (v buildVersion) table(w io.Writer) error {
	commit := v.Commit
	if commit == "" {
		commit = "not recorded"
	} else if v.Modified {
		commit += " and changes on top"
	}
	return terminal.Columns(w,
		[]string{"synclab", v.Synclab},
		[]string{"commit", commit},
		[]string{"go", fmt.Sprintf("%s (%s)", v.Go, v.Platform)},
		[]string{"k8s.io/kube-proxy", v.KubeProxy},
	)
}
