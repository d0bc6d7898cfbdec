package traffic

import (
	"encoding/binary"
	"net/netip"
)

// An answer is the identity of who gives it (16 bytes of address, 2 of port) and the number of the question.
const (
	questionSize = 8
	identitySize = 18
	answerSize   = identitySize + questionSize
)

// putIdentity writes an address as answers have it.
func putIdentity(b []byte, addr [16]byte, port uint16) {
	copy(b[:16], addr[:])
	binary.BigEndian.PutUint16(b[16:], port)
}

// readAnswer takes an answer apart; ok is false when it is none.
func readAnswer(b []byte) (by netip.AddrPort, question uint64, ok bool) {
	if len(b) < answerSize {
		return netip.AddrPort{}, 0, false
	}
	addr := netip.AddrFrom16([16]byte(b[:16])).Unmap()
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[16:18])), binary.BigEndian.Uint64(b[identitySize:answerSize]), true
}

// mapped is an IPv4 address in IPv6's form.
func mapped(v4 [4]byte) (b [16]byte) {
	b[10], b[11] = 0xff, 0xff
	copy(b[12:], v4[:])
	return b
}
