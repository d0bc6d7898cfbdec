package main

import (
	"github.com/spf13/cobra"

	"synclab/bench"
)

// newWorker is how `synclab run` starts itself in a namespace; nobody else has a use for it.
func newWorker(s streams) *cobra.Command {
	var inVirtualTime bool
	cmd := &cobra.Command{
		Use:    "worker",
		Short:  "Do one repetition, told on stdin, in the namespace that a run made",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if inVirtualTime {
				return workVirtual(s)
			}
			return bench.Work(cmd.Context(), s.in, s.out)
		},
	}
	cmd.Flags().BoolVar(&inVirtualTime, "virtual", false, "do one seed of a soak in virtual time instead, without a namespace")
	return cmd
}
