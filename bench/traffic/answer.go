package traffic

import (
	"encoding/binary"
	"net/netip"
)

// An answer has the identity of its endpoint (16 bytes of address, 2 of port) and the number of the question.
const (
	questionSize = 8
	identitySize = 18
	answerSize   = identitySize + questionSize
)

// putIdentity encodes an address for an answer.
func putIdentity(b []byte, addr [16]byte, port uint16) {
	copy(b[:16], addr[:])
	binary.BigEndian.PutUint16(b[16:], port)
}

// ReadAnswer decodes an answer; ok is false if it is invalid.
func ReadAnswer(b []byte) (by netip.AddrPort, question uint64, ok bool) {
	if len(b) < answerSize {
		return netip.AddrPort{}, 0, false
	}
	addr := netip.AddrFrom16([16]byte(b[:16])).Unmap()
	return netip.AddrPortFrom(addr, binary.BigEndian.Uint16(b[16:18])), binary.BigEndian.Uint64(b[identitySize:answerSize]), true
}
