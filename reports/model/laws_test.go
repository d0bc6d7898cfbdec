package model

import (
	"slices"
	"testing"
)

// Only formulas of a known cause are tried, if the points have its variables: a full sync of kube-proxy's mode nftables is
// at least quadratic in the number of Services.
func TestCaused(t *testing.T) {
	all := []string{"n", "s", "rules"}
	for _, c := range []struct {
		subject, kind string
		quantity      Quantity
		variables     []string
		want          []Form
	}{
		{"kube-proxy/nftables", Full, ToolSys, all, searchOfMaps},
		{"kube-proxy@v1.34.4/nftables", Resync, CPU, all, searchOfMaps},
		{"kube-proxy/nftables", Full, CPU, all[:1], nil},
		{"kube-proxy/nftables", Full, ToolUser, all, nil},
		{"kube-proxy/nftables", Partial, ToolSys, all, nil},
		{"synclab/iptables-nft", Full, ToolUser, all, searchOfChains},
		{"kube-proxy/iptables-legacy", Resync, Total, all, searchOfChains},
		{"kube-proxy/iptables-legacy", Resync, Total, all[:2], nil},
		{"synclab/userspace", Full, ToolUser, all, nil}, // a few rules for each Service, without chains
		{"synclab/nftables", Full, ToolSys, all, nil},
		{"exec:other", Full, ToolSys, all, nil},
	} {
		if got := caused(c.subject, c.quantity, c.kind, c.variables); !slices.Equal(got, c.want) {
			t.Errorf("%s, %s %s by %v: %v, want %v", c.subject, c.kind, c.quantity, c.variables, got, c.want)
		}
	}
}
