package conform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"synclab/bench/lab/netns"
	"synclab/bench/lab/upstream"
)

// envKubeProxy is the environment variable that passes the path of kube-proxy to the part of a test inside the
// namespace.
const envKubeProxy = "SYNCLAB_TEST_KUBE_PROXY"

func TestMain(m *testing.M) {
	if !netns.Inside() && os.Getenv(envKubeProxy) == "" {
		path, err := findKubeProxy()
		if err != nil {
			fmt.Fprintln(os.Stderr, "tests with kube-proxy are skipped:", err)
		}
		os.Setenv(envKubeProxy, path)
	}
	os.Exit(netns.TestMain(m))
}

// findKubeProxy returns the kube-proxy on PATH, or the pinned one from the cache. If one is required, it builds it.
func findKubeProxy() (string, error) {
	if path, err := exec.LookPath("kube-proxy"); err == nil {
		return path, nil
	}
	path, _, err := upstream.KubeProxy(context.Background(), upstream.Options{
		CachedOnly: !required(), Progress: func(line string) { fmt.Fprintln(os.Stderr, line) },
	})
	return path, err
}

func required() bool { return os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") != "" }

// kubeProxyCommand returns the kube-proxy to compare with. Without one the test is skipped, or fails if one is
// required.
func kubeProxyCommand(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: without kube-proxy")
	}
	path := os.Getenv(envKubeProxy)
	switch {
	case path != "":
	case required():
		t.Fatal("no kube-proxy, and SYNCLAB_REQUIRE_KUBE_PROXY is set")
	default:
		t.Skip("no kube-proxy on PATH, and none built yet (SYNCLAB_REQUIRE_KUBE_PROXY=1 builds one)")
	}
	return path
}
