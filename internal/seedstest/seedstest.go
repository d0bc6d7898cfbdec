// Package seedstest provides the seeds of random tests, from the flags -seed and -seeds of the test binary. Without the
// flags, tests use seed 1, or several seeds from 1 on, so that a failure comes from the code and not from chance. "make
// random" searches for failing seeds.
package seedstest

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var (
	given   = flag.Uint64("seed", 1, "the first `seed` of random tests; 0: another one each time")
	howMany = flag.Int("seeds", 0, "how many `seeds` a random test takes that takes several; 0: as many as it says")
)

// Of returns the seed of a random test, and logs how to replay it.
func Of(t testing.TB) uint64 {
	t.Helper()
	seed := *given
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("replay with -seed %d", seed)
	return seed
}

// Several returns the seeds of a random test with more than one seed: some seeds, unless -seeds is set.
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
