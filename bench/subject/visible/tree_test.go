package visible

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
)

// Chains without a jump to them are not visible. Chains that the chains of a tree jump to are visible at any depth,
// until the jump is deleted. Endpoints have separate chains, or are addresses in the Service's chain.
func TestStagedChainsAndTrees(t *testing.T) {
	for _, x := range []struct {
		variant iptables.Variant
		reader  string
	}{{iptables.Legacy, IptablesLegacy}, {iptables.Nft, IptablesNft}} {
		for _, family := range bothFamilies {
			for _, flat := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/flat=%t", x.reader, family, flat), func(t *testing.T) {
					staged(t, x.variant, x.reader, family, flat)
				})
			}
		}
	}
}

func staged(t *testing.T, variant iptables.Variant, reader string, family corev1.IPFamily, flat bool) {
	netns.Fresh(t)
	restore := func(lines string) {
		t.Helper()
		cmd := exec.Command(iptables.Binary(variant, family, "restore"), "--noflush")
		cmd.Stdin = strings.NewReader("*nat\n" + lines + "COMMIT\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Skipf("%v\n%s", err, out)
		}
	}
	address, endpoints := "10.96.0.1", []string{"10.128.0.1:8080", "10.128.0.2:65535"}
	if family == corev1.IPv6Protocol {
		address, endpoints = "fd00:10:96::1", []string{"[fd00:10:128::1]:8080", "[fd00:10:128::2]:65535"}
	}
	port := shop("plain")
	own := iptables.ChainsOf(port)
	var want []string
	lines := "-N " + own.Cluster + "\n"
	for i, endpoint := range endpoints {
		chain, match := iptables.EndpointChain(port, endpoint), "-m statistic --mode random --probability 0.5 "
		if want = append(want, chain); i == len(endpoints)-1 {
			match = ""
		}
		if flat {
			lines += fmt.Sprintf("-A %s %s-p tcp -m tcp -j DNAT --to-destination %s\n", own.Cluster, match, endpoint)
			continue
		}
		lines += fmt.Sprintf("-N %[1]s\n-A %[1]s -p tcp -m tcp -j DNAT --to-destination %[2]s\n-A %[3]s %[4]s-j %[1]s\n", chain, endpoint, own.Cluster, match)
	}
	slices.Sort(want)
	lines += fmt.Sprintf("-N KUBE-TREE-A\n-N KUBE-TREE-B\n-A KUBE-TREE-A -d %[1]s -j KUBE-TREE-B\n-A KUBE-TREE-B -d %[1]s -j %[2]s\n", address, own.Cluster)

	d, err := NewRulesetReader(reader, []corev1.IPFamily{family})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(when string, dispatched bool) {
		t.Helper()
		look, err := d.Look()
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close()
		state, err := look.Port(family, port)
		if err != nil || !slices.Equal(state.Cluster, want) || len(state.Local) > 0 {
			t.Errorf("%s: %+v, %v", when, state, err)
		}
		if cluster, local, err := look.Dispatched(family, port); cluster != dispatched || local || err != nil {
			t.Errorf("%s: dispatched %t, %t, %v; want %t", when, cluster, local, err, dispatched)
		}
	}
	restore("-N KUBE-SERVICES\n-N KUBE-NODEPORTS\n" + lines)
	check("staged", false)
	restore("-A KUBE-SERVICES -j KUBE-TREE-A\n")
	check("switched", true)
	restore("-F KUBE-TREE-B\n")
	check("cut", false)
	restore("-N " + own.External + "\n-A " + own.External + " -j " + own.Cluster + "\n-A KUBE-NODEPORTS -p tcp -m tcp --dport 30000 -j " + own.External + "\n")
	check("a node port", true)
	restore("-F " + own.Cluster + "\n")
	want = nil
	check("no endpoints", true)
}
