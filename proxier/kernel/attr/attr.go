// Package attr encodes and decodes netlink attributes (struct nlattr): a header of two 16-bit words in the machine's byte order,
// length and type, and a value that is padded to 4 bytes. Numbers in values are in network byte order.
package attr

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"golang.org/x/sys/unix"
)

// HeaderSize is the size of an attribute's header in bytes.
const HeaderSize = 4

// typeMask removes the flags "nested" and "in network byte order" from a type.
const typeMask = 0x3fff

// Attr is one attribute of a message.
type Attr struct {
	Type  uint16 // without flags
	Value []byte
	Raw   []byte // header and value, without padding
}

// All returns the attributes of a message. It ends early, and sets err, at an attribute that reaches beyond the message; otherwise
// it leaves err as it is.
func All(b []byte, err *error) iter.Seq[Attr] {
	return func(yield func(Attr) bool) {
		for len(b) >= HeaderSize {
			length := int(binary.NativeEndian.Uint16(b))
			if length < HeaderSize || length > len(b) {
				*err = fmt.Errorf("netlink: attribute of %d bytes in %d", length, len(b))
				return
			}
			if !yield(Attr{binary.NativeEndian.Uint16(b[2:]) & typeMask, b[HeaderSize:length], b[:length]}) {
				return
			}
			b = b[min(Align(length), len(b)):]
		}
	}
}

// Uint32 returns a value of 4 bytes as a number; 0 for any other length.
func (a Attr) Uint32() uint32 {
	if len(a.Value) != 4 {
		return 0
	}
	return binary.BigEndian.Uint32(a.Value)
}

// Text returns a value up to its first zero byte.
func (a Attr) Text() string { return Text(a.Value) }

// Text returns a value up to its first zero byte.
func Text(value []byte) string {
	before, _, _ := bytes.Cut(value, []byte{0})
	return string(before)
}

// Align rounds a size up to the alignment of netlink.
func Align(n int) int { return (n + 3) &^ 3 }

// Append appends an attribute and its padding.
func Append(b []byte, kind uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(HeaderSize+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return pad(append(b, value...))
}

// AppendText appends an attribute whose value is a text and a zero byte.
func AppendText(b []byte, kind uint16, value string) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(HeaderSize+len(value)+1))
	b = binary.NativeEndian.AppendUint16(b, kind)
	return pad(append(append(b, value...), 0))
}

// AppendUint32 appends an attribute whose value is a number.
func AppendUint32(b []byte, kind uint16, value uint32) []byte {
	b = binary.NativeEndian.AppendUint16(b, HeaderSize+4)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.BigEndian.AppendUint32(b, value)
}

// AppendUint64 appends an attribute whose value is a number.
func AppendUint64(b []byte, kind uint16, value uint64) []byte {
	b = binary.NativeEndian.AppendUint16(b, HeaderSize+8)
	b = binary.NativeEndian.AppendUint16(b, kind)
	return binary.BigEndian.AppendUint64(b, value)
}

// Open appends the header of an attribute that contains attributes. Close sets its length when they are appended; start is the
// length of b before Open.
func Open(b []byte, kind uint16) []byte {
	b = binary.NativeEndian.AppendUint16(b, 0)
	return binary.NativeEndian.AppendUint16(b, kind|unix.NLA_F_NESTED)
}

// Close ends the attribute that Open began at start.
func Close(b []byte, start int) { binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start)) }

// Nest appends an attribute that contains what inside appends.
func Nest(b []byte, kind uint16, inside func([]byte) []byte) []byte {
	start := len(b)
	b = inside(Open(b, kind))
	Close(b, start)
	return b
}

func pad(b []byte) []byte {
	for len(b)%4 != 0 {
		b = append(b, 0)
	}
	return b
}
