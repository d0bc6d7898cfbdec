package capture

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"

	utilnet "k8s.io/utils/net"

	"synclab/internal/inet"
)

// numbering gives the addresses and ranges of one IP family new numbers at random, and keeps what contains what.
// Special addresses (loopback, multicast) and ranges too short to identify a cluster keep their numbers. See
// docs/design/anonymize.md.
type numbering struct {
	bits int // of an address
	rng  *rand.Rand
	// groups are the prefix lengths by which addresses are grouped. leastBits is the shortest prefix to renumber.
	groups    []int
	leastBits int
	// special ranges keep their numbers. New numbers are in neither special nor unused.
	special, unused []netip.Prefix

	noted    map[netip.Prefix]bool
	assigned map[netip.Prefix]netip.Prefix
}

func newNumbering(bits int, rng *rand.Rand) *numbering {
	n := &numbering{bits: bits, rng: rng, noted: map[netip.Prefix]bool{}, assigned: map[netip.Prefix]netip.Prefix{}}
	special := []string{"0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "255.255.255.255/32"}
	unused := []string{"240.0.0.0/4"} // class E: some clusters have their pods there
	n.groups, n.leastBits = []int{16, 24}, 8
	if bits == 128 {
		special = []string{"::/128", "::1/128", "ff00::/8"}
		// New numbers are global or unique local ones, of 2000::/3 or fc00::/7.
		unused = []string{"::/3", "4000::/2", "8000::/2", "c000::/3", "e000::/4", "f000::/5", "f800::/6", "fe00::/7"}
		n.groups, n.leastBits = []int{48, 64}, 16
	}
	for _, text := range special {
		n.special = append(n.special, netip.MustParsePrefix(text))
	}
	for _, text := range unused {
		n.unused = append(n.unused, netip.MustParsePrefix(text))
	}
	return n
}

// keeps reports whether a range keeps its number.
func (n *numbering) keeps(p netip.Prefix) bool {
	return p.Bits() < n.leastBits || slices.ContainsFunc(n.special, func(s netip.Prefix) bool {
		return s.Bits() <= p.Bits() && s.Contains(p.Addr())
	})
}

// note records a range, or an address as a range of one. grouped records the groups that contain it, too.
func (n *numbering) note(p netip.Prefix, grouped bool) {
	n.noted[p.Masked()] = true
	if n.keeps(p) || !grouped {
		return
	}
	for _, bits := range n.groups {
		if bits < p.Bits() {
			n.noted[netip.PrefixFrom(p.Addr(), bits).Masked()] = true
		}
	}
}

// noteCover records the smallest range that contains all of some addresses and ranges, unless it is too short.
func (n *numbering) noteCover(of []netip.Prefix) {
	if cover, ok := coverOf(of); ok && cover.Bits() >= n.leastBits && !n.keeps(cover) {
		n.noted[cover] = true
	}
}

func coverOf(of []netip.Prefix) (netip.Prefix, bool) {
	if len(of) == 0 {
		return netip.Prefix{}, false
	}
	cover := of[0].Masked()
	for _, p := range of[1:] {
		for cover.Bits() > p.Bits() || !cover.Contains(p.Addr()) {
			cover = netip.PrefixFrom(cover.Addr(), cover.Bits()-1).Masked()
		}
	}
	return cover, true
}

// branch is a range with the ranges directly within it.
type branch struct {
	prefix netip.Prefix
	within []*branch
}

// assign draws the new numbers.
func (n *numbering) assign() error {
	root, all := n.tree()
	// No range may get the old place of another: a reader could not distinguish it from a range that was forgotten.
	var taken []netip.Prefix
	for _, b := range append(all, root) {
		if n.keeps(b.prefix) {
			for _, child := range b.within {
				if !n.keeps(child.prefix) {
					taken = append(taken, child.prefix)
				}
			}
		}
	}
	return n.place(root, root.prefix, taken)
}

// tree orders the recorded ranges by containment.
func (n *numbering) tree() (root *branch, all []*branch) {
	prefixes := make([]netip.Prefix, 0, len(n.noted))
	for p := range n.noted {
		if p.Bits() > 0 {
			prefixes = append(prefixes, p)
		}
	}
	slices.SortFunc(prefixes, func(a, b netip.Prefix) int {
		return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
	})
	zero := netip.IPv4Unspecified()
	if n.bits == 128 {
		zero = netip.IPv6Unspecified()
	}
	root = &branch{prefix: netip.PrefixFrom(zero, 0)}
	open := []*branch{root}
	for _, p := range prefixes {
		for !open[len(open)-1].prefix.Contains(p.Addr()) {
			open = open[:len(open)-1]
		}
		b := &branch{prefix: p}
		parent := open[len(open)-1]
		parent.within = append(parent.within, b)
		open, all = append(open, b), append(all, b)
	}
	return root, all
}

// place assigns new places to a range and to those within it. It uses avoided places only if no other is free.
func (n *numbering) place(b *branch, to netip.Prefix, avoided []netip.Prefix) error {
	n.assigned[b.prefix] = to
	if len(b.within) == 0 {
		return nil
	}
	var free, fallback area
	if n.keeps(b.prefix) {
		fallback.add(slices.Concat(n.special, n.unused)...)
		free.add(slices.Concat(n.special, n.unused, avoided)...)
	}
	n.rng.Shuffle(len(b.within), func(i, j int) { b.within[i], b.within[j] = b.within[j], b.within[i] })
	slices.SortStableFunc(b.within, func(a, b *branch) int { return cmp.Compare(a.prefix.Bits(), b.prefix.Bits()) })
	for _, child := range b.within {
		if n.keeps(child.prefix) {
			free.add(child.prefix)
			fallback.add(child.prefix)
		}
	}
	for _, child := range b.within {
		place := child.prefix
		if !n.keeps(child.prefix) {
			var ok bool
			if place, ok = free.draw(n.rng, to, child.prefix.Bits()); !ok {
				if place, ok = fallback.draw(n.rng, to, child.prefix.Bits()); !ok {
					return fmt.Errorf("no room in %s for a /%d range", to, child.prefix.Bits())
				}
			}
			free.add(place)
			fallback.add(place)
		}
		if err := n.place(child, place, avoided); err != nil {
			return err
		}
	}
	return nil
}

// area is a set of ranges that are not free.
type area struct {
	whole   map[netip.Prefix]bool
	lengths []int                 // of the ranges in whole
	partly  map[netip.Prefix]bool // all ranges that contain one of whole
}

func (a *area) add(ranges ...netip.Prefix) {
	if a.whole == nil {
		a.whole, a.partly = map[netip.Prefix]bool{}, map[netip.Prefix]bool{}
	}
	for _, p := range ranges {
		a.whole[p] = true
		if !slices.Contains(a.lengths, p.Bits()) {
			a.lengths = append(a.lengths, p.Bits())
		}
		for bits := p.Bits() - 1; bits >= 0; bits-- {
			outer := netip.PrefixFrom(p.Addr(), bits).Masked()
			if a.partly[outer] {
				break // the ranges around it are marked already
			}
			a.partly[outer] = true
		}
	}
}

func (a *area) free(p netip.Prefix) bool {
	if a.partly[p] {
		return false
	}
	for _, bits := range a.lengths {
		if bits <= p.Bits() && a.whole[netip.PrefixFrom(p.Addr(), bits).Masked()] {
			return false
		}
	}
	return true
}

// Places are tried at random first; in a nearly full range, one after another.
const (
	randomTries = 64
	mostPlaces  = 1 << 20
)

// draw returns a free range of some length within another.
func (a *area) draw(rng *rand.Rand, within netip.Prefix, bits int) (netip.Prefix, bool) {
	for range randomTries {
		if p := nth(within, bits, rng.Uint64(), rng.Uint64()); a.free(p) {
			return p, true
		}
	}
	places := uint64(mostPlaces)
	if spare := bits - within.Bits(); spare < 20 {
		places = 1 << spare
	}
	start := rng.Uint64N(places)
	for i := range places {
		if p := nth(within, bits, 0, (start+i)%places); a.free(p) {
			return p, true
		}
	}
	return netip.Prefix{}, false
}

// nth returns one of the ranges of a length within another. The low bits of the number select it.
func nth(within netip.Prefix, bits int, high, low uint64) netip.Prefix {
	addr := within.Addr().AsSlice()
	for bit := bits - 1; bit >= within.Bits(); bit-- {
		if low&1 == 1 {
			addr[bit/8] |= 1 << (7 - bit%8)
		}
		low = low>>1 | high<<63
		high >>= 1
	}
	out, _ := netip.AddrFromSlice(addr)
	return netip.PrefixFrom(out, bits)
}

// parseAddress reads an address as proxies do, with leading zeros too. It refuses link-local addresses: the API allows
// them for nothing that a proxy reads, and an IPv6 one may contain a MAC address.
func parseAddress(text string) (netip.Prefix, bool) {
	addr, ok := inet.ParseAddr(text)
	return netip.PrefixFrom(addr, addr.BitLen()), ok && !addr.IsLinkLocalUnicast()
}

// parseRange reads a range as proxies do.
func parseRange(text string) (netip.Prefix, bool) {
	_, network, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, false
	}
	bits, of := network.Mask.Size()
	addr, ok := netip.AddrFromSlice(network.IP)
	if ok && of == 32 {
		addr = addr.Unmap()
	}
	return netip.PrefixFrom(addr, bits).Masked(), ok
}
