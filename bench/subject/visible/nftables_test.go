package visible

import (
	"os/exec"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"synclab/bench/lab/netns"
	"synclab/proxier/tracker"
)

// shop returns a port of testdata/kube-proxy.nft.
func shop(service string) tracker.ServicePortName {
	return tracker.ServicePortName{
		NamespacedName: types.NamespacedName{Namespace: "shop", Name: service},
		PortKey:        tracker.PortKey{Name: "http", Protocol: corev1.ProtocolTCP},
	}
}

// The reader reads a recorded ruleset of kube-proxy, independent of the current version.
func TestKubeProxysNftables(t *testing.T) {
	netns.Fresh(t)
	nft := func(args ...string) {
		t.Helper()
		if _, err := exec.LookPath("nft"); err != nil {
			t.Skip(err)
		}
		if out, err := exec.Command("nft", args...).CombinedOutput(); err != nil {
			t.Fatalf("nft %v: %v\n%s", args, err, out)
		}
	}
	d, err := NewRulesetReader("", bothFamilies)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	check := func(family corev1.IPFamily, service string, want State, dispatched bool) {
		t.Helper()
		if _, err := d.Generation(); err != nil { // detects the reader
			t.Fatal(err)
		}
		look, err := d.Look()
		if err != nil {
			t.Fatal(err)
		}
		defer look.Close()
		got, err := look.Port(family, shop(service))
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" || err != nil {
			t.Errorf("%s %s (-want +got), %v:\n%s", family, service, err, diff)
		}
		if rule, err := look.Unrecognised(family, shop(service)); rule != "" || err != nil {
			t.Errorf("%s %s: unrecognised %s, %v", family, service, rule, err)
		}
		cluster, local, err := look.Dispatched(family, shop(service))
		if err != nil || cluster != (dispatched && len(want.Cluster) > 0) || local != (dispatched && len(want.Local) > 0) {
			t.Errorf("%s %s: dispatched %t, local %t, %v", family, service, cluster, local, err)
		}
	}
	check(corev1.IPv4Protocol, "plain", State{}, false) // no table, so no reader
	nft("-f", "testdata/kube-proxy.nft")
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	check(v4, "plain", State{Cluster: []string{"10.128.0.1:8080", "10.128.0.2:8080", "10.128.0.3:8080"}}, true)
	check(v6, "plain", State{Cluster: []string{"[fd00:10:128::1]:8080", "[fd00:10:128::2]:8080", "[fd00:10:128::3]:8080"}}, true)
	check(v4, "one", State{Cluster: []string{"10.128.0.4:8080"}}, true)
	check(v4, "single", State{Cluster: []string{"10.128.0.9:8080"}}, true)
	check(v6, "single", State{Cluster: []string{"[fd00:10:128::9]:8080"}}, true)
	check(v4, "sticky", State{Cluster: []string{"10.128.0.5:8080", "10.128.0.6:8080"}}, true)
	check(v6, "sticky", State{Cluster: []string{"[fd00:10:128::5]:8080", "[fd00:10:128::6]:8080"}}, true)
	check(v4, "local", State{Cluster: []string{"10.128.0.7:8080", "10.128.0.8:8080"}, Local: []string{"10.128.0.7:8080"}}, true)
	check(v4, "none", State{}, false)
	check(v4, "unknown", State{}, false)
	nft("delete", "element", "ip", "kube-proxy", "service-ips", "{ 10.96.0.1 . tcp . 80 }")
	check(v4, "plain", State{Cluster: []string{"10.128.0.1:8080", "10.128.0.2:8080", "10.128.0.3:8080"}}, false)

	in, err := d.Installed(v4)
	if want := (Installed{Rules: map[string]int{"kube-proxy": 20}, Chains: 13, Elements: 15}); err != nil || !cmp.Equal(want, in) {
		t.Errorf("installed %+v, %v; want %+v", in, err, want)
	}
}
