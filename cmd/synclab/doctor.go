package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/lab/machine"
	"synclab/bench/raw"
	"synclab/cmd/synclab/terminal"
)

func newDoctor(s streams) *cobra.Command {
	var format terminal.Format
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what this machine can and cannot run, and why",
		Long: `Doctor checks what the lab needs: namespaces as root or as an ordinary user, the
iptables variants and nft with their versions, the requirements to build kube-proxy
and whether it is built, the kernel's matches, and limits. It tries rules in separate
namespaces. On the machine itself it creates the cache folder and changes nothing
else. Its exit status is 1 when no subject can run here.`,
		Example: "  synclab doctor\n  synclab doctor -o json",
		Args:    argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := diagnosis{machine.DetectVersions(cmd.Context()), machine.DetectMachine(), machine.Examine(cmd.Context())}
			if err := cmd.Context().Err(); err != nil {
				return err // an interrupted check looks like a defect of the machine
			}
			return examine(s.out, format, findings)
		},
	}
	format.Register(cmd)
	return cmd
}

// diagnosis is the output of `synclab doctor`.
type diagnosis struct {
	Versions raw.Versions    `json:"versions"`
	Machine  raw.Machine     `json:"machine"`
	Checks   []machine.Check `json:"checks"`
}

// restoreChecks are the checks of which one must succeed, by the name of the tool.
var restoreChecks = []string{"iptables-legacy-restore", "iptables-nft-restore"}

// usable reports whether at least one subject can run.
func (d diagnosis) usable() bool {
	return slices.ContainsFunc(d.Checks, func(c machine.Check) bool {
		return slices.Contains(restoreChecks, c.Name) && (c.Status == machine.OK || c.Status == machine.Warn)
	})
}

// examine prints the diagnosis. It fails if no subject can run.
func examine(w io.Writer, format terminal.Format, d diagnosis) error {
	err := format.Write(w, d, func(w io.Writer) error { return d.table(w) })
	if err == nil && !d.usable() {
		err = errors.New("no subject can run on this machine")
	}
	return err
}

func (d diagnosis) table(w io.Writer) error {
	var rows [][]string
	var remedies []string
	for _, c := range d.Checks {
		rows = append(rows, []string{c.Name, string(c.Status), c.Detail})
		if c.Remedy != "" && c.Status != machine.OK {
			remedies = append(remedies, c.Name+": "+c.Remedy+installs(c.Remedy, exec.LookPath))
		}
	}
	if err := terminal.Columns(w, rows...); err != nil {
		return err
	}
	if len(remedies) > 0 {
		fmt.Fprintln(w, "\nWhat can be done:")
	}
	for _, remedy := range remedies {
		fmt.Fprintln(w, "  "+remedy)
	}
	return nil
}

// managers install packages, by Debian's name or by those in its place. Synclab was only tried with the first.
var managers = []struct {
	tool, command string
	names         map[string]string
}{
	{"apt-get", "apt-get install -y", nil},
	{"dnf", "dnf install -y --setopt=strict=0", map[string]string{"iptables": "iptables-nft iptables-legacy", "iproute2": "iproute"}},
	{"apk", "apk add", map[string]string{"iptables": "iptables iptables-legacy"}},
	{"pacman", "pacman -S --needed", nil},
	{"zypper", "zypper install", nil},
}

var packageOf = regexp.MustCompile(`install the (\S+) package`)

// installs returns the command that installs the package which a remedy names; empty if the remedy or the system has none.
func installs(remedy string, look func(tool string) (string, error)) string {
	name := packageOf.FindStringSubmatch(remedy)
	for i, m := range managers {
		if _, err := look(m.tool); name == nil || err != nil {
			continue
		}
		command := fmt.Sprintf(": as root, %s %s", m.command, cmp.Or(m.names[name[1]], name[1]))
		if i > 0 {
			command += " (untried on this system)"
		}
		return command
	}
	return ""
}

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
			v := thisVersion()
			return format.Write(s.out, v, func(w io.Writer) error { return v.table(w) })
		},
	}
	format.Register(cmd)
	return cmd
}

func thisVersion() buildVersion {
	v := versionOf(debug.ReadBuildInfo())
	if v.Commit == "" {
		v.Commit = machine.Commit
	}
	return v
}

// versionText is the output of --version, the same as that of the command.
func versionText() string {
	var text strings.Builder
	if err := thisVersion().table(&text); err != nil {
		return err.Error()
	}
	return text.String()
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
