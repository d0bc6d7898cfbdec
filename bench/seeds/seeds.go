// Package seeds gives random tests their seed, by the flag -seed of the test binary. Without it the seed is 1, so that a
// test suite tells of the code and not of luck; make random looks for seeds that fail.
package seeds

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var given = flag.Uint64("seed", 1, "the `seed` of random tests; 0: another one each time")

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
