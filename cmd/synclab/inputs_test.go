package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// proxyConfigFile writes a configuration with more settings, and returns its path.
func proxyConfigFile(t *testing.T, more string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "proxy.yaml")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + more + "\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Each kube-proxy of a run takes only the hidden metrics of its own previous version.
func TestHiddenMetricsOfEachVersion(t *testing.T) {
	file := proxyConfigFile(t, "showHiddenMetricsForVersion: '1.33'")
	for subjects, want := range map[string]string{
		"kube-proxy@v1.34.0/iptables-legacy":                            "",
		"synclab/iptables-legacy":                                       "",
		"kube-proxy@v1.34.0/iptables-legacy,kube-proxy/iptables-legacy": `kube-proxy/iptables-legacy: showHiddenMetricsForVersion: "1.33": kube-proxy 1.37 takes only "1.36"`,
	} {
		var flags runFlags
		cmd := &cobra.Command{}
		cmd.SetContext(t.Context())
		flags.register(cmd, "", "")
		if err := cmd.ParseFlags([]string{"--proxy-config", file, "--subjects", subjects}); err != nil {
			t.Fatal(err)
		}
		s := streams{strings.NewReader(""), &bytes.Buffer{}, &bytes.Buffer{}}
		o, err := flags.read(cmd, nil, s)
		if err != nil {
			t.Errorf("%s: %v", subjects, err)
			continue
		}
		if err := checkConfig(s, o); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", subjects, err, want)
		}
	}
}

// That a generated cluster has no node of the name hostnameOverride is noted.
func TestHostnameOverrideOfAGeneratedCluster(t *testing.T) {
	file := proxyConfigFile(t, "hostnameOverride: elm")
	var stderr bytes.Buffer
	s := streams{strings.NewReader(""), &bytes.Buffer{}, &stderr}
	var flags runFlags
	cmd := &cobra.Command{}
	cmd.SetContext(t.Context())
	flags.register(cmd, "", "")
	if err := cmd.ParseFlags([]string{"--proxy-config", file}); err != nil {
		t.Fatal(err)
	}
	if _, err := flags.read(cmd, nil, s); err != nil || !strings.Contains(stderr.String(), `hostnameOverride: "elm" is looked for only in a cluster from -f`) {
		t.Errorf("run: %v, %q", err, stderr.String())
	}
	if _, _, stderr := invoke(t, "rules", "mixed-types", "--services", "40", "--proxy-config", file); !strings.Contains(stderr, `hostnameOverride: no such node "elm"`) {
		t.Errorf("rules: %q", stderr)
	}
}

// Objects on standard input have no file beside them.
func TestNoSettingsBesideStdin(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("-.kube-proxy.yaml", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var flag proxyConfigFlag
	if flag.find(streams{err: &bytes.Buffer{}}, []string{"-"}); flag.path != "" {
		t.Errorf("%q", flag.path)
	}
}

// Files that the user names are read without waiting for a FIFO's writer, and without an end of memory.
func TestInputsAreRegular(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := errors.Join(unix.Mkfifo(at("fifo.yaml"), 0o600), os.Symlink("/dev/zero", at("zero.yaml")), os.Mkdir(at("run"), 0o700), os.Mkdir(at("zero"), 0o700),
		unix.Mkfifo(filepath.Join(at("run"), "summary.json"), 0o600), os.Symlink("/dev/zero", filepath.Join(at("zero"), "summary.json"))); err != nil {
		t.Fatal(err)
	}
	of := func(file string) [][]string {
		return [][]string{
			{"run", file}, {"rules", "-f", file}, {"rules", "cold-start", "--proxy-config", file}, {"run", "cold-start", "--exec-config", file},
			{"plan", "--churn-from", file}, {"capture", "-o", "-", "--kubeconfig", file},
		}
	}
	for _, file := range []string{at("fifo.yaml"), at("zero.yaml")} {
		for _, args := range of(file) {
			if status, _, stderr := invoke(t, args...); status != exitUsage || !strings.Contains(stderr, "not a regular file") {
				t.Errorf("%v: status %d, %s", args, status, stderr)
			}
		}
	}
	huge := at("huge.yaml")
	if err := errors.Join(os.WriteFile(huge, nil, 0o600), os.Truncate(huge, 1<<40)); err != nil {
		t.Fatal(err)
	}
	for _, args := range of(huge) {
		if status, _, stderr := invoke(t, args...); status != exitUsage || !strings.Contains(stderr, "MiB") && !strings.Contains(stderr, "too long") {
			t.Errorf("%v of 1 TiB: status %d, %s", args, status, stderr)
		}
	}
	if _, _, stderr := invoke(t, "index", dir); !strings.Contains(stderr, "no run with a report") {
		t.Errorf("index: %s", stderr)
	}
}
