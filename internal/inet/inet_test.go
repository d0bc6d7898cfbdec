package inet

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"
)

func TestParseAddr(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "010.000.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "FD00:0::1": "fd00::1",
		"": "", "None": "", "fe80::1%eth0": "", "10.0.0.256": "", " 10.0.0.1": "", "10.0.0.1/8": "",
	} {
		got, ok := ParseAddr(text)
		if ok != (want != "") || ok && got != netip.MustParseAddr(want) || !ok && got.IsValid() {
			t.Errorf("%q: %v, %v; want %q", text, got, ok, want)
		}
	}
}

// Proxies, the tracker and the ruleset evaluator read the same addresses as Kubernetes.
func FuzzParseAddr(f *testing.F) {
	for _, text := range []string{"010.0.0.1", "::ffff:10.0.0.1", "::ffff:010.0.0.1", "fe80::1%e", "::ffff:0:1", "::00001", "1:2:3:4:5:6:7::", ""} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, ok := ParseAddr(text)
		ip := utilnet.ParseIPSloppy(text)
		if ok != (ip != nil) || ok && !ip.Equal(got.AsSlice()) || got.Is4In6() || got.IsValid() != ok {
			t.Errorf("%q: %v, %v; Kubernetes reads %v", text, got, ok, ip)
		}
	})
}

func TestParsePrefix(t *testing.T) {
	for text, want := range map[string]string{
		"10.1.2.3/8": "10.0.0.0/8", "010.0.0.0/8": "10.0.0.0/8", "::ffff:10.1.0.0/112": "10.1.0.0/16", "::ffff:0:0/96": "0.0.0.0/0",
		"fd00::1/64": "fd00::/64", "::/0": "::/0", "::ffff:10.0.0.0/80": "::/80", "0.0.0.0/0": "0.0.0.0/0",
		"10.0.0.0": "", " 10.0.0.0/8": "", "10.0.0.0/33": "",
	} {
		got, err := ParsePrefix(text)
		if (err == nil) != (want != "") || err == nil && got != netip.MustParsePrefix(want) {
			t.Errorf("%q: %v, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseAddrOf(t *testing.T) {
	texts := []string{"None", "fd00::1", "010.0.0.1", "10.0.0.2"}
	for family, want := range map[corev1.IPFamily]string{corev1.IPv4Protocol: "10.0.0.1", corev1.IPv6Protocol: "fd00::1"} {
		if got, ok := ParseAddrOf(family, texts...); !ok || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", family, got, ok, want)
		}
	}
	if got, ok := ParseAddrOf(corev1.IPv6Protocol, "10.0.0.1"); ok || got.IsValid() {
		t.Errorf("of the other family: %v", got)
	}
}

func TestFamilyOf(t *testing.T) {
	for text, want := range map[string]corev1.IPFamily{"10.0.0.1": corev1.IPv4Protocol, "::1": corev1.IPv6Protocol} {
		if got := FamilyOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
