package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"synclab/bench/upstream"
	"synclab/cmd/synclab/terminal"
)

func newKubeProxy(s streams) *cobra.Command {
	o := upstream.Options{Progress: func(text string) { fmt.Fprintln(s.err, text) }}
	cmd := &cobra.Command{
		Use:   "kube-proxy",
		Short: "Build unmodified kube-proxy if necessary, and print its path",
		Long: `Kube-proxy builds the command of that name from its Go module, unmodified, and
prints its path and version. The result is kept in the user's cache folder. The build
needs Go and the Go module proxy. Later runs and tests that compare with kube-proxy
find it there and need neither.`,
		Example: `  synclab kube-proxy
  synclab kube-proxy --kube-proxy-version v1.34.2`,
		Args: argCount(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, version, err := upstream.KubeProxy(cmd.Context(), o)
			if err == nil {
				fmt.Fprintln(s.out, path, version)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&o.Version, "kube-proxy-version", "", "`version` of Kubernetes (default: "+upstream.Pinned+")")
	terminal.Complete(cmd, "kube-proxy-version")
	return cmd
}
