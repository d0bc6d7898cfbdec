package main

import (
	"github.com/spf13/cobra"

	"synclab/bench"
)

// newWorker makes the hidden command that `synclab run` starts in a namespace.
func newWorker(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Run one repetition, read from stdin, in the namespace of a run",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return bench.Work(cmd.Context(), s.in, s.out)
		},
	}
}
