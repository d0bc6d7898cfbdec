package kernel

import (
	"encoding/binary"
	"net/netip"
)

// Rule is where a rule sends packets.
type Rule struct {
	Jump string         // the chain that it jumps or goes to; empty: none
	DNAT netip.AddrPort // the one address and port that it translates to; zero: none, or several
	Map  string         // of nf_tables: the map, anonymous ones too, where it looks up a value or verdict; empty: none
	// Other: it decides where packets go, but not by one of the fields above. Examples are a verdict without a chain
	// and a translation to a range. A mark, a counter or a comment decides nothing.
	Other bool
}

// The target DNAT of both variants carries one of these, in host byte order except for addresses and ports:
//
//	revision 0, of IPv4 alone (struct nf_nat_ipv4_multi_range_compat): u32 ranges, u32 flags, two addresses, two ports
//	revisions 1 and 2 (struct nf_nat_range, nf_nat_range2): u32 flags, two addresses of 16 bytes, two ports, of 2 a base port
const (
	targetDNAT  = "DNAT"
	dnatAddress = 1 << 0 // NF_NAT_RANGE_MAP_IPS
	dnatPort    = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
)

// otherTarget reports whether an xtables target decides where packets go, other than by DNAT to one address and port.
func otherTarget(name string, dnat netip.AddrPort) bool {
	switch name {
	case targetDNAT:
		return !dnat.IsValid()
	case "MARK", "CONNMARK", "LOG", "NFLOG", "TRACE":
		return false
	}
	return true
}

// dnatOf returns the address and port of a target DNAT, for addresses of size bytes; zero unless there is exactly one.
func dnatOf(revision uint32, body []byte, size int) netip.AddrPort {
	field := size
	if revision == 0 {
		if size != 4 || len(body) < 4 || binary.NativeEndian.Uint32(body) != 1 {
			return netip.AddrPort{}
		}
		body = body[4:]
	} else {
		field = 16
	}
	if revision > 2 || len(body) < 4+2*field+4 {
		return netip.AddrPort{}
	}
	flags, low, high := binary.NativeEndian.Uint32(body), body[4:4+size], body[4+field:4+field+size]
	ports := body[4+2*field:]
	if flags&dnatAddress == 0 || flags&dnatPort == 0 || string(low) != string(high) || string(ports[:2]) != string(ports[2:4]) {
		return netip.AddrPort{}
	}
	return addrPort(low, ports)
}

// addrPort returns an address and port; zero unless addr is an address. port is in network byte order.
func addrPort(addr, port []byte) netip.AddrPort {
	ip, ok := netip.AddrFromSlice(addr)
	if !ok || len(port) < 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
}
