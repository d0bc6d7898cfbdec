package kernel

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// tableHandle is NFTA_TABLE_HANDLE, which package unix does not have.
const tableHandle = 4

// Element returns the element of a set or a map with this key; false when there is none. Each field of the key begins
// at a multiple of 4. The time does not depend on the size of the set.
func (n *Nftables) Element(family corev1.IPFamily, table, set string, key []byte) (e NftElement, ok bool, err error) {
	request := attr.AppendText(nil, unix.NFTA_SET_ELEM_LIST_TABLE, table)
	request = attr.AppendText(request, unix.NFTA_SET_ELEM_LIST_SET, set)
	request = append(request, keyAttrs(key)...)
	err = n.ask(mostTries, func() error {
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

// Table returns the handle of a table; false when there is none. A newer table has a larger handle.
func (n *Nftables) Table(family corev1.IPFamily, table string) (handle uint64, ok bool, err error) {
	err = n.ask(mostTries, func() error {
		return n.s.one(unix.NFT_MSG_GETTABLE, nfProtocols[family], attr.AppendText(nil, unix.NFTA_TABLE_NAME, table), func(attrs []byte) error {
			ok = true
			var err error
			for a := range attr.All(attrs, &err) {
				if a.Type == tableHandle && len(a.Value) == 8 {
					handle = binary.BigEndian.Uint64(a.Value)
				}
			}
			return err
		})
	})
	if err != nil {
		return 0, false, fmt.Errorf("%s table %s: %w", family, table, err)
	}
	return handle, ok, nil
}

// keyAttrs encodes a list of one element as attributes: the list contains an element, that a key, that its value.
func keyAttrs(key []byte) []byte {
	b := attr.Append(nil, unix.NFTA_DATA_VALUE, key)
	for _, kind := range []uint16{unix.NFTA_SET_ELEM_KEY, unix.NFTA_LIST_ELEM, unix.NFTA_SET_ELEM_LIST_ELEMENTS} {
		b = attr.Append(nil, kind|unix.NLA_F_NESTED, b)
	}
	return b
}

// RulesByChain returns the number of rules in each chain of a table; none when there is no such table.
func (n *Nftables) RulesByChain(family corev1.IPFamily, table string) (tally map[string]int, err error) {
	if tally, err = n.tally(family, table, mostTries); err != nil {
		return nil, fmt.Errorf("rules of %s table %s by chain: %w", family, table, err)
	}
	return tally, nil
}

func (n *Nftables) tally(family corev1.IPFamily, table string, tries int) (tally map[string]int, err error) {
	err = n.ask(tries, func() error {
		tally = map[string]int{}
		return n.s.eachChain(family, table, func(c Chain, rules int) { tally[c.Name] = rules })
	})
	return tally, err
}

// NftSize is how many elements a set or a map has.
type NftSize struct {
	Set      string
	Elements int // -1: the kernel does not report it
}

// setCount is NFTA_SET_COUNT (Linux 6.16), which package unix does not have. Expired elements count until the kernel
// collects them.
const setCount = 20

// ReportedSizes returns the sizes of all sets and maps of a table, in the order of their creation. It reads only the sizes
// that the kernel reports without a dump of the elements: before Linux 6.16, none.
func (n *Nftables) ReportedSizes(family corev1.IPFamily, table string) ([]NftSize, error) {
	return n.sizes(family, table, false)
}

// Sizes is ReportedSizes, but where the kernel reports no size, it counts the elements. That takes the square of their
// number: for each part of the answer the kernel walks through the set from its beginning.
func (n *Nftables) Sizes(family corev1.IPFamily, table string) ([]NftSize, error) {
	return n.sizes(family, table, true)
}

func (n *Nftables) sizes(family corev1.IPFamily, table string, count bool) (sizes []NftSize, err error) {
	err = n.ask(mostTries, func() error {
		sizes, err = n.s.sizes(family, table, count)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sets of %s table %s: %w", family, table, err)
	}
	return sizes, nil
}

func (s *socket) sizes(family corev1.IPFamily, table string, count bool) (sizes []NftSize, err error) {
	filter := attr.AppendText(nil, unix.NFTA_SET_TABLE, table)
	err = s.dump(unix.NFT_MSG_GETSET, nfProtocols[family], filter, func(attrs []byte) error {
		size := NftSize{Elements: -1}
		var err error
		for a := range attr.All(attrs, &err) {
			switch {
			case a.Type == unix.NFTA_SET_NAME:
				size.Set = a.Text()
			case a.Type == setCount && len(a.Value) == 4:
				size.Elements = int(a.Uint32())
			}
		}
		sizes = append(sizes, size)
		return err
	})
	for i := range sizes {
		if count && sizes[i].Elements < 0 && err == nil {
			sizes[i].Elements, err = s.countElements(family, table, sizes[i].Set)
		}
	}
	return sizes, err
}

func (s *socket) countElements(family corev1.IPFamily, table, set string) (count int, err error) {
	err = s.dumpElements(nfProtocols[family], table, set, func([]byte) error { count++; return nil })
	return count, err
}
