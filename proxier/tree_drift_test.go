package proxier

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/internal/seedstest"
	"synclab/proxier/iptables"
)

// External writes to the chains of a tree are found and repaired, as for any other chain. The proxier deletes tree
// chains of an earlier proxier that no Service needs.
func TestTreeDrift(t *testing.T) {
	for _, variant := range []iptables.Variant{iptables.Legacy, iptables.Nft} {
		t.Run(string(variant), func(t *testing.T) {
			netns.Fresh(t)
			needsLargeRestores(t, variant)
			c := newTreeCluster(seedstest.Of(t), corev1.IPv4Protocol)
			e := testEngine(t, c.family, hostOf(t, variant), treeLayout)
			for range 700 {
				c.step(e)
			}
			if err := e.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			chains := treeChains(t, variant)
			if len(chains) < 10 {
				t.Fatalf("%d chains are too few for this test", len(chains))
			}
			for what, args := range map[string][]string{
				"emptied":  {"-t", "nat", "-F", chains[c.rng.IntN(len(chains))]},
				"one less": {"-t", "nat", "-D", chains[c.rng.IntN(len(chains))], "1"},
				"one more": {"-t", "nat", "-A", chains[c.rng.IntN(len(chains))], "-j", "RETURN"},
				"foreign":  {"-t", "nat", "-N", "KUBE-TREE-S7F000000-08-0"},
				"filter's": {"-t", "filter", "-N", "KUBE-TREE-E7F000000-08-0"},
			} {
				tool(t, variant, args...)
				if e.checkDrift(t.Context()); e.full != "drift" {
					found, err := e.backend.Drift()(t.Context())
					t.Fatalf("%s: requested a full sync for %q, want drift (thorough check: %q, %v)", what, e.full, found, err)
				}
				if err := e.sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(freshLayout(t, c, iptables.Tree), kernelSaved(t, variant, c.family)); diff != "" {
					t.Fatalf("%s (-fresh +repaired):\n%s", what, diff)
				}
			}
			for i := range c.size / 2 {
				delete(c.services, i)
			}
			next := testEngine(t, c.family, hostOf(t, variant), treeLayout)
			c.tell(next)
			if err := next.sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(freshLayout(t, c, iptables.Tree), kernelSaved(t, variant, c.family)); diff != "" {
				t.Fatalf("(-fresh +successor):\n%s", diff)
			}
		})
	}
}

// treeChains returns the tree chains in nat, sorted.
func treeChains(t *testing.T, variant iptables.Variant) (chains []string) {
	t.Helper()
	for line := range strings.Lines(string(save(t, variant))) {
		if name, _, _ := strings.Cut(line, " "); strings.HasPrefix(name, ":KUBE-TREE-") {
			chains = append(chains, name[1:])
		}
	}
	slices.Sort(chains)
	return chains
}

// tool runs the variant's iptables as another process would.
func tool(t *testing.T, variant iptables.Variant, args ...string) {
	t.Helper()
	binary, err := iptables.FindBinary(iptables.Binary(variant, corev1.IPv4Protocol, ""))
	if err != nil {
		t.Skip(err)
	}
	if out, err := exec.Command(binary, append([]string{"-w"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v\n%s", binary, args, err, out)
	}
}
