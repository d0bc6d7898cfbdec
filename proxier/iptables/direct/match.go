package direct

import (
	"bytes"
	"fmt"
)

// kind is a match that the layouts use.
type kind int

const (
	comment kind = iota
	tcp
	udp
	sctp
	addrtype
	conntrack
	mark
	statistic
	recent
	nfacct
	bpf
	kinds
)

// matches: size of what follows the header, and whether a rule may leave all options out.
var matches = [kinds]struct {
	name     string
	size     int
	revision uint8
	bare     bool
}{
	comment:   {"comment", 256, 0, false},
	tcp:       {"tcp", 12, 0, true},
	udp:       {"udp", 10, 0, true},
	sctp:      {"sctp", 292, 0, true},
	addrtype:  {"addrtype", 8, 1, false},
	conntrack: {"conntrack", 164, 3, false},
	mark:      {"mark", 12, 1, false},
	statistic: {"statistic", 24, 0, false},
	recent:    {"recent", 228, 1, false},
	nfacct:    {"nfacct", 40, 0, false}, // see revisions
	bpf:       {"bpf", 528, 0, false},   // see revisions
}

func kindOf(name []byte) (kind, bool) {
	for k := range matches {
		if matches[k].name == string(name) {
			return kind(k), true
		}
	}
	return 0, false
}

// match appends a match, as it is without any option.
func (r *rule) match() error {
	name, err := r.words.value("-m")
	if err != nil {
		return err
	}
	k, ok := kindOf(name)
	if !ok {
		return fmt.Errorf("match %q is none that is known here", name)
	}
	if r.matches[k] != 0 {
		return fmt.Errorf("match %s twice", name)
	}
	m := &matches[k]
	revision := m.revision
	switch k {
	case nfacct:
		revision = r.revisions.nfacct
	case bpf:
		revision = r.revisions.bpf
	}
	at, err := r.extension(m.name, m.size, revision)
	if err != nil {
		return err
	}
	r.matches[k], r.wanting[k] = at, !m.bare
	switch k {
	case tcp, udp: // u16 source ports[2], destination ports[2]
		r.block.put16(at+2, 0xffff)
		r.block.put16(at+6, 0xffff)
	case sctp: // four u8 chunk types, each of three bytes: none
		for i := range 4 {
			r.block.put8(at+268+3*i, 0xff)
		}
	case recent: // by source address (side 0), all bits of it
		mask := r.block.entries[at+recentMask:][:16]
		for i := range mask {
			mask[i] = 0xff
		}
	}
	return nil
}

// option takes an option of a match that came before.
func (r *rule) option(word string) error {
	switch word {
	case "--comment":
		return r.comment()
	case "--sport", "--dport":
		return r.ports(word)
	case "--src-type", "--dst-type":
		return r.addrtype(word)
	case "--ctstate":
		return r.ctstate()
	case "--mark":
		return r.mark()
	case "--mode", "--probability":
		return r.statistic(word)
	case "--name", "--seconds", "--rcheck", "--set", "--reap":
		return r.recent(word)
	case "--nfacct-name":
		return r.nfacct()
	case "--bytecode":
		return r.bytecode()
	}
	return fmt.Errorf("%q is no word that is known here", word)
}

// open gives the offset of a match whose option comes.
func (r *rule) open(k kind, option string, invertible bool) (int, error) {
	if r.matches[k] == 0 {
		return 0, fmt.Errorf("%s without -m %s", option, matches[k].name)
	}
	if r.inverse && !invertible {
		return 0, fmt.Errorf("! before %s", option)
	}
	return r.matches[k], nil
}

// valueOf gives the offset of a match and the value of its option.
func (r *rule) valueOf(k kind, option string, invertible bool) (at int, value []byte, err error) {
	if at, err = r.open(k, option, invertible); err == nil {
		value, err = r.words.value(option)
	}
	return at, value, err
}

// put writes a name that must leave room for a zero.
func (r *rule) put(at, size int, what string, name []byte) error {
	if len(name) >= size || len(name) == 0 || bytes.IndexByte(name, 0) >= 0 {
		return fmt.Errorf("%s %q: want 1 to %d characters", what, name, size-1)
	}
	copy(r.block.entries[at:], name)
	return nil
}

func (r *rule) comment() error {
	at, value, err := r.valueOf(comment, "--comment", false)
	if err != nil {
		return err
	}
	r.wanting[comment] = false
	return r.put(at, 256, "comment", value)
}

// portInversions are the offsets of their inversion flags.
var portInversions = [...]int{tcp: 11, udp: 8, sctp: 288}

// ports: struct xt_tcp and xt_udp begin with the source's, struct xt_sctp_info with the destination's.
func (r *rule) ports(option string) error {
	k := tcp
	for k <= sctp && r.matches[k] == 0 {
		k++
	}
	if k > sctp {
		return fmt.Errorf("%s without -m tcp, udp or sctp", option)
	}
	at, value, err := r.valueOf(k, option, true)
	if err != nil {
		return err
	}
	first, last, err := portRange(value)
	if err != nil {
		return err
	}
	destination := option[2] == 'd'
	bit, offset := byte(1), 0
	if destination {
		bit = 2
	}
	if destination != (k == sctp) {
		offset = 4
	}
	r.block.put16(at+offset, first)
	r.block.put16(at+offset+2, last)
	if k == sctp {
		r.block.entries[at+284] |= bit // u32 flags say what is asked for
	}
	if r.inverse {
		r.block.entries[at+portInversions[k]] |= bit
	}
	return nil
}

// typeLocal is 1 << RTN_LOCAL.
const typeLocal = 1 << 2

// addrtype: struct xt_addrtype_info_v1: u16 source, u16 dest, u32 flags.
func (r *rule) addrtype(option string) error {
	at, value, err := r.valueOf(addrtype, option, true)
	if err != nil {
		return err
	}
	if string(value) != "LOCAL" {
		return fmt.Errorf("%s %q: want LOCAL", option, value)
	}
	which := 0
	if option[2] == 'd' {
		which = 1
	}
	r.block.put16(at+2*which, typeLocal)
	if r.inverse {
		r.block.entries[at+4] |= 1 << which
	}
	r.wanting[addrtype] = false
	return nil
}

// states are the bits of struct xt_conntrack_mtinfo3's state_mask, in the order in which iptables prints them.
var states = []struct {
	name string
	bit  uint16
}{{"INVALID", 1 << 0}, {"NEW", 1 << 3}, {"RELATED", 1 << 2}, {"ESTABLISHED", 1 << 1}, {"UNTRACKED", 1 << 8}, {"SNAT", 1 << 6}, {"DNAT", 1 << 7}}

// ctstate: match_flags, invert_flags and state_mask of struct xt_conntrack_mtinfo3.
func (r *rule) ctstate() error {
	at, value, err := r.valueOf(conntrack, "--ctstate", true)
	if err != nil {
		return err
	}
	var mask uint16
	for name := range bytes.SplitSeq(value, []byte{','}) {
		before := mask
		for _, s := range states {
			if s.name == string(name) {
				mask |= s.bit
			}
		}
		if mask == before {
			return fmt.Errorf("--ctstate %s: %q is no state, or there twice", value, name)
		}
	}
	const state = 1 << 0
	r.block.put16(at+146, state)
	if r.inverse {
		r.block.put16(at+148, state)
	}
	r.block.put16(at+150, mask)
	r.wanting[conntrack] = false
	return nil
}

// mark: struct xt_mark_mtinfo1: u32 mark, u32 mask, u8 invert.
func (r *rule) mark() error {
	at, value, err := r.valueOf(mark, "--mark", true)
	if err != nil {
		return err
	}
	v, mask, err := masked(value)
	if err != nil {
		return err
	}
	r.block.put32(at, v)
	r.block.put32(at+4, mask)
	if r.inverse {
		r.block.put8(at+8, 1)
	}
	r.wanting[mark] = false
	return nil
}

// statistic: struct xt_statistic_info: u16 mode (0: random), u16 flags, u32 probability in units of 2^-31.
func (r *rule) statistic(option string) error {
	at, value, err := r.valueOf(statistic, option, false)
	if err != nil {
		return err
	}
	if option == "--mode" {
		if string(value) != "random" {
			return fmt.Errorf("--mode %q: want random", value)
		}
		return nil
	}
	p, err := probability(value)
	if err != nil {
		return err
	}
	r.block.put32(at+4, p)
	r.block.put32(at+12, p) // of no use; iptables does so, too
	r.wanting[statistic] = false
	return nil
}

// recent: struct xt_recent_mtinfo_v1: u32 seconds, u32 hit_count, u8 check_set, u8 invert, name[200], u8 side, and,
// aligned to 4, the mask of addresses.
const (
	recentFlags = 8
	recentName  = 10
	recentMask  = 212
)

func (r *rule) recent(option string) error {
	at, err := r.open(recent, option, false)
	if err != nil {
		return err
	}
	switch option {
	case "--rcheck":
		r.block.entries[at+recentFlags] |= 1 << 0
		r.wanting[recent] = false
	case "--set":
		r.block.entries[at+recentFlags] |= 1 << 1
		r.wanting[recent] = false
	case "--reap":
		r.block.entries[at+recentFlags] |= 1 << 5
	case "--name":
		value, err := r.words.value("--name")
		if err != nil {
			return err
		}
		return r.put(at+recentName, 200, "--name", value)
	case "--seconds":
		value, err := r.words.value("--seconds")
		if err != nil {
			return err
		}
		seconds, err := number(value, 32)
		if err != nil {
			return err
		}
		r.block.put32(at, uint32(seconds))
	}
	return nil
}

// nfacct: the name of an object, then a pointer that is the kernel's.
func (r *rule) nfacct() error {
	at, value, err := r.valueOf(nfacct, "--nfacct-name", false)
	if err != nil {
		return err
	}
	r.wanting[nfacct] = false
	return r.put(at, 32, "--nfacct-name", value)
}
