package kernel

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
	"synclab/proxier/kernel/xtables"
)

// ChainRule is a rule with the destination that it matches.
type ChainRule struct {
	Rule
	Addr     netip.Addr // the one address; invalid: any, or more than one
	Protocol byte       // of the IP header; 0: any
	Port     uint16     // of UDP; 0: any, or more than one
}

// ChainRules are the rules of one iptables table, to follow jumps from chain to chain. They belong to the network namespace
// of the thread that opened them. Not safe for concurrent use.
type ChainRules struct {
	family corev1.IPFamily
	table  string
	legacy *Jumps    // a copy of the table; nil: there is none
	nft    *Nftables // read chain by chain; nil: variant legacy
}

// OpenChainRules opens a table of a variant: "legacy" or "nft". A missing table has no rules.
func OpenChainRules(variant string, family corev1.IPFamily, table string) (*ChainRules, error) {
	l := &ChainRules{family: family, table: table}
	var err error
	if variant == "nft" {
		l.nft, err = OpenNftables()
		return l, err
	}
	err = read(variant, family, nil, func(tables *LegacyTables) (err error) {
		l.legacy, err = tables.jumps(family, table, nil)
		return err
	})
	return l, err
}

// Close closes the socket, or frees the copy.
func (l *ChainRules) Close() {
	l.legacy.Close()
	if l.nft != nil {
		l.nft.Close()
	}
}

// Of returns the rules of a user-defined chain, in order; none when there is no such chain.
func (l *ChainRules) Of(chain string) (rules []ChainRule, err error) {
	if l.nft != nil {
		return chainRules(l.nft, l.family, l.table, chain, chainRuleOf)
	}
	l.legacy.each(chain, func(e xtables.Entry) {
		rule := ChainRule{Rule: l.legacy.rule(e)}
		rule.destination(l.legacy.table.Wire, e)
		rules = append(rules, rule)
	})
	return rules, nil
}

// Bits of an entry's inversions, and of those of match udp.
const (
	invertedDestination = 0x10 // IPT_INV_DSTIP
	invertedProtocol    = 0x40 // XT_INV_PROTO
	invertedPort        = 0x02 // XT_UDP_INV_DSTPT
)

// destination reads the destination from an entry of a legacy table.
func (l *ChainRule) destination(w *xtables.Wire, e xtables.Entry) {
	inverted := e.Bytes[w.Inversions]
	addr, mask := e.Bytes[w.Addr:2*w.Addr], e.Bytes[3*w.Addr:4*w.Addr]
	if inverted&invertedDestination == 0 && len(bytes.Trim(mask, "\xff")) == 0 {
		l.Addr, _ = netip.AddrFromSlice(addr)
	}
	if inverted&invertedProtocol == 0 {
		l.Protocol = byte(binary.NativeEndian.Uint16(e.Bytes[w.Protocol:]))
	}
	eachMatch(e, w, func(name string, body []byte) {
		if name == "udp" {
			l.udp(body)
		}
	})
}

// udp reads the match of that name: u16 source ports[2], destination ports[2], in the host's byte order; u8 inversions.
func (l *ChainRule) udp(match []byte) {
	if len(match) < 9 || match[8]&invertedPort != 0 {
		return
	}
	if first, last := binary.NativeEndian.Uint16(match[4:]), binary.NativeEndian.Uint16(match[6:]); first == last {
		l.Port = first
	}
}

func chainRuleOf(attrs []byte, family corev1.IPFamily) (ChainRule, error) {
	r := chainRuleReader{ruleReader: ruleReader{addrSize: addrSizes[family]}, loaded: map[uint32]part{}, addrAt: 16}
	if family == corev1.IPv6Protocol {
		r.addrAt = 24
	}
	err := eachExpression(attrs, r.expression)
	r.to.Rule = r.rule
	return r.to, err
}

// chainRuleReader also finds the destination that a rule matches: parts of the packet that are loaded and compared, or an
// xtables match. Newer iptables write the former, older ones the latter for ports.
type chainRuleReader struct {
	ruleReader
	to     ChainRule
	loaded map[uint32]part // by register
	addrAt uint32          // where the destination begins in the IP header
}

// part of a packet.
type part struct {
	base, offset, size uint32
}

// protocolPart stands for the protocol number behind all IP headers.
var protocolPart = part{base: ^uint32(0)}

func (r *chainRuleReader) expression(name string, body []byte) error {
	if err := r.ruleReader.expression(name, body); err != nil {
		return err
	}
	values := map[uint16]uint32{}
	switch name {
	case "payload", "meta", "cmp":
		var err error
		for a := range attr.All(body, &err) {
			values[a.Type] = a.Uint32()
		}
		if err != nil {
			return err
		}
	}
	switch name {
	case "payload":
		r.loaded[values[unix.NFTA_PAYLOAD_DREG]] = part{values[unix.NFTA_PAYLOAD_BASE], values[unix.NFTA_PAYLOAD_OFFSET], values[unix.NFTA_PAYLOAD_LEN]}
	case "meta":
		r.loaded[values[unix.NFTA_META_DREG]] = part{}
		if values[unix.NFTA_META_KEY] == unix.NFT_META_L4PROTO {
			r.loaded[values[unix.NFTA_META_DREG]] = protocolPart
		}
	case "cmp":
		what := r.loaded[values[unix.NFTA_CMP_SREG]]
		if values[unix.NFTA_CMP_OP] != unix.NFT_CMP_EQ {
			return nil
		}
		return inside(body, unix.NFTA_CMP_DATA, func(data []byte) error {
			return inside(data, unix.NFTA_DATA_VALUE, func(value []byte) error { r.compared(what, value); return nil })
		})
	case "match":
		return r.match(body)
	case "bitwise", "byteorder", "immediate", "lookup":
		clear(r.loaded) // the registers contain no part of the packet any more
	}
	return nil
}

// compared records that a part of the packet must have this value.
func (r *chainRuleReader) compared(what part, value []byte) {
	switch what {
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, r.addrAt, uint32(r.addrSize)}:
		r.to.Addr, _ = netip.AddrFromSlice(value)
	case part{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}:
		if len(value) == 2 {
			r.to.Port = binary.BigEndian.Uint16(value)
		}
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}, protocolPart:
		// In an IPv6 header, this byte is no protocol.
		if len(value) == 1 && (what == protocolPart || r.addrSize == 4) {
			r.to.Protocol = value[0]
		}
	}
}

func (r *chainRuleReader) match(body []byte) error {
	name := ""
	var data []byte
	var err error
	for a := range attr.All(body, &err) {
		switch a.Type {
		case unix.NFTA_MATCH_NAME:
			name = a.Text()
		case unix.NFTA_MATCH_INFO:
			data = a.Value
		}
	}
	if name == "udp" {
		r.to.udp(data)
	}
	return err
}
