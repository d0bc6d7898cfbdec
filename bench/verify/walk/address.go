package walk

import (
	"encoding/binary"
	"net/netip"
)

// address is an IP address as two words; IPv4 is in the second. Rules are of one family, so families never mix.
type address [2]uint64

func addressOf(a netip.Addr) address {
	if a.Is4() {
		b := a.As4()
		return address{0, uint64(binary.BigEndian.Uint32(b[:]))}
	}
	b := a.As16()
	return address{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (a address) addr(ipv4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], a[0])
	binary.BigEndian.PutUint64(b[8:], a[1])
	if ipv4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// network is a prefix to compare addresses with. The zero value contains all addresses.
type network struct{ base, mask address }

func networkOf(p netip.Prefix) network {
	mask := address{^uint64(0), ^uint64(0)}
	if p.Addr().Is4() {
		mask = address{0, 1<<32 - 1<<(32-p.Bits())}
	} else if bits := p.Bits(); bits <= 64 {
		mask = address{^uint64(0) << (64 - bits), 0}
	} else {
		mask[1] = ^uint64(0) << (128 - bits)
	}
	return network{base: addressOf(p.Masked().Addr()), mask: mask}
}

func (n *network) holds(a *address) bool {
	return a[0]&n.mask[0] == n.base[0] && a[1]&n.mask[1] == n.base[1]
}
