package subject

import (
	"slices"
	"strings"
	"testing"
)

// Omitted subjects are named, with the tool and its package. Subjects without a tool, and unknown ones, stay.
func TestWithTools(t *testing.T) {
	names := []string{"kube-proxy/nftables", "synclab/iptables-legacy", "synclab/iptables-legacy-tree", "synclab/iptables-nft", "synclab/nftables", "exec:mine=/bin/mine", "cilium"}
	const legacy = "synclab/iptables-legacy, synclab/iptables-legacy-tree, since iptables-legacy-restore is missing (package iptables)"
	for _, c := range []struct {
		absent  []string
		there   []int // of names
		lacking string
	}{
		{nil, []int{0, 1, 2, 3, 4, 5, 6}, ""},
		{[]string{"nft"}, []int{1, 2, 3, 4, 5, 6}, "kube-proxy/nftables, since nft is missing (package nftables)"},
		{[]string{"iptables-legacy-restore"}, []int{0, 3, 4, 5, 6}, legacy},
		{[]string{"iptables-legacy-restore", "nft"}, []int{3, 4, 5, 6}, "kube-proxy/nftables, since nft is missing (package nftables); " + legacy},
	} {
		var want []string
		for _, i := range c.there {
			want = append(want, names[i])
		}
		there, lacking := withTools(names, func(tool string) bool { return !slices.Contains(c.absent, tool) })
		if !slices.Equal(there, want) || lacking != c.lacking {
			t.Errorf("without %s: %s, left out %q; want %s and %q", strings.Join(c.absent, ", "), there, lacking, want, c.lacking)
		}
	}
}

func TestGate(t *testing.T) {
	for _, c := range []struct{ name, version, want string }{
		{"kube-proxy/nftables", "v1.29.6", "NFTablesProxyMode"},
		{"kube-proxy/nftables", "v1.31.0", ""},
		{"kube-proxy/nftables", "v1.37.2-5-g1234", ""}, // a checkout
		{"kube-proxy/iptables-legacy", "v1.29.6", ""},
		{"synclab/nftables", "v1.29.6", ""},
	} {
		s, err := Parse(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Gate(c.version); got != c.want {
			t.Errorf("%s %s: gate %q, want %q", c.name, c.version, got, c.want)
		}
	}
}
