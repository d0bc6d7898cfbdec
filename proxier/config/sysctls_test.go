package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"k8s.io/utils/ptr"
)

func TestSysctls(t *testing.T) {
	established := Sysctl{"net/netfilter/nf_conntrack_tcp_timeout_established", 86400, false}
	closeWait := Sysctl{"net/netfilter/nf_conntrack_tcp_timeout_close_wait", 3600, false}
	localnet := Sysctl{"net/ipv4/conf/all/route_localnet", 1, false}
	limit := func(n int) Sysctl { return Sysctl{"net/netfilter/nf_conntrack_max", n, true} }
	for _, c := range []struct {
		name   string
		cpus   int
		family corev1.IPFamily
		set    func(*v1alpha1.KubeProxyConfiguration)
		want   []Sysctl
	}{
		{"few CPUs", 2, corev1.IPv4Protocol, func(*v1alpha1.KubeProxyConfiguration) {},
			[]Sysctl{limit(131072), established, closeWait, localnet}},
		{"some CPUs", 8, corev1.IPv6Protocol, func(*v1alpha1.KubeProxyConfiguration) {},
			[]Sysctl{limit(262144), established, closeWait}},
		{"many CPUs", 256, corev1.IPv6Protocol, func(*v1alpha1.KubeProxyConfiguration) {},
			[]Sysctl{limit(1048576), established, closeWait}},
		{"all of it", 2, corev1.IPv4Protocol, func(c *v1alpha1.KubeProxyConfiguration) {
			c.Conntrack.TCPBeLiberal = true
			c.Conntrack.UDPTimeout.Duration = 30 * time.Second
			c.Conntrack.UDPStreamTimeout.Duration = 2 * time.Minute
		}, []Sysctl{limit(131072), established, closeWait,
			{"net/netfilter/nf_conntrack_tcp_be_liberal", 1, false},
			{"net/netfilter/nf_conntrack_udp_timeout", 30, false},
			{"net/netfilter/nf_conntrack_udp_timeout_stream", 120, false}, localnet}},
		{"nothing", 64, corev1.IPv4Protocol, func(c *v1alpha1.KubeProxyConfiguration) {
			c.Conntrack.MaxPerCore = ptr.To[int32](0)
			c.Conntrack.TCPEstablishedTimeout.Duration = 0
			c.Conntrack.TCPCloseWaitTimeout.Duration = 0
			c.IPTables.LocalhostNodePorts = ptr.To(false)
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := New()
			c.set(cfg)
			ports, err := NodePortAddresses(cfg, c.family, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, Sysctls(cfg, c.cpus, ports)); diff != "" {
				t.Errorf("sysctls (-want +got):\n%s", diff)
			}
		})
	}
}
