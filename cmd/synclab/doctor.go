package main

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"synclab/bench"
)

func newDoctor(s streams) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can run and what it cannot, and why",
		Long: `Doctor looks at what the lab needs: namespaces as root or as an ordinary user,
the iptables variants and nft with their versions, what building kube-proxy
takes and whether that was done, the kernel's matches, and limits. It tries rules
in namespaces of its own; on the machine it makes the cache folder and changes
nothing else. Its exit status is 1 when no subject can run here.`,
		Example: "  synclab doctor\n  synclab doctor -o json",
		Args:    argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			findings := diagnosis{bench.DetectVersions(cmd.Context()), bench.DetectMachine(), bench.Examine(cmd.Context())}
			if err := cmd.Context().Err(); err != nil {
				return err // what was cut short looks like a defect of the machine
			}
			return examine(s.out, format, findings)
		},
	}
	format.register(cmd)
	return cmd
}

// diagnosis is what `synclab doctor` prints.
type diagnosis struct {
	Versions bench.Versions `json:"versions"`
	Machine  bench.Machine  `json:"machine"`
	Checks   []bench.Check  `json:"checks"`
}

// restoreChecks are those that a subject needs one of, by the name of the tool.
var restoreChecks = []string{"iptables-legacy-restore", "iptables-nft-restore"}

// usable says whether at least one subject can run.
func (d diagnosis) usable() bool {
	return slices.ContainsFunc(d.Checks, func(c bench.Check) bool {
		return slices.Contains(restoreChecks, c.Name) && (c.Status == bench.OK || c.Status == bench.Warn)
	})
}

// examine prints the diagnosis, and fails when nothing can be run.
func examine(w io.Writer, format outputFormat, d diagnosis) error {
	err := format.write(w, d, func(w io.Writer) error { return d.table(w) })
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
		if c.Remedy != "" && c.Status != bench.OK {
			remedies = append(remedies, c.Name+": "+c.Remedy)
		}
	}
	if err := columns(w, rows...); err != nil {
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
