package manifests

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestAddressPoolTake(t *testing.T) {
	tests := []struct {
		name     string
		prefixes string
		family   corev1.IPFamily
		skip     int
		taken    string
		want     string // the addresses in order, then the error
	}{
		{"no network, no broadcast", "10.0.0.0/30", corev1.IPv4Protocol, 0, "",
			"10.0.0.1 10.0.0.2 no address is free in 10.0.0.0/30"},
		{"skips and reserved", "10.0.0.8/29", corev1.IPv4Protocol, 1, "10.0.0.11",
			"10.0.0.10 10.0.0.12 10.0.0.13 10.0.0.14 no address is free in 10.0.0.8/29"},
		{"IPv6 has no broadcast", "fd00::/126", corev1.IPv6Protocol, 0, "fd00::2",
			"fd00::1 fd00::3 no address is free in fd00::/126"},
		{"next prefix of the family", "10.0.0.0/30 fd00::/64 10.1.0.7/30", corev1.IPv4Protocol, 1, "",
			"10.0.0.2 10.1.0.6 no address is free in 10.1.0.4/30"},
		{"no such family", "fd00::/64", corev1.IPv4Protocol, 0, "", "no range of this family is set"},
		{"end of all addresses", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127", corev1.IPv6Protocol, 0, "",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff no address is free in ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var prefixes []netip.Prefix
			for text := range strings.FieldsSeq(tc.prefixes) {
				prefixes = append(prefixes, netip.MustParsePrefix(text))
			}
			book := addressBook{}
			for text := range strings.FieldsSeq(tc.taken) {
				book.reserve(netip.MustParseAddr(text), "another")
			}
			pool := newAddressPool(prefixes, tc.family, tc.skip, book)
			var got []string
			for range 10 {
				address, err := pool.take("me")
				if err != nil {
					got = append(got, err.Error())
					break
				}
				got = append(got, address.String())
			}
			if text := strings.Join(got, " "); text != tc.want {
				t.Errorf("got  %s\nwant %s", text, tc.want)
			}
		})
	}
}

// TestAllocateServices: explicit values win over allocated ones, in any order of names, and exhaustion names the
// Service that got nothing.
func TestAllocateServices(t *testing.T) {
	opts := ReadOptions{
		ServiceCIDRs:      []netip.Prefix{netip.MustParsePrefix("10.96.0.0/29")},
		LoadBalancerCIDRs: []netip.Prefix{netip.MustParsePrefix("198.18.0.0/30")},
		NodePortRange:     PortRange{30000, 30002},
	}
	withPort := func(spec string) string {
		if strings.Contains(spec, "ports:") {
			return spec
		}
		return strings.TrimPrefix(spec+", ports: [{port: 80}]", ", ")
	}
	service := func(name, spec string) string {
		return fmt.Sprintf("---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {%s}\n", name, withPort(spec))
	}
	base := service("a", "type: LoadBalancer") +
		service("b", "type: LoadBalancer, loadBalancerIP: 198.18.0.1, allocateLoadBalancerNodePorts: false") +
		service("c", "clusterIP: 10.96.0.2") +
		service("d", "type: NodePort, ports: [{port: 80, nodePort: 30000}]")
	tests := []struct {
		name, more string
		want       string // output of proxyView, or the error
	}{
		{"explicit first", "", `
service default/a LoadBalancer [10.96.0.3] :80/TCP->80@30001 ingress 198.18.0.2
service default/b LoadBalancer [10.96.0.4] :80/TCP->80 ingress 198.18.0.1
service default/c ClusterIP [10.96.0.2] :80/TCP->80
service default/d NodePort [10.96.0.5] :80/TCP->80@30000
`},
		{"no clusterIP left", service("e", "") + service("f", ""),
			`service default/f: spec.ipFamilies[0]: Invalid value: "IPv4": no address is free in 10.96.0.0/29`},
		{"no node port left", service("e", "type: NodePort, ports: [{port: 1, name: p}, {port: 2, name: q}]"),
			`service default/e: spec.ports[1].nodePort: Invalid value: 0: no node port is free in 30000-30002`},
		{"no load balancer address left", service("e", "type: LoadBalancer"),
			`service default/e: status.loadBalancer.ingress: Invalid value: "": no address is free in 198.18.0.0/30`},
		{"health check port taken", service("e", "type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 30000"),
			`service default/e: spec.healthCheckNodePort: Invalid value: 30000: is already used by service default/d`},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			objects, err := ReadObjects([]string{"-"}, strings.NewReader(base+tc.more), opts)
			got := fmt.Sprint(err)
			if err == nil {
				got = "\n" + proxyView(objects)
			}
			if !strings.Contains(got, tc.want) {
				t.Errorf("got %s\nwant %s", got, tc.want)
			}
		})
	}
}
