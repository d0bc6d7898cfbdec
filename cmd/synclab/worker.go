package main

import (
	"github.com/spf13/cobra"

	"synclab/bench"
)

// newWorker is how `synclab run` starts itself in a namespace; nobody else has a use for it.
func newWorker(s streams) *cobra.Command {
	return &cobra.Command{
		Use:    "worker",
		Short:  "Do one repetition, told on stdin, in the namespace that a run made",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(cmd *cobra.Command, _ []string) error { return bench.Work(cmd.Context(), s.in, s.out) },
	}
}
