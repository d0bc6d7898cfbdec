package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/backend"
)

// reg returns a register by its word of 32 bits, reg(0) to reg(15). The kernel refuses to read a register that the same
// rule did not write, so every rule loads what it needs.
func reg(word int) uint32 { return unix.NFT_REG32_00 + uint32(word) }

// registers are the words that rules use to pick an endpoint. Keys and values overlap in them, so no rule has to move a
// value. Rules that only test something, and keys of frontends, begin at word 0. This is the layout for IPv4, from top to
// bottom as a packet goes on:
//
//	word                 0      1      2      3      4      5      6      7      8
//	frontends   key      daddr  proto  dport
//	            value    blank  class  ·····
//	nodeports   key             proto  dport
//	            value    blank  class  ·····
//	refused     key      daddr  proto  dport
//	            value           blank  refusal
//	classes     key             class  ·····
//	lists       key      daddr  proto  dport  class  ·····
//	            value                  blank  id     ·····
//	affinity    key                    saddr  id     ·····
//	            value                                       slot   daddr  port
//	members     key                           id     ·····  list   daddr  port
//	endpoints   key                           id     ·····  slot
//	            value                                              daddr  port
//
// Where the client is remembered, the value of endpoints is one word further right, behind a blank: blank and target are
// the new value of affinity. An IPv6 address takes four words, so the ID is in words 6 and 7, and the target begins at
// word 9. The ID overwrites the class, and nft prints the class in its place: see docs/design/nftables-table.md.
type registers struct {
	class     int // of frontends, behind a blank
	refusal   int // of refused Services and external addresses, behind a blank
	nodePort  int // the key of nodeports, and the class, behind a blank
	behind    int // the destination address, behind these
	listClass int // in the key of lists, behind the frontend
	client    int // the key of affinity: an address, then the ID
	id        int // of lists, behind a blank: begins the keys of members and endpoints
	slot      int // ends the key of endpoints
	target    int // of endpoints: an address, then a port
}

func registersOf(addrWords int) registers {
	id := addrWords + 2
	return registers{class: addrWords, refusal: addrWords + 1, nodePort: 1, behind: 4, listClass: id, client: id - addrWords, id: id, slot: id + 2, target: id + 3}
}

// Conntrack's bits (enum ip_conntrack_info, ip_conntrack_status), as ct loads them: in the machine's byte order.
const (
	ctInvalid, ctEstablished, ctRelated, ctNew, ctUntracked = 1, 2, 4, 8, 1 << 6
	ctStatusDNAT                                            = 1 << 5
)

// opDelete of dynset (NFT_DYNSET_OP_DELETE, Linux 5.1); x/sys does not have it.
const opDelete = 2

// rules makes the expressions of one family's rules.
type rules struct {
	backend.Settings
	words int // of an address
	at    registers
}

func newRules(s backend.Settings) *rules {
	words := addrLen(s.Family) / 4
	return &rules{s, words, registersOf(words)}
}

func (r *rules) family() byte {
	if r.Family == corev1.IPv6Protocol {
		return unix.NFPROTO_IPV6
	}
	return unix.NFPROTO_IPV4
}

// Offsets in the IP header.
func (r *rules) saddr(word int) expr.Any { return r.address(word, 12, 8) }
func (r *rules) daddr(word int) expr.Any { return r.address(word, 16, 24) }

func (r *rules) address(word int, v4, v6 uint32) expr.Any {
	offset := v4
	if !r.IPv4() {
		offset = v6
	}
	return &expr.Payload{DestRegister: reg(word), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(4 * r.words)}
}

func protocol(word int) expr.Any {
	return &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg(word)}
}

func dport(word int) expr.Any {
	return &expr.Payload{DestRegister: reg(word), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func value(word int, data []byte) expr.Any { return &expr.Immediate{Register: reg(word), Data: data} }

// zeros fills registers before the kernel loads a value there: nft must see a load. See docs/design/nftables-table.md.
func zeros(word, bytes int) expr.Any { return value(word, make([]byte, bytes)) }

func lookup(s set, key int) expr.Any {
	return &expr.Lookup{SourceRegister: reg(key), SetName: s.String()}
}

// find loads a value. Where the next key begins with the value, it begins one word later, behind the blank: see
// docs/design/nftables-table.md.
func find(s set, key, value int) expr.Any {
	return &expr.Lookup{SourceRegister: reg(key), SetName: s.String(), DestRegister: reg(value), IsDestRegSet: true}
}

// goOn continues with the verdict from a map.
func goOn(s set, key int) expr.Any {
	return &expr.Lookup{SourceRegister: reg(key), SetName: s.String(), DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true}
}

func to(kind expr.VerdictKind, chain string) expr.Any { return &expr.Verdict{Kind: kind, Chain: chain} }

func jumpTo(chain string) expr.Any { return to(expr.VerdictJump, chain) }

func equal(word int, data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: reg(word), Data: data}
}

func unequal(word int, data []byte) expr.Any {
	return &expr.Cmp{Op: expr.CmpOpNeq, Register: reg(word), Data: data}
}

// compare is equal or unequal.
func compare(word int, data []byte, same bool) expr.Any {
	if same {
		return equal(word, data)
	}
	return unequal(word, data)
}

func native(v uint32) []byte { return binary.NativeEndian.AppendUint32(nil, v) }

// frontend loads the key of a frontend: destination address, protocol and port.
func (r *rules) frontend() []expr.Any {
	return []expr.Any{r.daddr(0), protocol(r.words), dport(r.words + 1)}
}

// nodePort loads the key of a NodePort in lists: a frontend with the unspecified address.
func (r *rules) nodePort() []expr.Any {
	return []expr.Any{value(0, make([]byte, 4*r.words)), protocol(r.words), dport(r.words + 1)}
}

// ctState matches packets in one of some states, or in none of them.
func ctState(bits uint32, in bool) []expr.Any { return ctBits(expr.CtKeySTATE, bits, in) }

// ctDNAT matches packets of flows whose destination was translated, or was not.
func ctDNAT(translated bool) []expr.Any { return ctBits(expr.CtKeySTATUS, ctStatusDNAT, translated) }

func ctBits(key expr.CtKey, bits uint32, in bool) []expr.Any {
	return []expr.Any{&expr.Ct{Key: key, Register: reg(0)}, mask(0, native(bits)), compare(0, native(0), !in)}
}

// mask keeps the bits of data.
func mask(word int, data []byte) expr.Any {
	return &expr.Bitwise{SourceRegister: reg(word), DestRegister: reg(word), Len: uint32(len(data)), Mask: data, Xor: make([]byte, len(data))}
}

// prefix matches a loaded address inside or outside of a prefix.
func prefix(word int, p netip.Prefix, within bool) []expr.Any {
	addr, bits := p.Masked().Addr().AsSlice(), make([]byte, p.Addr().BitLen()/8)
	for i := range p.Bits() {
		bits[i/8] |= 0x80 >> (i % 8)
	}
	return []expr.Any{mask(word, bits), compare(word, addr, within)}
}

// local matches packets whose source or destination is an address of the node.
func local(source bool) []expr.Any {
	return []expr.Any{
		&expr.Fib{Register: reg(0), ResultADDRTYPE: true, FlagSADDR: source, FlagDADDR: !source},
		equal(0, native(unix.RTN_LOCAL)),
	}
}

// pod matches packets of this node's pods, or all others. Only where Settings.Local is known.
func (r *rules) pod(in bool) []expr.Any {
	if r.Local.Source.IsValid() {
		return append([]expr.Any{r.saddr(0)}, prefix(0, r.Local.Source, in)...)
	}
	name := []byte(r.Local.InterfacePrefix) // the first bytes of the name
	if r.Local.Interface != "" {
		name = make([]byte, unix.IFNAMSIZ)
		copy(name, r.Local.Interface)
	}
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: reg(0)}, compare(0, name, in)}
}

// setMark sets the bit of the masquerade mark and keeps the others.
func (r *rules) setMark() []expr.Any { return r.changeMark(1 << r.MasqueradeBit) }

// clearMark clears the mark, or another network stack on the packet's way would masquerade it again.
func (r *rules) clearMark() []expr.Any { return r.changeMark(0) }

func (r *rules) changeMark(bit uint32) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0)},
		&expr.Bitwise{SourceRegister: reg(0), DestRegister: reg(0), Len: 4, Mask: native(^uint32(1 << r.MasqueradeBit)), Xor: native(bit)},
		&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0), SourceRegister: true},
	}
}

// marked matches packets that carry the masquerade mark.
func (r *rules) marked() []expr.Any {
	bit := native(1 << r.MasqueradeBit)
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyMARK, Register: reg(0)}, mask(0, bit), equal(0, bit)}
}

// masquerade with random source ports: two connections must not race for one (k/k#76699).
func (r *rules) masquerade() expr.Any { return &expr.Masq{FullyRandom: true} }

// reject answers with port unreachable, as iptables' REJECT does.
func (r *rules) reject() expr.Any {
	code := uint8(3) // ICMP_PORT_UNREACH
	if !r.IPv4() {
		code = 4 // ICMPV6_PORT_UNREACH
	}
	return &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: code}
}

// dnat translates the destination to a target that was loaded.
func (r *rules) dnat(target int) expr.Any {
	return &expr.NAT{
		Type: expr.NATTypeDestNAT, Family: uint32(r.family()), Specified: true,
		RegAddrMin: reg(target), RegProtoMin: reg(target + r.words),
	}
}
