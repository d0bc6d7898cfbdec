// Package seeds gives random tests their seeds, by the flags -seed and -seeds of the test binary. Without them a test has
// seed 1, or some from 1 on, so that a failure comes from the code and not from luck; make random looks for seeds that fail.
package seeds

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	given   = flag.Uint64("seed", 1, "the first `seed` of random tests; 0: another one each time")
	howMany = flag.Int("seeds", 0, "how many `seeds` a random test takes that takes several; 0: as many as it says")
)

// Of is the seed of a random test, which is logged with how to get it again.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := *given
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed %d", seed)
	return seed
}

// Several are the seeds of a random test that takes more than one: some, unless the flag says otherwise.
func Several(t testing.TB, some int) []uint64 {
	t.Helper()
	if *howMany > 0 {
		some = *howMany
	}
	seeds := make([]uint64, some)
	first := Of(t)
	for i := range seeds {
		seeds[i] = first + uint64(i)
	}
	return seeds
}
