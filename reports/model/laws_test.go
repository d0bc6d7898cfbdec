package model

import "testing"

// Formulas without a cause are not tried where a cause is known: a full sync of kube-proxy's mode nftables is at least
// quadratic in the number of Services. Elsewhere all are.
func TestCaused(t *testing.T) {
	tried := []Form{{State: "line", X: "n"}, {State: "plane-square"}, {State: "square", X: "rules", Change: "line", Y: "c"}}
	for _, c := range []struct {
		subject, kind string
		quantity      Quantity
		want          []Form
	}{
		{"kube-proxy/nftables", Full, ToolSys, tried[1:2]},
		{"kube-proxy@v1.34.4/nftables", Resync, CPU, tried[1:2]},
		{"kube-proxy/nftables", Full, ToolUser, tried},
		{"kube-proxy/nftables", Partial, ToolSys, tried},
		{"synclab/iptables-nft", Full, ToolUser, tried[2:]},
		{"kube-proxy/iptables-legacy", Full, ToolUser, tried},
		{"synclab/nftables", Full, ToolSys, tried},
		{"exec:other", Full, ToolSys, tried},
	} {
		got := caused(c.subject, c.quantity, c.kind, tried)
		if len(got) != len(c.want) || got[0] != c.want[0] {
			t.Errorf("%s, %s %s: %v, want %v", c.subject, c.kind, c.quantity, got, c.want)
		}
	}
}
