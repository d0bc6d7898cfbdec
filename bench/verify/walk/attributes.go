package walk

import (
	"encoding/binary"
	"fmt"

	"synclab/proxier/kernel/attr"
)

// attributes are those of a netlink message. The kernel writes the same attributes that it reads, so attributes of a proxier
// and of a kernel are read alike.
type attributes []byte

// each calls yield with every attribute, until it fails.
func (a attributes) each(yield func(kind uint16, value attributes) error) (err error) {
	for one := range attr.All(a, &err) {
		if err := yield(one.Type, one.Value); err != nil {
			return err
		}
	}
	return err
}

// table returns the attributes by type; of several with one type, the last.
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

// only returns an error if there is an attribute of another type.
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

// number returns a value in network byte order; 0 when it is missing.
func (f fields) number(kind uint16) uint32 {
	if value := f[kind]; len(value) == 4 {
		return binary.BigEndian.Uint32(value)
	}
	return 0
}

// text returns a string up to its first zero byte.
func (f fields) text(kind uint16) string { return attr.Text(f[kind]) }
