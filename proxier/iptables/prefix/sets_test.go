package prefix

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"

	"synclab/internal/seedstest"
)

// rules is a test's value.
type rules struct {
	key   Key
	order int
	count int
}

func (r *rules) Rules() int           { return r.count }
func (r *rules) Compare(o *rules) int { return cmp.Compare(r.order, o.order) }

func keyOf(r *rules) Key { return r.key }

var ipv4 = Options{AddrBits: 32, Root: "KUBE-SERVICES", Use: 'S'}

func v4(n uint32) netip.Addr {
	var a [4]byte
	binary.BigEndian.PutUint32(a[:], n)
	return netip.AddrFrom4(a)
}

// v6 is the address with the 64 bits of hi and the 64 bits of lo.
func v6(hi, lo uint64) netip.Addr {
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], hi)
	binary.BigEndian.PutUint64(a[8:], lo)
	return netip.AddrFrom16(a)
}

// set is a way to choose n different addresses.
type set struct {
	name string
	bits int
	addr func(rng *rand.Rand, i int) netip.Addr
	// touched bounds the mean number of chains of one change among 10,000; the worst may be ten times as many.
	touched float64
}

const (
	base4 = uint32(10)<<24 | 96<<16 // 10.96.0.0
	base6 = uint64(0x2001_0db8) << 32
)

var sets = []set{
	{"sequential", 32, func(_ *rand.Rand, i int) netip.Addr { return v4(base4 + uint32(i)) }, 4},
	{"random in a /12", 32, func(rng *rand.Rand, _ int) netip.Addr { return v4(base4 + rng.Uint32N(1<<20)) }, 4},
	{"random everywhere", 32, func(rng *rand.Rand, _ int) netip.Addr { return v4(rng.Uint32()) }, 4},
	{"one of each /24", 32, func(_ *rand.Rand, i int) netip.Addr { return v4(base4 + uint32(i)<<8) }, 4},
	{"clusters of 50 in random places", 32, func(rng *rand.Rand, i int) netip.Addr {
		place := rand.New(rand.NewPCG(uint64(i/50), 1)).Uint32()
		return v4(place&^0xff + uint32(i%50))
	}, 4},
	// Ever smaller prefixes, each with as many addresses as the one before: the path of one is the edge of all others.
	{"nested, equal", 32, func(rng *rand.Rand, i int) netip.Addr {
		depth := uint32(i % 18)
		return v4(1<<(31-depth) + rng.Uint32N(1<<(31-depth)))
	}, 4},
	{"nested, halving", 32, func(rng *rand.Rand, _ int) netip.Addr { return v4(rng.Uint32() >> rng.IntN(20)) }, 4},
	{"nested at every size", 32, func(rng *rand.Rand, _ int) netip.Addr {
		// Single addresses beside every bit of a path, with bushes on them.
		n := uint32(0xac100000)
		for range 1 + rng.IntN(6) {
			n ^= 1 << rng.IntN(32)
		}
		return v4(n)
	}, 6},
	{"IPv6 /108, 16 bits", 128, func(_ *rand.Rand, i int) netip.Addr { return v6(base6, uint64(i%(1<<20))) }, 4},
	{"IPv6 /108, random", 128, func(rng *rand.Rand, _ int) netip.Addr { return v6(base6, rng.Uint64N(1<<20)) }, 4},
	{"IPv6, random in a /64", 128, func(rng *rand.Rand, _ int) netip.Addr { return v6(base6, rng.Uint64()) }, 4},
	{"IPv6, nested", 128, func(rng *rand.Rand, i int) netip.Addr {
		depth := i % 100 // 100 prefixes, one in the other, with as many addresses each
		hi, lo := rng.Uint64(), rng.Uint64()
		if depth < 64 {
			return v6((1<<63|hi)>>depth, lo)
		}
		return v6(0, (1<<63|lo)>>(depth-64))
	}, 4},
	{"IPv6, flipped bits", 128, func(rng *rand.Rand, _ int) netip.Addr {
		hi, lo := base6, uint64(1)
		for range 1 + rng.IntN(4) {
			if b := rng.IntN(128); b < 64 {
				hi ^= 1 << b
			} else {
				lo ^= 1 << (b - 64)
			}
		}
		return v6(hi, lo)
	}, 25},
}

// fill fills a tree with n addresses of a set, with one TCP port each.
func fill(t testing.TB, s set, n int, rng *rand.Rand) (*Tree[*rules], []*rules) {
	t.Helper()
	tree := New[*rules](Options{AddrBits: s.bits, Root: "KUBE-SERVICES", Use: 'S'})
	var all []*rules
	taken := map[netip.Addr]bool{}
	for i := 0; len(all) < n; i++ {
		if i > 100*n {
			t.Fatalf("%s has no %d addresses", s.name, n)
		}
		addr := s.addr(rng, i)
		if taken[addr] {
			continue
		}
		taken[addr] = true
		v := &rules{key: Key{Addr: addr, Protocol: TCP, Port: 80}, order: len(all), count: 1}
		if err := tree.Add(v.key, v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return tree, all
}

func newRand(t testing.TB) *rand.Rand {
	t.Helper()
	seed := seedstest.Of(t)
	return rand.New(rand.NewPCG(seed, 0))
}

func text(tree *Tree[*rules]) map[string]string {
	text := map[string]string{}
	for _, name := range tree.Names() {
		rules, _ := tree.Chain(name)
		for _, r := range rules {
			if r.To != "" {
				text[name] += fmt.Sprintf("%+v -> %s\n", r.Match, r.To)
			} else {
				text[name] += fmt.Sprintf("%+v %d %d\n", r.Value.key, r.Value.order, r.Value.count)
			}
		}
		text[name] += "."
	}
	return text
}
