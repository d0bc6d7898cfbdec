package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/clock"

	"synclab/scenarios"
	"synclab/sim"
	"synclab/sim/api"
	"synclab/sim/front"
	"synclab/sim/manifests"
	"synclab/sim/world"
)

// served returns a cluster behind a fake API server, and its kubeconfig.
func served(t *testing.T, services int) (objects *sim.Objects, kubeconfig string) {
	t.Helper()
	s, err := scenarios.Load("mixed-types", nil, scenarios.Sizes{Services: services, Endpoints: 4})
	if err != nil {
		t.Fatal(err)
	}
	if objects, err = world.Generate(s.Shape, 3); err != nil {
		t.Fatal(err)
	}
	_, kubeconfig = clusterOf(t, objects)
	return objects, kubeconfig
}

// clusterOf serves objects with a fake API server, and returns its kubeconfig.
func clusterOf(t *testing.T, objects *sim.Objects) (cluster *api.Cluster, kubeconfig string) {
	t.Helper()
	cluster = api.NewCluster(clock.RealClock{})
	t.Cleanup(cluster.Stop)
	if err := cluster.Load(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	f, err := front.New(cluster, front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(f)
	t.Cleanup(server.Close)
	text, err := front.Kubeconfig(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return cluster, kubeconfig
}

// A capture makes the same rules as the cluster; an anonymized one makes others.
func TestCapture(t *testing.T) {
	objects, kubeconfig := served(t, 30)
	dir := t.TempDir()
	original, plain, hidden := filepath.Join(dir, "original.yaml"), filepath.Join(dir, "plain.yaml"), filepath.Join(dir, "hidden.yaml")
	file, err := os.Create(original)
	if err != nil {
		t.Fatal(err)
	}
	if err := manifests.WriteObjects(file, objects); err != nil {
		t.Fatal(err)
	}
	file.Close()
	for path, flags := range map[string][]string{plain: nil, hidden: {"--anonymize"}} {
		status, stdout, stderr := invoke(t, append([]string{"capture", "--kubeconfig", kubeconfig, "-o", path}, flags...)...)
		if status != exitDone || stdout != "" || !strings.Contains(stderr, "30 Services") {
			t.Fatalf("capture %v: status %d\n%s%s", flags, status, stdout, stderr)
		}
		if says := strings.Contains(stderr, "pods are in "); says != (flags != nil) {
			t.Errorf("capture %v says: %s", flags, stderr)
		}
	}
	rules := func(path string) string {
		status, stdout, stderr := invoke(t, "rules", "-f", path)
		if status != exitDone {
			t.Fatal(stderr)
		}
		return stdout
	}
	want, got, anonymous := rules(original), rules(plain), rules(hidden)
	if got != want {
		t.Error("the capture makes other rules than the cluster")
	}
	if anonymous == want || strings.Contains(anonymous, objects.Services[0].Spec.ClusterIP+"/32") {
		t.Error("anonymized, the cluster makes the same rules")
	}

	status, _, stderr := invoke(t, "capture", "--kubeconfig", kubeconfig, "-o", plain)
	if status != exitUsage || !strings.Contains(stderr, "--force") {
		t.Errorf("over a file that exists: status %d, %s", status, stderr)
	}
	status, stdout, _ := invoke(t, "capture", "--kubeconfig", kubeconfig, "-o", "-")
	if text, _ := os.ReadFile(plain); status != exitDone || stdout != string(text) {
		t.Errorf("stdout is not what the file holds (status %d)", status)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A capture keeps legacy spellings of an API server; anonymized, they restrict as much.
func TestCaptureOfLegacyAddresses(t *testing.T) {
	objects, err := manifests.ReadObjects([]string{"-"}, strings.NewReader(legacySpelling.Replace(legacyService)), manifests.ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, kubeconfig := clusterOf(t, objects)
	dir := t.TempDir()
	rules := func(name, text string, flags ...string) string {
		path := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		} else if status, _, stderr := invoke(t, append([]string{"capture", "--kubeconfig", kubeconfig, "-o", path}, flags...)...); status != exitDone {
			t.Fatal(stderr)
		}
		status, stdout, stderr := invoke(t, "rules", "-f", path)
		if status != exitDone {
			t.Fatal(stderr)
		}
		return stdout
	}
	want := rules("canonical.yaml", canonicalSpelling.Replace(legacyService))
	if got := rules("plain.yaml", ""); got != want {
		t.Errorf("the capture makes other rules than the cluster:\n%s", cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")))
	}
	hidden := rules("hidden.yaml", "", "--anonymize")
	for _, part := range []string{"\n-A ", " -s ", "/28 ", "/16 ", "--to-destination "} {
		if w, g := strings.Count(want, part), strings.Count(hidden, part); w != g || w == 0 {
			t.Errorf("anonymized, %q is %d times in the rules; want %d", part, g, w)
		}
	}
}

// A capture takes kube-proxy's configuration along, and commands that read the capture use it.
func TestCaptureConfig(t *testing.T) {
	objects, err := world.Generate(scenarios.Shape{Services: 3, Endpoints: scenarios.Endpoints{Count: 2}}, 1)
	if err != nil {
		t.Fatal(err)
	}
	cluster := api.NewCluster(clock.RealClock{})
	t.Cleanup(cluster.Stop)
	if err := cluster.Load(t.Context(), objects); err != nil {
		t.Fatal(err)
	}
	f, err := front.New(cluster, front.Options{})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", f)
	mux.HandleFunc("/api/v1/namespaces/kube-system/configmaps/kube-proxy", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "kube-proxy", "namespace": "kube-system"}, "data": {"config.conf":
			"apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: iptables\niptables: {masqueradeAll: true, minSyncPeriod: 6s}\n"}}`))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	text, err := front.Kubeconfig(server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	kubeconfig, snapshot := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "snapshot.yaml")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		t.Fatal(err)
	}
	beside := filepath.Join(dir, "snapshot.kube-proxy.yaml")
	if status, _, stderr := invoke(t, "capture", "--kubeconfig", kubeconfig, "-o", snapshot); status != exitDone || !strings.Contains(stderr, "kube-proxy's configuration: "+beside) {
		t.Fatalf("capture: status %d, %s", status, stderr)
	}
	const masqueradeAll = `cluster IP" -m tcp --dport 80 -j KUBE-MARK-MASQ`
	status, rules, stderr := invoke(t, "rules", "-f", snapshot)
	if status != exitDone || !strings.Contains(rules, masqueradeAll) || !strings.Contains(stderr, "settings: "+beside) {
		t.Errorf("rules: status %d, %s\n%s", status, stderr, rules)
	}
	if status, stdout, stderr := invoke(t, "plan", "-f", snapshot, "--churn", "1", "--dry-run"); status != exitDone || !strings.Contains(stderr, "minSyncPeriod 6s, of mode iptables") || !strings.Contains(stdout, "minSyncPeriod 6s\n") {
		t.Errorf("plan: status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := invoke(t, "capture", "--kubeconfig", kubeconfig, "--force", "--anonymize", "-o", filepath.Join(dir, "hidden.yaml")); status != exitDone || !strings.Contains(stderr, "without kube-proxy's configuration") {
		t.Errorf("anonymized: status %d, %s", status, stderr)
	}

	packed := filepath.Join(dir, "snapshot.yaml.gz")
	if raw, err := os.ReadFile(snapshot); err != nil || os.WriteFile(packed, raw, 0o600) != nil {
		t.Fatal(err)
	}
	if _, _, stderr := invoke(t, "rules", "-f", packed); !strings.Contains(stderr, "settings: "+beside) {
		t.Errorf("packed: %s", stderr)
	}
	if err := os.Remove(snapshot); err != nil {
		t.Fatal(err)
	}
	again := []string{"capture", "--kubeconfig", kubeconfig, "--anonymize", "-o", snapshot}
	if status, _, stderr := invoke(t, again...); status != exitUsage || exists(snapshot) || !strings.Contains(stderr, beside+" exists; --force replaces it") {
		t.Errorf("over an earlier configuration: status %d, wrote %v, %s", status, exists(snapshot), stderr)
	}
	if status, _, stderr := invoke(t, append(again, "--force")...); status != exitDone || exists(beside) || !exists(snapshot) || !strings.Contains(stderr, "removed "+beside) {
		t.Errorf("with --force: status %d, the earlier configuration is there: %v, %s", status, exists(beside), stderr)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestCaptureErrors(t *testing.T) {
	_, kubeconfig := served(t, 5)
	t.Setenv("KUBECONFIG", "")
	t.Setenv("HOME", t.TempDir())
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--kubeconfig", kubeconfig}, "-o is missing"},
		{[]string{"-o", "-"}, "name one with --kubeconfig FILE"},
		{[]string{"-o", "-", "--kubeconfig", "none"}, "none: no such file"},
		{[]string{"-o", "-", "--kubeconfig", empty}, "names no cluster"},
		{[]string{"-o", "-", "--kubeconfig", kubeconfig, "--context", "staging"}, `"staging" does not exist`},
	} {
		status, stdout, stderr := invoke(t, append([]string{"capture"}, c.args...)...)
		if status != exitUsage || stdout != "" || !strings.Contains(stderr, c.want) {
			t.Errorf("capture %v: status %d, it lacks %q:\n%s", c.args, status, c.want, stderr)
		}
	}
}
