package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newDoctor(s streams) *cobra.Command {
	var format outputFormat
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can run and what it cannot, and why",
		Long: `Doctor looks at what the lab needs: namespaces as root or as an ordinary user,
the iptables variants and nft with their versions, and the kernel's matches.
It changes nothing. Its exit status is 1 when no subject can run here.`,
		Example: "  synclab doctor\n  synclab doctor -o json",
		Args:    argCount(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			return examine(s, format)
		},
	}
	format.register(cmd)
	return cmd
}

// examine prints what this machine can do.
func examine(streams, outputFormat) error {
	return errors.New("doctor: not built in yet")
}
