package kernel

import (
	"encoding/binary"
	"net/netip"
)

// Rule is what a rule says of where packets go.
type Rule struct {
	Jump string         // the chain that it jumps or goes to; empty: none
	DNAT netip.AddrPort // where its packets are sent, one address and port; zero: it does not say, or more than one
	Map  string         // in nf_tables, the map, anonymous ones included, that it looks a value or a verdict up in; empty: none
	// Other: it decides where packets go by something that the fields above do not hold, such as a verdict without a chain,
	// or a translation to a range. A mark, a counter or a comment decides nothing.
	Other bool
}

// The target DNAT of both variants carries one of these, in the host's order but for addresses and ports:
//
//	revision 0, of IPv4 alone (struct nf_nat_ipv4_multi_range_compat): u32 ranges, u32 flags, two addresses, two ports
//	revisions 1 and 2 (struct nf_nat_range, nf_nat_range2): u32 flags, two addresses of 16 bytes, two ports, of 2 a base port
const (
	targetDNAT  = "DNAT"
	dnatAddress = 1 << 0 // NF_NAT_RANGE_MAP_IPS
	dnatPort    = 1 << 1 // NF_NAT_RANGE_PROTO_SPECIFIED
)

// otherTarget says whether a target of xtables decides where packets go, in another way than DNAT to one address and port.
func otherTarget(name string, dnat netip.AddrPort) bool {
	switch name {
	case targetDNAT:
		return !dnat.IsValid()
	case "MARK", "CONNMARK", "LOG", "NFLOG", "TRACE":
		return false
	}
	return true
}

// dnatOf reads where a target DNAT sends packets of an address size in bytes; zero when that is no single address and port.
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

// addrPort is empty unless addr is an address; port is in the network's byte order.
func addrPort(addr, port []byte) netip.AddrPort {
	ip, ok := netip.AddrFromSlice(addr)
	if !ok || len(port) < 2 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(ip, binary.BigEndian.Uint16(port))
}
