package config

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

func localMode(mode string) v1alpha1.LocalMode { return v1alpha1.LocalMode(mode) }

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// interfaces are the addresses of a node: two IPv4 addresses, one on two interfaces, and IPv6 with a link-local
// address.
var interfaces = addrs("127.0.0.1", "192.0.2.10", "10.0.0.5", "10.0.0.5", "::1", "2001:db8::10", "fe80::1%eth0")

func TestNodePortAddresses(t *testing.T) {
	const v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
	for _, c := range []struct {
		name      string
		addresses []string
		localhost bool
		family    corev1.IPFamily
		nodeIPs   []netip.Addr
		want      string // MatchAll, Localhost, RouteLocalnet; selected; refused
	}{
		{"unset", nil, true, v4, nil, "all=true localhost=true route_localnet=true [10.0.0.5 127.0.0.1 192.0.2.10] []"},
		{"unset, without localhost", nil, false, v4, nil, "all=true localhost=false route_localnet=false [10.0.0.5 192.0.2.10] [127.0.0.1]"},
		{"unset, IPv6", nil, true, v6, nil, "all=true localhost=false route_localnet=false [2001:db8::10 fe80::1] [::1]"},
		{"everything", []string{"10.0.0.0/8", "0.0.0.0/0"}, true, v4, nil, "all=true localhost=true route_localnet=true [10.0.0.5 127.0.0.1 192.0.2.10] []"},
		{"one prefix", []string{"10.0.0.0/8"}, true, v4, nil, "all=false localhost=true route_localnet=false [10.0.0.5] []"},
		{"only the other family", []string{"10.0.0.0/8"}, true, v6, nil, "all=true localhost=false route_localnet=false [2001:db8::10 fe80::1] [::1]"},
		{"both families", []string{"10.0.0.0/8", "2001:db8::/64"}, true, v6, nil, "all=false localhost=false route_localnet=false [2001:db8::10] []"},
		{"loopback", []string{"127.0.0.1/32", "192.0.2.0/24"}, true, v4, nil, "all=false localhost=true route_localnet=true [127.0.0.1 192.0.2.10] []"},
		{"loopback refused", []string{"127.0.0.0/8"}, false, v4, nil, "all=false localhost=false route_localnet=false [] [127.0.0.1]"},
		{"loopback in a wide prefix", []string{"64.0.0.0/2"}, true, v4, nil, "all=false localhost=true route_localnet=true [127.0.0.1] []"},
		{"loopback, IPv6", []string{"::1/128"}, true, v6, nil, "all=false localhost=false route_localnet=false [] [::1]"},
		{"overlapping prefixes", []string{"10.0.0.0/8", "10.0.0.0/24"}, true, v4, nil, "all=false localhost=true route_localnet=false [10.0.0.5] []"},
		{"nothing matches", []string{"203.0.113.0/24"}, true, v4, nil, "all=false localhost=true route_localnet=false [] []"},
		{"primary", []string{"primary"}, true, v4, addrs("192.0.2.10", "2001:db8::10"), "all=false localhost=true route_localnet=false [192.0.2.10] []"},
		{"primary, IPv6", []string{"primary"}, true, v6, addrs("192.0.2.10", "2001:db8::10"), "all=false localhost=false route_localnet=false [2001:db8::10] []"},
		{"primary and localhost", []string{"localhost", "primary"}, true, v4, addrs("192.0.2.10"), "all=false localhost=true route_localnet=true [127.0.0.1 192.0.2.10] []"},
		{"localhost, IPv6", []string{"localhost"}, true, v6, addrs("2001:db8::10"), "all=false localhost=false route_localnet=false [] [::1]"},
		{"all and a CIDR", []string{"192.0.2.0/24", "all"}, false, v4, nil, "all=true localhost=false route_localnet=false [10.0.0.5 192.0.2.10] [127.0.0.1]"},
		{"primary not known", []string{"primary"}, true, v4, addrs("127.0.0.1"), "all=true localhost=true route_localnet=true [10.0.0.5 127.0.0.1 192.0.2.10] []"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := New()
			cfg.NodePortAddresses, cfg.IPTables.LocalhostNodePorts = c.addresses, ptr.To(c.localhost)
			ports, err := NodePortAddresses(cfg, c.family, c.nodeIPs)
			if err != nil {
				t.Fatal(err)
			}
			selected, refused := ports.Select(interfaces)
			got := fmt.Sprintf("all=%v localhost=%v route_localnet=%v %v %v",
				ports.MatchAll, ports.Localhost, ports.RouteLocalnet(), selected, refused)
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestNodePortAddressesError(t *testing.T) {
	cfg := New()
	cfg.NodePortAddresses = []string{"10.0.0.0/8", "10.0.0.0/33"}
	_, err := NodePortAddresses(cfg, corev1.IPv4Protocol, nil)
	want := `nodePortAddresses[1]: "10.0.0.0/33" is not a CIDR: invalid CIDR address: 10.0.0.0/33`
	if err == nil || err.Error() != want {
		t.Errorf("got %v; want %s", err, want)
	}
}
