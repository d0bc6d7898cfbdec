package main

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"synclab/bench/lab/temporary"
	"synclab/bench/outfile"
	"synclab/sim/capture"
	"synclab/sim/manifests"
)

// Under these names, kubectl finds a plugin and its completion on PATH. They are links to synclab.
const (
	pluginName       = "kubectl-synclab"
	pluginCompletion = "kubectl_complete-synclab"
)

// pluginCommands are the commands of the plugin, which read the cluster of the current context.
var pluginCommands = []string{"capture", "migrate", "plan"}

// asPlugin reports whether the program runs under a name of kubectl's plugin, and returns its arguments as a command.
func asPlugin(name string, args []string) ([]string, bool) {
	switch filepath.Base(name) {
	case pluginName:
		return args, true
	case pluginCompletion:
		return append([]string{cobra.ShellCompRequestCmd}, args...), true
	}
	return args, false
}

var pluginExample = regexp.MustCompile(`(?m)^  synclab (` + strings.Join(pluginCommands, "|") + `)\b`)

// makePlugin turns the command tree into that of the plugin. Hidden commands stay: they are the program's workers.
func makePlugin(root *cobra.Command, s streams) {
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl synclab"}
	root.Short = "What Service proxies do with the Services of this cluster"
	root.Long = `The plugin reads the Services, EndpointSlices and Nodes of the cluster in kubectl's
current context, and never changes it. It measures in network namespaces of this
machine. 'synclab --help' lists the other commands.`
	root.Example = `  kubectl synclab capture --anonymize -o snapshot.yaml
  kubectl synclab migrate --from kube-proxy/iptables-nft --to kube-proxy/nftables
  kubectl synclab plan --churn 50 --context prod`
	for _, cmd := range root.Commands() {
		switch {
		case slices.Contains(pluginCommands, cmd.Name()):
			cmd.Example = pluginExample.ReplaceAllString(cmd.Example, "  kubectl synclab $1")
		case !cmd.Hidden && cmd.Name() != "help" && cmd.Name() != "completion":
			root.RemoveCommand(cmd)
		}
	}
	migrate, _, _ := root.Find([]string{"migrate"})
	migrate.Long += " Without -f, they are those of the\ncluster in the current context, or in --context."
	for _, flag := range []string{"kubeconfig", "context", "allow-exec-plugins"} {
		migrate.Flags().Lookup(flag).Hidden = false
	}
	migrate.Flags().Lookup("kubeconfig").Usage = "kubeconfig `file` of the cluster (default: $KUBECONFIG, or ~/.kube/config)"
	migrate.PreRunE = func(cmd *cobra.Command, _ []string) error { return readCurrent(cmd, s) }
	plan, _, _ := root.Find([]string{"plan"})
	plan.PreRunE = func(cmd *cobra.Command, _ []string) error {
		if given := cmd.Flags().Changed; given("filename") || given("services") || given("churn-from") || given("kubeconfig") {
			return nil
		}
		return cmd.Flags().Set("kubeconfig", "") // the usual one
	}
}

// readCurrent captures the cluster into a temporary file, and makes that the command's -f.
func readCurrent(cmd *cobra.Command, s streams) error {
	flags := cmd.Flags()
	if flags.Changed("filename") || flags.Changed("services") || flags.Changed("endpoints") {
		return nil
	}
	var cluster clusterFlags
	cluster.kubeconfig, cluster.context = flags.Lookup("kubeconfig").Value.String(), flags.Lookup("context").Value.String()
	cluster.allowExec = flags.Changed("allow-exec-plugins")
	client, err := cluster.client()
	if err != nil {
		return err
	}
	objects, err := capture.Take(cmd.Context(), client, capture.PageSize)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "%d Services, %d EndpointSlices and %d Nodes of the cluster\n", len(objects.Services), len(objects.Slices), len(objects.Nodes))
	var text bytes.Buffer
	if err := manifests.WriteObjects(&text, objects); err != nil {
		return err
	}
	dir, err := temporary.New("")
	if err != nil {
		return err
	}
	atEnd(cmd.Context(), func() { _ = dir.Remove() })
	file := filepath.Join(dir.Path, "cluster.yaml")
	if err := outfile.Write(file, text.Bytes(), 0o600); err != nil {
		return err
	}
	// Otherwise the run would follow the cluster.
	flags.Lookup("kubeconfig").Changed = false
	return flags.Set("filename", file)
}
