package walk

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// attributes of netlink, each a header of two 16-bit words (length, type) and a value padded to 4 bytes. The kernel
// writes the same attributes that it reads, so what a proxier would send and what a kernel shows are read alike.
type attributes []byte

const (
	attributeHeader = 4
	attributeType   = 0x3fff // without the flags "nested" and "in network order"
)

// each calls yield with every attribute, until it fails.
func (a attributes) each(yield func(kind uint16, value attributes) error) error {
	for b := a; len(b) >= attributeHeader; {
		length := int(binary.NativeEndian.Uint16(b))
		if length < attributeHeader || length > len(b) {
			return fmt.Errorf("attribute of %d bytes in %d", length, len(b))
		}
		if err := yield(binary.NativeEndian.Uint16(b[2:])&attributeType, b[attributeHeader:length]); err != nil {
			return err
		}
		b = b[min((length+3)&^3, len(b)):]
	}
	return nil
}

// table gives the attributes by type; of several of one type, the last.
func (a attributes) table() (fields, error) {
	f := fields{}
	err := a.each(func(kind uint16, value attributes) error {
		f[kind] = value
		return nil
	})
	return f, err
}

// fields are attributes by type.
type fields map[uint16]attributes

// only fails when there is an attribute that is none of these.
func (f fields) only(kinds ...uint16) error {
known:
	for kind := range f {
		for _, k := range kinds {
			if k == kind {
				continue known
			}
		}
		return fmt.Errorf("attribute %d is not known", kind)
	}
	return nil
}

// number in network order; 0 when it is not there.
func (f fields) number(kind uint16) uint32 {
	if value := f[kind]; len(value) == 4 {
		return binary.BigEndian.Uint32(value)
	}
	return 0
}

// text up to its end.
func (f fields) text(kind uint16) string {
	before, _, _ := bytes.Cut(f[kind], []byte{0})
	return string(before)
}
