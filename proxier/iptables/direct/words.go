package direct

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"unsafe"
)

// words are what is left of a rule.
type words struct{ rest []byte }

// next gives the next word, without the quotes around it; nil when there is none.
func (w *words) next() ([]byte, error) {
	for len(w.rest) > 0 && w.rest[0] == ' ' {
		w.rest = w.rest[1:]
	}
	if len(w.rest) == 0 {
		return nil, nil
	}
	if w.rest[0] != '"' {
		end := bytes.IndexByte(w.rest, ' ')
		if end < 0 {
			end = len(w.rest)
		}
		word := w.rest[:end]
		w.rest = w.rest[end:]
		return word, nil
	}
	end := bytes.IndexByte(w.rest[1:], '"')
	if end < 0 {
		return nil, errors.New("a quote is not closed")
	}
	word := w.rest[1 : end+1]
	if w.rest = w.rest[end+2:]; len(w.rest) > 0 && w.rest[0] != ' ' || bytes.IndexByte(word, '\\') >= 0 {
		return nil, fmt.Errorf("quotes within a word: %q", word)
	}
	return word, nil
}

// value gives the word that an option needs.
func (w *words) value(option string) ([]byte, error) {
	word, err := w.next()
	if err == nil && word == nil {
		err = fmt.Errorf("%s: no value", option)
	}
	return word, err
}

// text is a word as a string, for as long as the payload is there.
func text(word []byte) string { return unsafe.String(unsafe.SliceData(word), len(word)) }

func number(word []byte, bits int) (uint64, error) {
	n, err := strconv.ParseUint(text(word), 0, bits)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number of %d bits", word, bits)
	}
	return n, nil
}

// masked reads "value/mask"; without a mask all bits count.
func masked(word []byte) (value, mask uint32, err error) {
	before, after, both := bytes.Cut(word, []byte{'/'})
	v, err := number(before, 32)
	if err != nil || !both {
		return uint32(v), math.MaxUint32, err
	}
	m, err := number(after, 32)
	return uint32(v), uint32(m), err
}

// portRange reads "port" or "first:last".
func portRange(word []byte) (first, last uint16, err error) {
	before, after, both := bytes.Cut(word, []byte{':'})
	f, err := number(before, 16)
	if err != nil || !both {
		return uint16(f), uint16(f), err
	}
	l, err := number(after, 16)
	if err == nil && l < f {
		err = fmt.Errorf("ports %s: the last comes before the first", word)
	}
	return uint16(f), uint16(l), err
}

// probability reads a fraction into the kernel's 31 bits.
func probability(word []byte) (uint32, error) {
	p, err := strconv.ParseFloat(text(word), 64)
	if err != nil || !(p >= 0 && p <= 1) {
		return 0, fmt.Errorf("%q is not a probability", word)
	}
	return uint32(math.Round(p * (1 << 31))), nil
}

// address reads "address" or "address/bits" of a family whose addresses have so many bits.
func address(word []byte, bits int) (netip.Prefix, error) {
	before, after, both := bytes.Cut(word, []byte{'/'})
	addr, err := netip.ParseAddr(text(before))
	if err != nil || addr.BitLen() != bits || addr.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("%q is not an address of %d bits", before, bits)
	}
	if !both {
		return netip.PrefixFrom(addr, bits), nil
	}
	n, err := strconv.ParseUint(text(after), 10, 8)
	if err != nil || int(n) > bits {
		return netip.Prefix{}, fmt.Errorf("%q: the mask has at most %d bits", word, bits)
	}
	return netip.PrefixFrom(addr, int(n)).Masked(), nil
}

// endpoint reads "address:port", IPv6 addresses in brackets.
func endpoint(word []byte, bits int) (netip.AddrPort, error) {
	to, err := netip.ParseAddrPort(text(word))
	if err != nil || to.Addr().BitLen() != bits || to.Addr().Zone() != "" || to.Port() == 0 {
		return to, fmt.Errorf("%q is not an address and a port", word)
	}
	return to, nil
}
