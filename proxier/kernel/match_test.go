package kernel

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"synclab/bench/lab/netns"
)

// A match that every kernel with iptables has is found, and an unknown one is not, by both variants.
func TestHasMatch(t *testing.T) {
	netns.Fresh(t)
	for _, variant := range []string{Legacy, Nft} {
		for _, family := range []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol} {
			for name, want := range map[string]bool{"tcp": true, "nosuchmatch": false} {
				found, err := HasMatch(variant, family, name, 7, 0)
				if err != nil || found != want {
					t.Errorf("%s %s %s: %v, %v", variant, family, name, found, err)
				}
			}
			found, err := HasMatch(variant, family, "bpf", 1, 0)
			t.Logf("%s %s bpf: %v, %v", variant, family, found, err)
		}
	}
}
