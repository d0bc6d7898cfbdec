package conform

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// kubeProxyCommand finds kube-proxy, or skips the test.
func kubeProxyCommand(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("kube-proxy")
	if err != nil {
		if os.Getenv("SYNCLAB_REQUIRE_KUBE_PROXY") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

func TestRandomClusters(t *testing.T) {
	command := kubeProxyCommand(t)
	batches, err := strconv.Atoi(os.Getenv("BATCHES"))
	if err != nil {
		batches = 1
	}
	seed, err := strconv.Atoi(os.Getenv("SEED"))
	if err != nil {
		seed = 1
	}
	n := 0
	for i := range batches {
		b := RandomBatch(uint64(seed+i), BatchClusters, Constraint{})
		t.Log(b.Name)
		c := Comparison{First: Subject{KubeProxy: true}, Second: Subject{Real: i%2 == 1}, KubeProxy: command, State: func(b *Batch, f *Finding) {
			n++
			if f == nil {
				return
			}
			for _, d := range f.Differences {
				if d.Entry != "" {
					t.Logf("%s: %s: %s: %s", b.Name, f.What, d.Service, d.Entry)
				} else {
					t.Errorf("%s: %s\n%s", b.Name, f.What, d.String())
				}
			}
		}}
		if err := c.Run(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	t.Log(n, "states")
}
