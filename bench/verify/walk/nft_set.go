package walk

import (
	"bytes"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// Flags that package unix does not have (include/uapi/linux/netfilter/nf_tables.h).
const (
	setConcat        = 0x80
	setDescConcat    = 2
	setFieldLength   = 1
	elementKeyEnd    = 0xa
	elementCatchall  = 0x2
	setsKnownFlags   = unix.NFT_SET_ANONYMOUS | unix.NFT_SET_CONSTANT | unix.NFT_SET_INTERVAL | unix.NFT_SET_MAP | unix.NFT_SET_TIMEOUT | unix.NFT_SET_EVAL | setConcat
	registerWordSize = 4
)

// nftSet is a set or a map of nf_tables with its elements.
type nftSet struct {
	name string
	// keySize and valueSize in bytes. A set that is no map has no value.
	keySize, valueSize int
	// verdicts: a map of verdicts.
	verdicts bool
	// ranges: keys are intervals. In a concatenation, each field has a separate interval.
	ranges bool
	// fields are the sizes of the parts of a concatenation, without padding; nil without concatenation or without
	// ranges.
	fields []int

	table  *nftTable
	number int32 // among all sets, as the key of client state

	listed []nftElement // in order of arrival
	// byKey is used when keys are single values, intervals when they are not.
	byKey     map[string]*nftElement
	intervals []nftElement
	catchall  *nftElement
}

type nftElement struct {
	key, keyEnd attributes // keyEnd: the last key, inclusive; of concatenations of intervals
	end         bool       // of an interval: this key is the first one behind it
	catchall    bool
	data        attributes // value of a map
	verdict     namedVerdict
	target      nftVerdict // compiled
}

func (n *nftables) newSet(f fields) error {
	name, flags := f.text(unix.NFTA_SET_NAME), f.number(unix.NFTA_SET_FLAGS)
	if unknown := flags &^ setsKnownFlags; unknown != 0 {
		return fmt.Errorf("set %s: flags %#x are %w", name, unknown, errNotKnown)
	}
	s := nftSet{
		name: name, keySize: int(f.number(unix.NFTA_SET_KEY_LEN)), valueSize: int(f.number(unix.NFTA_SET_DATA_LEN)),
		verdicts: f.number(unix.NFTA_SET_DATA_TYPE) == unix.NFT_DATA_VERDICT, ranges: flags&unix.NFT_SET_INTERVAL != 0,
	}
	if s.verdicts || flags&unix.NFT_SET_MAP == 0 {
		s.valueSize = 0
	}
	desc, err := f[unix.NFTA_SET_DESC].table()
	if err == nil {
		s.fields, err = readFields(desc[setDescConcat])
	}
	if err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	n.addSet(f.text(unix.NFTA_SET_TABLE), s)
	return nil
}

// addSet adds a set or a map, unless it exists.
func (n *nftables) addSet(table string, s nftSet) *nftSet {
	t := n.table(table)
	if t.sets[s.name] == nil {
		s.table, s.number = t, int32(len(n.sets))
		t.sets[s.name] = &s
		n.sets = append(n.sets, &s)
	}
	return t.sets[s.name]
}

// readFields parses the sizes of the parts of a concatenation.
func readFields(list attributes) (sizes []int, err error) {
	err = list.each(func(_ uint16, field attributes) error {
		f, err := field.table()
		sizes = append(sizes, int(f.number(setFieldLength)))
		return err
	})
	return sizes, err
}

func (n *nftables) newElements(f fields) error {
	table, name := f.text(unix.NFTA_SET_ELEM_LIST_TABLE), f.text(unix.NFTA_SET_ELEM_LIST_SET)
	s, err := n.table(table).setNamed(name)
	if err != nil {
		return fmt.Errorf("table %s: elements: %w", table, err)
	}
	err = f[unix.NFTA_SET_ELEM_LIST_ELEMENTS].each(func(_ uint16, element attributes) error {
		e, err := readElement(element)
		s.listed = append(s.listed, e)
		return err
	})
	if err != nil {
		return fmt.Errorf("table %s: set %s: %w", table, name, err)
	}
	return nil
}

func readElement(element attributes) (e nftElement, err error) {
	f, err := element.table()
	if err != nil {
		return e, err
	}
	if _, there := f[unix.NFTA_SET_ELEM_OBJREF]; there {
		return e, fmt.Errorf("elements that name objects are %w", errNotKnown)
	}
	flags := f.number(unix.NFTA_SET_ELEM_FLAGS)
	e.end, e.catchall = flags&unix.NFT_SET_ELEM_INTERVAL_END != 0, flags&elementCatchall != 0
	value := func(kind uint16) (attributes, error) {
		inside, err := f[kind].table()
		return slices.Clone(inside[unix.NFTA_DATA_VALUE]), err
	}
	if e.key, err = value(unix.NFTA_SET_ELEM_KEY); err != nil {
		return e, err
	}
	if e.keyEnd, err = value(elementKeyEnd); err != nil {
		return e, err
	}
	data, err := f[unix.NFTA_SET_ELEM_DATA].table()
	if err != nil {
		return e, err
	}
	e.data = slices.Clone(data[unix.NFTA_DATA_VALUE])
	e.verdict, err = readVerdict(data[unix.NFTA_DATA_VERDICT])
	return e, err
}

// compile prepares the set for lookups, once all chains exist.
func (s *nftSet) compile() error {
	s.byKey, s.intervals, s.catchall = make(map[string]*nftElement, len(s.listed)), nil, nil
	for i := range s.listed {
		e := &s.listed[i]
		if s.verdicts && !e.end {
			target, err := s.table.resolve(e.verdict)
			if err != nil {
				return fmt.Errorf("element %x: %w", e.key, err)
			}
			e.target = target
		}
		switch {
		case e.catchall:
			s.catchall = e
		case s.ranges:
			s.intervals = append(s.intervals, *e)
		case len(e.key) != s.keySize:
			return fmt.Errorf("element %x: a key of %d bytes, not %d", e.key, len(e.key), s.keySize)
		default:
			s.byKey[string(e.key)] = e
		}
	}
	if s.ranges && len(s.fields) < 2 {
		s.closeIntervals()
	}
	return nil
}

// closeIntervals makes intervals of beginnings and ends. A beginning's interval reaches to the next end or beginning,
// or to the last possible key.
func (s *nftSet) closeIntervals() {
	// An end sorts before a beginning of the same key.
	slices.SortStableFunc(s.intervals, func(a, b nftElement) int {
		if c := bytes.Compare(a.key, b.key); c != 0 || a.end == b.end {
			return c
		} else if a.end {
			return -1
		}
		return 1
	})
	var closed []nftElement
	for i, e := range s.intervals {
		if e.end {
			continue
		}
		if len(e.keyEnd) == 0 {
			e.keyEnd = bytes.Repeat([]byte{0xff}, s.keySize)
			if i+1 < len(s.intervals) {
				e.keyEnd = before(s.intervals[i+1].key)
			}
		}
		closed = append(closed, e)
	}
	s.intervals = closed
}

// before returns the key before another one, which is not the first.
func before(key attributes) attributes {
	key = slices.Clone(key)
	for i := len(key) - 1; i >= 0; i-- {
		key[i]--
		if key[i] != 0xff {
			break
		}
	}
	return key
}

// find looks a key up in the set's own elements.
func (s *nftSet) find(key []byte) *nftElement {
	if !s.ranges {
		if e, there := s.byKey[string(key)]; there {
			return e
		}
		return s.catchall
	}
	for i := range s.intervals {
		if e := &s.intervals[i]; s.inside(e, key) {
			return e
		}
	}
	return s.catchall
}

// inside compares field by field: each field of a concatenation has a separate interval.
func (s *nftSet) inside(e *nftElement, key []byte) bool {
	end := e.keyEnd
	if len(end) == 0 {
		end = e.key
	}
	fields := s.fields
	if len(fields) == 0 {
		fields = []int{s.keySize}
	}
	at := 0
	for _, size := range fields {
		if at+size > len(key) || at+size > len(e.key) || at+size > len(end) {
			return false
		}
		if bytes.Compare(key[at:at+size], e.key[at:at+size]) < 0 || bytes.Compare(key[at:at+size], end[at:at+size]) > 0 {
			return false
		}
		at += (size + registerWordSize - 1) &^ (registerWordSize - 1)
	}
	return true
}
