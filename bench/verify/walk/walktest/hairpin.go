package walktest

import (
	"net/netip"
	"slices"

	"synclab/bench/verify/walk"
)

// WithoutHairpin returns the result as if packets that go back to their source were not masqueraded.
func WithoutHairpin(v walk.Result, source netip.Addr) walk.Result {
	v.Outcomes = slices.Clone(v.Outcomes)
	for i := range v.Outcomes {
		if v.Outcomes[i].To.Addr() == source {
			v.Outcomes[i].Masquerade = false
		}
	}
	return v
}
