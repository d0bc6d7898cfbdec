package subject

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/config"
)

// The first address of each family on the device is the node IP, and no internal address is missing.
func TestDeviceAddresses(t *testing.T) {
	in := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a} }
	out := func(a string) corev1.NodeAddress { return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: a} }
	for _, c := range []struct {
		node []corev1.NodeAddress
		bind string
		want string
	}{
		{[]corev1.NodeAddress{out("203.0.113.1"), in("192.0.2.1"), in("10.0.0.1"), in("2001:db8::1")}, "", "[192.0.2.1 2001:db8::1 10.0.0.1]"},
		{[]corev1.NodeAddress{out("203.0.113.1"), out("203.0.113.2")}, "", "[203.0.113.1]"},
		{[]corev1.NodeAddress{out("203.0.113.1"), in("2001:db8::1")}, "", "[2001:db8::1 203.0.113.1]"},
		{[]corev1.NodeAddress{in("192.0.2.1"), in("10.0.0.1"), in("192.0.2.1")}, "10.0.0.1", "[10.0.0.1 192.0.2.1]"},
	} {
		cfg := config.New()
		if c.bind != "" {
			cfg.BindAddress = c.bind
		}
		if got := fmt.Sprint(DeviceAddresses(cfg, &corev1.Node{Status: corev1.NodeStatus{Addresses: c.node}})); got != c.want {
			t.Errorf("%v, bindAddress %q: %s; want %s", c.node, c.bind, got, c.want)
		}
	}
}
