package direct

import (
	"fmt"
	"net/netip"
)

// The inversions of an entry: IPT_INV_…, the same numbers in both families.
const (
	invertIn          = 0x01
	invertOut         = 0x02
	invertSource      = 0x08
	invertDestination = 0x10
	invertProtocol    = 0x40
)

const interfaceSize = 16 // IFNAMSIZ

// basic takes what an entry itself matches.
func (r *rule) basic(option string) error {
	value, err := r.words.value(option)
	if err != nil {
		return err
	}
	var inversion byte
	switch option[1] {
	case 's':
		inversion, err = invertSource, r.address(0, value)
	case 'd':
		inversion, err = invertDestination, r.address(1, value)
	case 'i':
		inversion, err = invertIn, r.iface(0, value)
	case 'o':
		inversion, err = invertOut, r.iface(1, value)
	case 'p':
		inversion, err = invertProtocol, r.protocol(value)
	}
	if err == nil && r.inverse {
		r.block.entries[r.start+r.wire.Inversions] |= inversion
	}
	return err
}

// address writes the source (0) or the destination (1): both addresses come first, then both masks.
func (r *rule) address(which int, word []byte) error {
	prefix, err := address(word, 8*r.wire.Addr)
	if err != nil {
		return err
	}
	at := r.start + which*r.wire.Addr
	r.putAddr(at, prefix.Addr())
	mask := r.block.entries[at+2*r.wire.Addr:][:r.wire.Addr]
	for bit := range prefix.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return nil
}

func (e *encoder) putAddr(at int, addr netip.Addr) {
	if addr.Is4() {
		bytes := addr.As4()
		copy(e.block.entries[at:], bytes[:])
		return
	}
	bytes := addr.As16()
	copy(e.block.entries[at:], bytes[:])
}

// iface writes the interface packets come in by (0) or go out by (1): both names come first, then both masks. A name
// that ends in + is one of a prefix; else the zero behind the name counts, too.
func (r *rule) iface(which int, name []byte) error {
	if len(name) >= interfaceSize {
		return fmt.Errorf("interface %q: longer than %d characters", name, interfaceSize-1)
	}
	at := r.start + r.wire.Interfaces + which*interfaceSize
	copy(r.block.entries[at:], name)
	significant := len(name) + 1
	if name[len(name)-1] == '+' {
		significant = len(name) - 1
	}
	mask := r.block.entries[at+2*interfaceSize:][:significant]
	for i := range mask {
		mask[i] = 0xff
	}
	return nil
}

// protocols are those that Services have.
var protocols = []struct {
	name   string
	number uint16
}{{"tcp", 6}, {"udp", 17}, {"sctp", 132}}

func (r *rule) protocol(name []byte) error {
	for _, p := range protocols {
		if p.name == string(name) {
			r.block.put16(r.start+r.wire.Protocol, p.number)
			r.block.entries[r.start+r.wire.Flags] |= r.wire.FlagProtocol
			return nil
		}
	}
	return fmt.Errorf("protocol %q: want tcp, udp or sctp", name)
}
