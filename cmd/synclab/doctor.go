package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"synclab/bench/machine"
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
			remedies = append(remedies, c.Name+": "+c.Remedy)
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
