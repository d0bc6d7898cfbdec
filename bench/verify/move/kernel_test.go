package move

import (
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
	"synclab/proxier/iptables"
)

func TestMain(m *testing.M) { os.Exit(netns.TestMain(m)) }

// Read finds in the kernel what tools have put there, and only what belongs to proxies.
func TestRead(t *testing.T) {
	netns.Fresh(t)
	families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}
	once := func(read func() error) error { return read() }
	empty, err := Read(families, once)
	if err != nil || len(empty) > 0 {
		t.Fatalf("an empty namespace has %v, %v", empty, err)
	}
	want := Inventory{}
	for _, c := range []struct {
		tool     string
		commands []string
		things   Inventory
	}{
		{"iptables-nft", []string{"-t nat -N KUBE-SERVICES", "-t nat -A KUBE-SERVICES -j RETURN", "-t nat -N FOREIGN", "-t nat -A FOREIGN -j RETURN"},
			Inventory{{Chains, "iptables-nft nat", corev1.IPv4Protocol, "KUBE-SERVICES"}: 1}},
		{"ip6tables-nft", []string{"-N KUBE-FIREWALL"}, Inventory{{Chains, "iptables-nft filter", corev1.IPv6Protocol, "KUBE-FIREWALL"}: 0}},
		{"iptables-legacy", []string{"-t mangle -N KUBE-PROXY-CANARY"}, Inventory{{Chains, "iptables-legacy mangle", corev1.IPv4Protocol, "KUBE-PROXY-CANARY"}: 0}},
		{"nft", []string{"add table ip kube-proxy", "add chain ip kube-proxy a", "add rule ip kube-proxy a accept", "add table ip other"},
			Inventory{{Tables, "nf_tables", corev1.IPv4Protocol, "kube-proxy"}: 1}},
		{"ipset", []string{"create KUBE-CLUSTER-IP hash:ip,port", "add KUBE-CLUSTER-IP 10.96.0.1,tcp:443", "create other hash:ip"},
			Inventory{{Kind: Sets, Table: "ipset", Name: "KUBE-CLUSTER-IP"}: 0}},
		{"ip", []string{"link add kube-ipvs0 type dummy", "addr add 10.96.0.1/32 dev kube-ipvs0"},
			Inventory{{Kind: Devices, Table: "type dummy", Name: "kube-ipvs0"}: 0, {Addresses, "kube-ipvs0", corev1.IPv4Protocol, "10.96.0.1"}: 0}},
	} {
		path, err := iptables.FindBinary(c.tool)
		if err != nil {
			t.Logf("%s is not tested: %v", c.tool, err)
			continue
		}
		made := true
		for _, command := range c.commands {
			if out, err := exec.Command(path, strings.Fields(command)...).CombinedOutput(); err != nil {
				t.Logf("%s is not tested: %s: %v: %s", c.tool, command, err, out) // the kernel may lack it
				made = false
				break
			}
		}
		if made {
			maps.Copy(want, c.things)
		}
	}
	if len(want) == 0 {
		t.Fatal("no tool works here")
	}
	got, err := Read(families, once)
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", slices.Collect(maps.Keys(got)), err, want)
	}
}
