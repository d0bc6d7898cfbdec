package visible

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/netns"
	"synclab/proxier/iptables"
)

// Chains that are in the kernel before anything leads to them are not visible; those that the chains of a tree lead to
// are, at any depth, and no longer when the way is cut.
func TestStagedChainsAndTrees(t *testing.T) {
	const family = corev1.IPv4Protocol
	port := shop("plain")
	own := iptables.ChainsOf(port)
	endpoint := iptables.EndpointChain(port, "10.128.0.1:8080")
	staged := fmt.Sprintf("-N %[1]s\n-N %[2]s\n-A %[1]s -j %[2]s\n-N KUBE-TREE-A\n-N KUBE-TREE-B\n-A KUBE-TREE-A -d 10.0.0.0/8 -j KUBE-TREE-B\n-A KUBE-TREE-B -d 10.96.0.1 -j %[1]s\n",
		own.Cluster, endpoint)
	for _, x := range []struct {
		variant iptables.Variant
		dialect string
	}{{iptables.Legacy, IptablesLegacy}, {iptables.Nft, IptablesNft}} {
		t.Run(x.dialect, func(t *testing.T) {
			netns.Fresh(t)
			restore := func(lines string) {
				t.Helper()
				cmd := exec.Command(iptables.Binary(x.variant, family, "restore"), "--noflush")
				cmd.Stdin = strings.NewReader("*nat\n" + lines + "COMMIT\n")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Skipf("%v\n%s", err, out)
				}
			}
			d, err := NewDialect(x.dialect, []corev1.IPFamily{family})
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			check := func(when string, want bool) {
				t.Helper()
				look, err := d.Look()
				if err != nil {
					t.Fatal(err)
				}
				defer look.Close()
				state, err := look.Port(family, port)
				if err != nil || len(state.Cluster) != 1 || state.Cluster[0] != endpoint {
					t.Errorf("%s: %+v, %v", when, state, err)
				}
				if cluster, local, err := look.Dispatched(family, port); cluster != want || local || err != nil {
					t.Errorf("%s: dispatched %t, %t, %v; want %t", when, cluster, local, err, want)
				}
			}
			restore("-N KUBE-SERVICES\n-N KUBE-NODEPORTS\n" + staged)
			check("staged", false)
			restore("-A KUBE-SERVICES -j KUBE-TREE-A\n")
			check("switched", true)
			restore("-F KUBE-TREE-B\n")
			check("cut", false)
			restore("-N " + own.External + "\n-A " + own.External + " -j " + own.Cluster + "\n-A KUBE-NODEPORTS -p tcp -m tcp --dport 30000 -j " + own.External + "\n")
			check("a node port", true)
		})
	}
}
