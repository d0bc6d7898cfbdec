package config

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestDetectLocal(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		name        string
		mode        string
		clusterCIDR string
		family      corev1.IPFamily
		podCIDRs    []string
		local       string // "": nothing detected; in iptables' spelling
	}{
		{"cluster", "", "10.244.0.0/16", v4, nil, "-s 10.244.0.0/16"},
		{"cluster, other family", "ClusterCIDR", "10.244.0.0/16", v6, nil, ""},
		{"cluster, dual stack", "ClusterCIDR", "10.244.0.0/16,fd00:10:244::/56", v6, nil, "-s fd00:10:244::/56"},
		{"cluster, not set", "ClusterCIDR", "", v4, []string{"10.244.3.0/24"}, ""},
		{"host bits", "ClusterCIDR", "10.244.3.9/16", v4, nil, "-s 10.244.0.0/16"},
		{"leading zeros", "ClusterCIDR", "010.244.0.0/16", v4, nil, "-s 10.244.0.0/16"},
		{"node", "NodeCIDR", "10.244.0.0/16", v4, []string{"fd00::/64", "10.244.3.0/24", "10.244.4.0/24"}, "-s 10.244.3.0/24"},
		{"node, other family", "NodeCIDR", "10.244.0.0/16", v6, []string{"10.244.3.0/24"}, ""},
		{"bridge", "BridgeInterface", "", v6, nil, "-i cbr0"},
		{"prefix", "InterfaceNamePrefix", "", v4, nil, "-i veth+"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := New()
			cfg.DetectLocalMode, cfg.ClusterCIDR = localMode(c.mode), c.clusterCIDR
			cfg.DetectLocal.BridgeInterface, cfg.DetectLocal.InterfaceNamePrefix = "cbr0", "veth"
			detector, err := DetectLocal(cfg, c.family, c.podCIDRs)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			switch {
			case detector.Source.IsValid():
				got = "-s " + detector.Source.String()
			case detector.Interface != "":
				got = "-i " + detector.Interface
			case detector.InterfacePrefix != "":
				got = "-i " + detector.InterfacePrefix + "+"
			}
			if got != c.local {
				t.Errorf("local = %q; want %q", got, c.local)
			}
			if detector.Implemented() != (c.local != "") {
				t.Errorf("Implemented = %v", detector.Implemented())
			}
		})
	}
}

func TestDetectLocalErrors(t *testing.T) {
	for _, c := range []struct {
		name, mode, want string
		podCIDRs         []string
	}{
		{"no podCIDRs", "NodeCIDR", "detectLocalMode: NodeCIDR, but the node has no podCIDRs", nil},
		{"bad podCIDR", "NodeCIDR", `podCIDRs of the node: "10.244.0.0" is not a CIDR: invalid CIDR address: 10.244.0.0`, []string{"10.244.0.0"}},
		{"unknown mode", "Guess", `detectLocalMode: "Guess" is not known`, nil},
	} {
		cfg := New()
		cfg.DetectLocalMode = localMode(c.mode)
		if _, err := DetectLocal(cfg, corev1.IPv4Protocol, c.podCIDRs); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v; want %s", c.name, err, c.want)
		}
	}
}
