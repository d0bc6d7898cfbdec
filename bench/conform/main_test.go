package conform

import (
	"fmt"
	"os"
	"os/exec"
	"testing"

	"synclab/bench/netns"
)

// The environment by which the part of a test outside of the namespace tells the part inside which kube-proxy to take.
const envKubeProxy = "SYNCLAB_TEST_KUBE_PROXY"

func TestMain(m *testing.M) {
	if !netns.Inside() && os.Getenv(envKubeProxy) == "" {
		path, err := findKubeProxy()
		if err != nil {
			fmt.Fprintln(os.Stderr, "no kube-proxy to compare with:", err)
		}
		os.Setenv(envKubeProxy, path)
	}
	os.Exit(netns.TestMain(m))
}

// findKubeProxy takes the one on PATH.
func findKubeProxy() (string, error) { return exec.LookPath("kube-proxy") }

// kubeProxyCommand is the kube-proxy to compare with. Without one the test is skipped, or fails where one is required.
func kubeProxyCommand(t *testing.T) string {
	t.Helper()
	path := os.Getenv(envKubeProxy)
	switch {
	case path != "":
	case os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") != "":
		t.Fatal("no kube-proxy, and SYNCLAB_REQUIRE_KUBE_PROXY is set")
	default:
		t.Skip("no kube-proxy: neither built nor on PATH")
	}
	return path
}
