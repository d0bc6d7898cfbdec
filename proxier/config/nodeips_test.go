package config

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// nodeWith returns a Node with addresses such as "in 192.0.2.1, out 203.0.113.1, name alder".
func nodeWith(text string) *corev1.Node {
	kinds := map[string]corev1.NodeAddressType{"in": corev1.NodeInternalIP, "out": corev1.NodeExternalIP, "name": corev1.NodeHostName}
	node := &corev1.Node{}
	for _, one := range strings.Split(text, ", ") {
		kind, address, _ := strings.Cut(one, " ")
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: kinds[kind], Address: address})
	}
	return node
}

func TestNodeIPs(t *testing.T) {
	for _, c := range []struct{ addresses, bind, want string }{
		{"in 192.0.2.1", "", "[192.0.2.1]"},
		{"name alder", "", "[]"},
		{"in 192.0.2.1, in 192.0.2.2, in 2001:db8::1, in 2001:db8::2", "", "[192.0.2.1 2001:db8::1]"},
		{"in 2001:db8::1, in 192.0.2.1", "", "[2001:db8::1 192.0.2.1]"},
		{"out 203.0.113.1, in 192.0.2.1", "", "[192.0.2.1]"},
		{"out 203.0.113.1, in 2001:db8::1", "", "[2001:db8::1 203.0.113.1]"},
		{"out 203.0.113.1, out 203.0.113.2", "", "[203.0.113.1]"},
		{"in node.example, in 192.0.2.1", "", "[192.0.2.1]"},
		{"in 192.0.02.001", "", "[192.0.2.1]"},
		{"in ::ffff:192.0.2.1, in 2001:db8::1", "", "[192.0.2.1 2001:db8::1]"},
		{"in 192.0.2.1, in 2001:db8::1", "0.0.0.0", "[192.0.2.1 2001:db8::1]"},
		{"in 192.0.2.1, in 2001:db8::1", "::", "[192.0.2.1 2001:db8::1]"},
		{"in 192.0.2.1, in 2001:db8::1", "192.0.2.9", "[192.0.2.9 2001:db8::1]"},
		{"in 192.0.2.1, in 2001:db8::1", "2001:db8::9", "[2001:db8::9 192.0.2.1]"},
	} {
		cfg := New()
		if c.bind != "" {
			cfg.BindAddress = c.bind
		}
		if got := fmt.Sprint(NodeIPs(cfg, nodeWith(c.addresses))); got != c.want {
			t.Errorf("%s, bindAddress %s: %s; want %s", c.addresses, c.bind, got, c.want)
		}
	}
}
