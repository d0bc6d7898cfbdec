package world

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/types"
)

// trait is a property that a share of Services or endpoints has.
type trait int

const (
	traitType trait = iota
	traitProtocol
	traitEndpoints
	traitWithoutEndpoint
	traitExternalIPs
	traitSourceRanges
	traitAffinity
	traitInternalLocal
	traitExternalLocal
	traitHints
	traitCondition
	traitNameless
)

// strides are square roots of primes: irrational and independent of each other, so that the traits are independent,
// too.
var strides = [...]float64{
	traitType: math.Sqrt2, traitProtocol: 1.7320508075688772, traitEndpoints: 2.23606797749979,
	traitWithoutEndpoint: 2.6457513110645907, traitExternalIPs: 3.3166247903554,
	traitSourceRanges: 3.605551275463989, traitAffinity: 4.123105625617661,
	traitInternalLocal: 4.358898943540674, traitExternalLocal: 4.795831523312719,
	traitHints: 5.385164807134504, traitCondition: 5.5677643628300215, traitNameless: 6.082762530298219,
}

// draw returns the i-th number in [0, 1) of a trait's Kronecker sequence: i times an irrational, modulo 1, from an
// offset of the seed. A share of few Services is exact but for a few, too. See docs/design/simulated-cluster.md.
func draw(seed uint64, t trait, i int) float64 {
	offset := rand.New(rand.NewPCG(seed, uint64(t)+1)).Float64()
	_, f := math.Modf(offset + float64(i+1)*strides[t])
	return f
}

// words returns two pseudo-random words that depend on the seed and a name.
func words(seed uint64, name string) (uint64, uint64) {
	h := fnv.New64a()
	h.Write([]byte(name))
	r := rand.NewPCG(seed, h.Sum64())
	return r.Uint64(), r.Uint64()
}

// UIDOf returns the UID of the object of that name: a version-4 UUID.
func UIDOf(seed uint64, name string) types.UID {
	high, low := words(seed, name)
	high = high&^0xf000 | 0x4000
	low = low&^(3<<62) | 2<<62
	return types.UID(fmt.Sprintf("%08x-%04x-%04x-%04x-%012x", high>>32, high>>16&0xffff, high&0xffff, low>>48, low&(1<<48-1)))
}

// nameAlphabet is the API server's alphabet for generated names: no vowels, so that no words appear.
const nameAlphabet = "bcdfghjklmnpqrstvwxz2456789"

// nameSuffix returns the five characters that the API server would add to a generateName. Different n give different
// suffixes for one owner.
func nameSuffix(seed uint64, owner string, n int) string {
	const space = 27 * 27 * 27 * 27 * 27
	start, _ := words(seed, owner)
	// 7,919,479 shares no factor with 27^5, so that the first 27^5 n differ.
	v := (start%space + uint64(n)*7919479%space) % space
	var b [5]byte
	for i := range b {
		b[i] = nameAlphabet[v%27]
		v /= 27
	}
	return string(b[:])
}
