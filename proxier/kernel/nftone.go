package kernel

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// tableHandle is NFTA_TABLE_HANDLE, which package unix does not have.
const tableHandle = 4

// Element of a set or a map by its key, each field of which begins at a multiple of 4; false when it is not there. In a
// set of any size it is found at once.
func (n *Nftables) Element(family corev1.IPFamily, table, set string, key []byte) (e NftElement, ok bool, err error) {
	request := stringAttr(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	request = stringAttr(request, unix.NFTA_SET_ELEM_LIST_SET, set)
	request = append(request, keyAttrs(key)...)
	err = n.ask(func() error {
		return n.s.one(unix.NFT_MSG_GETSETELEM, nfProtocols[family], request, func(attrs []byte) error {
			return inside(attrs, unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list []byte) error {
				return inside(list, unix.NFTA_LIST_ELEM, func(element []byte) (err error) {
					e, err = elementOf(element)
					ok = err == nil
					return err
				})
			})
		})
	})
	if err != nil {
		return e, false, fmt.Errorf("element %x of %s table %s set %s: %w", key, family, table, set, err)
	}
	return e, ok, nil
}

// Table gives the handle of a table: the newer table has the larger one; false when it is not there.
func (n *Nftables) Table(family corev1.IPFamily, table string) (handle uint64, ok bool, err error) {
	err = n.ask(func() error {
		return n.s.one(unix.NFT_MSG_GETTABLE, nfProtocols[family], stringAttr(nil, unix.NFTA_TABLE_NAME, table), func(attrs []byte) error {
			ok = true
			return eachAttr(attrs, func(kind uint16, value []byte) {
				if kind == tableHandle && len(value) == 8 {
					handle = binary.BigEndian.Uint64(value)
				}
			})
		})
	})
	if err != nil {
		return 0, false, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return handle, ok, nil
}

// keyAttrs is a list of one element, as attributes: in an element of a list a key, in that its value.
func keyAttrs(key []byte) []byte {
	b := attr(unix.NFTA_DATA_VALUE, key)
	for _, kind := range []uint16{unix.NFTA_SET_ELEM_KEY, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_LIST_ELEMENTS} {
		b = attr(kind|unix.NLA_F_NESTED, b)
	}
	return b
}

func attr(kind uint16, value []byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(attrSize+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, align(len(b))-len(b))...)
}

// RulesByChain is the number of rules of each chain of a table; none when there is no such table.
func (n *Nftables) RulesByChain(family corev1.IPFamily, table string) (tally map[string]int, err error) {
	err = n.ask(func() error {
		tally = map[string]int{}
		return n.s.eachChain(family, table, func(c Chain, rules int) { tally[c.Name] = rules })
	})
	if err != nil {
		return nil, fmt.Errorf("rules of %s table %s by chain: %w", family, table, err)
	}
	return tally, nil
}

// NftSize is how many elements a set or a map has.
type NftSize struct {
	Set      string
	Elements int // -1: the kernel does not tell
}

// setCount is NFTA_SET_COUNT (Linux 6.16), which package unix does not have.
const setCount = 20

// ToldSizes are those of all sets and maps of a table, in the order in which they were made, as far as the kernel tells
// them without being asked for the elements: before 6.16 it does not.
func (n *Nftables) ToldSizes(family corev1.IPFamily, table string) (sizes []NftSize, err error) {
	filter := stringAttr(nil, unix.NFTA_SET_TABLE, table)
	err = n.ask(func() error {
		sizes = sizes[:0]
		return n.s.dump(unix.NFT_MSG_GETSET, nfProtocols[family], filter, func(attrs []byte) error {
			size := NftSize{Elements: -1}
			err := eachAttr(attrs, func(kind uint16, value []byte) {
				switch {
				case kind == unix.NFTA_SET_NAME:
					size.Set = string(cString(value))
				case kind == setCount && len(value) == 4:
					size.Elements = int(binary.BigEndian.Uint32(value))
				}
			})
			sizes = append(sizes, size)
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("sets of %s table %s: %w", family, table, err)
	}
	return sizes, nil
}

// Sizes of all sets and maps of a table, in the order in which they were made. What the kernel does not tell is counted,
// in time that grows faster than the number of elements.
func (n *Nftables) Sizes(family corev1.IPFamily, table string) ([]NftSize, error) {
	sizes, err := n.ToldSizes(family, table)
	for i := range sizes {
		if sizes[i].Elements < 0 && err == nil {
			sizes[i].Elements, err = n.countElements(family, table, sizes[i].Set)
		}
	}
	return sizes, err
}

func (n *Nftables) countElements(family corev1.IPFamily, table, set string) (count int, err error) {
	err = n.ask(func() error {
		count = 0
		return n.s.dumpElements(nfProtocols[family], table, set, func([]byte) error { count++; return nil })
	})
	if err != nil {
		return 0, fmt.Errorf("elements of %s table %s set %s: %w", family, table, set, err)
	}
	return count, nil
}
