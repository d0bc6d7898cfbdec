package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// As root, a kubeconfig's credential plugin runs only with --allow-exec-plugins.
func TestExecPluginsAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root is protected")
	}
	dir := t.TempDir()
	path, ran := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "ran")
	text := `apiVersion: v1
kind: Config
current-context: x
clusters: [{name: x, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
users:
- name: x
  user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command: touch, args: ["` + ran + `"]}}
`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"capture", "-o", filepath.Join(dir, "out.yaml")}, {"run"}, {"plan", "--churn", "1"},
	} {
		args := append(command, "--kubeconfig", path)
		status, _, stderr := invoke(t, args...)
		if status != exitUsage || !strings.Contains(stderr, "--allow-exec-plugins") {
			t.Errorf("%q: status %d, %s", args, status, stderr)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Fatalf("%q ran the plugin", args)
		}
	}
	invoke(t, "capture", "-o", filepath.Join(dir, "out.yaml"), "--kubeconfig", path, "--allow-exec-plugins")
	if _, err := os.Stat(ran); err != nil {
		t.Error("allowed, it did not run")
	}
}
