package prefix

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

// Protocol of a key. The values are its two bits in a key: TCP differs from the others in the first one.
type Protocol uint8

// The protocols of Services.
const (
	TCP  Protocol = 0
	UDP  Protocol = 2
	SCTP Protocol = 3
)

// Key is the destination that a value's rules match.
type Key struct {
	Addr     netip.Addr // zero in a tree of ports alone
	Protocol Protocol
	Port     uint16
}

const (
	protocolBits = 2
	portBits     = 16
)

// path is a key as a string of bits, the address first, zeros behind it.
type path [3]uint64

// newPath returns the path of a key whose address has so many bits.
func newPath(k Key, addrBits int) path {
	suffix := uint64(k.Protocol)<<portBits | uint64(k.Port)
	switch addrBits {
	case 0:
		return path{suffix << (64 - protocolBits - portBits)}
	case 32:
		a := k.Addr.As4()
		return path{uint64(binary.BigEndian.Uint32(a[:]))<<32 | suffix<<(32-protocolBits-portBits)}
	default:
		a := k.Addr.As16()
		return path{binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(a[8:]), suffix << (64 - protocolBits - portBits)}
	}
}

// bit returns the bit at a position; 0 is the first one.
func (p *path) bit(i int) int { return int(p[i/64] >> (63 - i%64) & 1) }

// common returns the number of leading bits that p and q share.
func (p *path) common(q *path) int {
	for i := range p {
		if x := p[i] ^ q[i]; x != 0 {
			return 64*i + bits.LeadingZeros64(x)
		}
	}
	return 64 * len(p)
}

// cut keeps the first n bits.
func (p path) cut(n int) path {
	for i := range p {
		switch keep := n - 64*i; {
		case keep <= 0:
			p[i] = 0
		case keep < 64:
			p[i] &= ^uint64(0) << (64 - keep)
		}
	}
	return p
}

func (p *path) compare(q *path) int {
	for i := range p {
		if p[i] != q[i] {
			if p[i] < q[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// span is a prefix: the first length bits of a path.
type span struct {
	path   path
	length int
}

func (s *span) holds(p *path) bool { return s.path.common(p) >= s.length }

// addr returns the address in the span's bits; the bits behind the span are zero.
func (s *span) addr(addrBits int) netip.Addr {
	if addrBits == 32 {
		var a [4]byte
		binary.BigEndian.PutUint32(a[:], uint32(s.path[0]>>32))
		return netip.AddrFrom4(a)
	}
	var a [16]byte
	binary.BigEndian.PutUint64(a[:8], s.path[0])
	binary.BigEndian.PutUint64(a[8:], s.path[1])
	return netip.AddrFrom16(a)
}

// suffix returns the part of the span's bits behind the address.
func (s *span) suffix(addrBits int) (Protocol, uint16) {
	word := s.path[addrBits/64] << (addrBits % 64) >> (64 - protocolBits - portBits)
	return Protocol(word >> portBits), uint16(word)
}

// Match is what all keys of a prefix have in common.
type Match struct {
	// Prefix of the destination address; zero: any.
	Prefix netip.Prefix
	// Protocols says what the protocol must be.
	Protocols Protocols
	// Protocol is set where Protocols is OneProtocol.
	Protocol Protocol
	// First and Last port are set where Protocols is OneProtocol.
	First, Last uint16
}

// Protocols is what a Match requires of the protocol.
type Protocols uint8

// The values of Protocols.
const (
	AnyProtocol Protocols = iota
	NotTCP
	OneProtocol
)

// AnyPort reports whether the match accepts every port.
func (m Match) AnyPort() bool { return m.First == 0 && m.Last == 1<<portBits-1 }

// Matches reports whether a packet to that destination matches.
func (m Match) Matches(k Key) bool {
	if m.Prefix.IsValid() && !m.Prefix.Contains(k.Addr) {
		return false
	}
	switch m.Protocols {
	case NotTCP:
		return k.Protocol != TCP
	case OneProtocol:
		return k.Protocol == m.Protocol && m.First <= k.Port && k.Port <= m.Last
	}
	return true
}

func (s *span) match(addrBits int) Match {
	m := Match{Last: 1<<portBits - 1}
	if addrBits > 0 && s.length > 0 {
		m.Prefix = netip.PrefixFrom(s.addr(addrBits), min(s.length, addrBits))
	}
	protocol, port := s.suffix(addrBits)
	switch known := s.length - addrBits; {
	case known <= 0:
	case known < protocolBits:
		m.Protocols = NotTCP // all TCP keys share both bits, so one known bit is a 1
	default:
		m.Protocols, m.Protocol = OneProtocol, protocol
		m.First, m.Last = port, port|uint16(1<<(protocolBits+portBits-known)-1)
	}
	return m
}
