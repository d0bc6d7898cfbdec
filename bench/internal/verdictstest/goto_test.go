package verdictstest

import (
	"strings"
	"testing"

	"synclab/bench/verify/conform"
	"synclab/internal/seedstest"
	"synclab/sim/random"
)

// Packets end alike whether the chains of endpoints are reached by -j or by -g, since each of them ends with DNAT:
// see docs/netfilter/iptables-legacy-goto.md.
func TestGotoEndpoints(t *testing.T) {
	if testing.Short() {
		t.Skip("-short")
	}
	jumps, packets := 0, 0
	for i, seed := range seedstest.Several(t, 12) {
		family := both[i%2]
		setting := conform.DrawSetting(seed, conform.Constraint{Family: family})
		random := random.New(random.Options{Seed: seed, Families: setting.Families})
		s := &State{Setting: setting, Node: "node-0", Objects: random.Objects()}
		world, err := s.World()
		if err != nil {
			t.Fatal(err)
		}
		sample, err := s.Packets(family, seed)
		if err != nil {
			t.Fatal(err)
		}
		whole := text(t, s, family)
		changed := strings.ReplaceAll(whole, "-j KUBE-SEP-", "-g KUBE-SEP-")
		jumps, packets = jumps+strings.Count(changed, "-g KUBE-SEP-"), packets+len(sample)
		found, err := Compare(family, world, sample, compiled(t, "-j", whole, family), compiled(t, "-g", changed, family))
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 0 {
			t.Fatalf("seed %d: %d of %d packets differ:\n%s", seed, len(found), len(sample), Describe(found))
		}
	}
	t.Logf("%d packets, %d jumps", packets, jumps)
	if jumps == 0 {
		t.Error("no jump to an endpoint's chain")
	}
}
