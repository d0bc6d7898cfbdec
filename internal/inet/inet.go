// Package inet reads IP addresses and ranges as Kubernetes and its proxies do, with the spellings of old objects
// (KEP-4858): leading zeros, which are decimal, IPv4 addresses that are spelled as IPv6 ones, ranges with bits beyond
// their prefix.
package inet

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	utilnet "k8s.io/utils/net"
)

// ParseAddr reads an address without a zone. An IPv4 address that is spelled as an IPv6 one is one of IPv4.
func ParseAddr(text string) (netip.Addr, bool) {
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return addr.Unmap(), true
	}
	addr, ok := netip.AddrFromSlice(utilnet.ParseIPSloppy(text))
	return addr.Unmap(), ok
}

// ParseAddrOf reads the first text that is an address of a family.
func ParseAddrOf(family corev1.IPFamily, texts ...string) (netip.Addr, bool) {
	for _, text := range texts {
		if addr, ok := ParseAddr(text); ok && FamilyOf(addr) == family {
			return addr, true
		}
	}
	return netip.Addr{}, false
}

// ParsePrefix reads a range, without the bits beyond its prefix.
func ParsePrefix(text string) (netip.Prefix, error) {
	_, network, err := utilnet.ParseCIDRSloppy(text)
	if err != nil {
		return netip.Prefix{}, err
	}
	addr, _ := netip.AddrFromSlice(network.IP)
	ones, _ := network.Mask.Size()
	if addr.Is4In6() {
		ones -= 96 // the length of ::ffff:0:0
	}
	return netip.PrefixFrom(addr.Unmap(), ones), nil
}

// FamilyOf returns the family of an address.
func FamilyOf(addr netip.Addr) corev1.IPFamily {
	if addr.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
