package conform

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"synclab/bench/netns"
	"synclab/bench/upstream"
)

// The environment by which the part of a test outside of the namespace tells the part inside which kube-proxy to take.
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

// findKubeProxy takes the one on PATH, or the pinned one that was built before. Where one is required, it is built.
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

// kubeProxyCommand is the kube-proxy to compare with. Without one the test is skipped, or fails where one is required.
func kubeProxyCommand(t *testing.T) string {
	t.Helper()
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
