package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api/v1"
	"sigs.k8s.io/yaml"
)

// invokeAs is invoke under another name of the program.
func invokeAs(t *testing.T, name string, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	out, errs := newPrinted(), newPrinted()
	args, plugin := asPlugin(name, args)
	err := runAs(t.Context(), streams{strings.NewReader(""), out, errs}, plugin, args)
	status = exitStatus(t.Context(), errs, err)
	return status, out.String(), errs.String()
}

// The plugin has its three commands, with help that names it as kubectl does.
func TestPluginHelp(t *testing.T) {
	_, help, _ := invokeAs(t, "/usr/local/bin/kubectl-synclab", "--help")
	for _, want := range append([]string{"kubectl synclab [command]"}, pluginCommands...) {
		if !strings.Contains(help, want) {
			t.Errorf("help lacks %q:\n%s", want, help)
		}
	}
	if strings.Contains(help, "soak") || strings.Contains(help, "Measure:") {
		t.Errorf("help has commands that read no cluster:\n%s", help)
	}
	for _, name := range pluginCommands {
		status, help, stderr := invokeAs(t, pluginName, name, "--help")
		if status != exitDone || !strings.Contains(help, "\n  kubectl synclab "+name+" ") || strings.Contains(help, "\n  synclab "+name) {
			t.Errorf("%s: status %d\n%s%s", name, status, help, stderr)
		}
	}
	status, _, stderr := invokeAs(t, pluginName, "capture")
	if status != exitUsage || !strings.Contains(stderr, "Run 'kubectl synclab capture --help'") {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// Under the name that kubectl looks for, the program completes the plugin's commands and flags.
func TestPluginCompletion(t *testing.T) {
	for _, c := range []struct {
		typed []string
		want  string
	}{
		{[]string{""}, "migrate\t"}, {[]string{"pl"}, "plan\t"}, {[]string{"migrate", "--from", "kube-proxy/nf"}, "kube-proxy/nftables"}, {[]string{"capture", "--anon"}, "--anonymize"},
	} {
		status, stdout, stderr := invokeAs(t, pluginCompletion, c.typed...)
		lines := strings.Split(stdout, "\n")
		if status != exitDone || !slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, c.want) }) || strings.Contains(stdout, "soak") {
			t.Errorf("%q: status %d\n%s%s", c.typed, status, stdout, stderr)
		}
	}
}

// Without a flag, every command of the plugin reads the current context of $KUBECONFIG.
func TestPluginReadsTheCurrentContext(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	cluster := func(name string) clientcmdapi.NamedCluster {
		return clientcmdapi.NamedCluster{Name: name, Cluster: clientcmdapi.Cluster{Server: "https://" + name + ".invalid"}}
	}
	context := func(name string) clientcmdapi.NamedContext {
		return clientcmdapi.NamedContext{Name: name, Context: clientcmdapi.Context{Cluster: name}}
	}
	text, err := yaml.Marshal(clientcmdapi.Config{
		APIVersion: "v1", Kind: "Config", CurrentContext: "today", Clusters: []clientcmdapi.NamedCluster{cluster("today"), cluster("other")},
		Contexts: []clientcmdapi.NamedContext{context("today"), context("other")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", file)
	for _, args := range [][]string{
		{"capture", "-o", filepath.Join(dir, "out.yaml")}, {"plan", "--churn", "1"}, {"migrate", "--from", "synclab/nftables", "--to", "synclab/iptables-nft"},
	} {
		for want, more := range map[string][]string{"today": nil, "other": {"--context", "other"}} {
			status, _, stderr := invokeAs(t, pluginName, append(args, more...)...)
			if status == exitDone || !strings.Contains(stderr, want+".invalid") {
				t.Errorf("%q %q: status %d, %s; want that it reads %s", args, more, status, stderr, want)
			}
		}
	}
}
