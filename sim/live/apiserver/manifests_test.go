package apiserver

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const deploy = "../../../deploy"

// kubectl returns a function that runs kubectl as the administrator, and returns what it printed.
func (r *rig) kubectl(t *testing.T) func(args ...string) (string, error) {
	t.Helper()
	path, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not on PATH")
	}
	admin := r.Admin()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: admin.Host, InsecureSkipTLSVerify: true}
	config.AuthInfos["admin"] = &clientcmdapi.AuthInfo{Token: admin.BearerToken}
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "admin"}
	config.CurrentContext = "test"
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path, append([]string{"--kubeconfig", file, "--cache-dir", dir}, args...)...)
		cmd.Env = append(os.Environ(), "HOME="+dir)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}

// The API server takes all manifests of deploy/, with unknown fields and warnings refused, and creates nothing of them.
func (r *rig) testManifests(t *testing.T) {
	kubectl := r.kubectl(t)
	if out, err := kubectl("apply", "-f", filepath.Join(deploy, "sweep/namespace.yaml")); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	dryRun := func(args ...string) (string, error) {
		return kubectl(append([]string{"apply", "--dry-run=server", "--validate=strict", "--warnings-as-errors"}, args...)...)
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"-k", filepath.Join(deploy, "sweep")}, []string{"job.batch/synclab-sweep created", "networkpolicy.networking.k8s.io/no-traffic created", "serviceaccount/synclab created"}},
		{[]string{"-k", filepath.Join(deploy, "shared-volume")}, []string{"job.batch/synclab-sweep created", "persistentvolumeclaim/runs created"}},
		{[]string{"-f", filepath.Join(deploy, "shared-volume/gather.yaml")}, []string{"pod/gather created"}},
		{[]string{"-f", filepath.Join(deploy, "doctor.yaml")}, []string{"pod/doctor created"}},
	} {
		out, err := dryRun(c.args...)
		if err != nil {
			t.Errorf("%q: %v\n%s", c.args, err, out)
		}
		for _, want := range c.want {
			if !strings.Contains(out, want) {
				t.Errorf("%q: no %q:\n%s", c.args, want, out)
			}
		}
	}
	// The server refuses what only it knows to be wrong.
	text, err := os.ReadFile(filepath.Join(deploy, "sweep/job.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for about, change := range map[string][2]string{
		"backoffLimitPerIndex": {"completionMode: Indexed", "completionMode: NonIndexed"},
		"maxFailedIndexes":     {"maxFailedIndexes: 12", "maxFailedIndexes: 13"},
		"podReplacementPolicy": {"podReplacementPolicy: Failed", "podReplacementPolicy: TerminatingOrFailed"},
		"unknown field":        {"parallelism: 4", "paralellism: 4"},
	} {
		if !strings.Contains(string(text), change[0]) {
			t.Errorf("the Job lacks %q", change[0])
		}
		file := filepath.Join(t.TempDir(), "job.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), change[0], change[1], 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := dryRun("--namespace", "synclab", "-f", file); err == nil || !strings.Contains(out, about) {
			t.Errorf("with %q: %v\n%s\nwant that it is refused because of %s", change[1], err, out, about)
		}
	}
	if out, err := kubectl("get", "jobs,pods", "--all-namespaces", "--output", "name"); err != nil || out != "No resources found\n" && out != "" {
		t.Errorf("a dry run left %s (%v)", out, err)
	}
}
