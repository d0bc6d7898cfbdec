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
	t, err := readLegacy(family, table)
	if err != nil || t == nil {
		return l, err
	}
	l.legacy = &Jumps{table: t, chains: map[string]int{}}
	err = t.EachEntry(func(e xtables.Entry) {
		if head := e.Head(); head != nil {
			l.legacy.chains[string(head)] = e.At + len(e.Bytes)
		}
	})
	if err != nil {
		l.Close()
	}
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
func (l *ChainRules) Of(chain string) ([]ChainRule, error) {
	if l.nft != nil {
		return l.nft.rules(l.family, l.table, chain)
	}
	if l.legacy == nil {
		return nil, nil
	}
	at, there := l.legacy.chains[chain]
	if !there {
		return nil, nil
	}
	var rules []ChainRule
	for t := l.legacy.table; at < len(t.Entries); {
		e, err := t.Wire.EntryAt(t.Entries, at)
		if err != nil {
			return nil, err
		}
		if e.Head() != nil { // of the next chain, or the table's end
			return rules[:max(0, len(rules)-1)], nil // the last entry of a chain returns: it is no rule
		}
		at += len(e.Bytes)
		rule := ChainRule{Rule: l.legacy.rule(e)}
		rule.destination(t.Wire, e.Bytes[:len(e.Bytes)-len(e.Target)])
		rules = append(rules, rule)
	}
	return rules, nil
}

// Bits of an entry's inversions, and of those of match udp.
const (
	invertedDestination = 0x10 // IPT_INV_DSTIP
	invertedProtocol    = 0x40 // XT_INV_PROTO
	invertedPort        = 0x02 // XT_UDP_INV_DSTPT
)

// destination reads the destination from an entry of a legacy table, without its target.
func (l *ChainRule) destination(w *xtables.Wire, entry []byte) {
	inverted := entry[w.Inversions]
	addr, mask := entry[w.Addr:2*w.Addr], entry[3*w.Addr:4*w.Addr]
	if inverted&invertedDestination == 0 && len(bytes.Trim(mask, "\xff")) == 0 {
		l.Addr, _ = netip.AddrFromSlice(addr)
	}
	if inverted&invertedProtocol == 0 {
		l.Protocol = byte(binary.NativeEndian.Uint16(entry[w.Protocol:]))
	}
	for matches := entry[w.Entry:]; len(matches) >= xtables.Header; {
		size := int(binary.NativeEndian.Uint16(matches))
		if size < xtables.Header || size > len(matches) {
			return
		}
		if string(xtables.CString(matches[2:2+xtables.ExtensionName])) == "udp" {
			l.udp(matches[xtables.Header:size])
		}
		matches = matches[size:]
	}
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

// rules reads the rules of a chain.
func (n *Nftables) rules(family corev1.IPFamily, table, chain string) (rules []ChainRule, err error) {
	filter := attr.AppendText(nil, unix.NFTA_RULE_TABLE, table)
	filter = attr.AppendText(filter, unix.NFTA_RULE_CHAIN, chain)
	err = n.ask(func() error {
		rules = rules[:0]
		return n.s.dump(unix.NFT_MSG_GETRULE, nfProtocols[family], filter, func(attrs []byte) error {
			rule, err := ruleOf(attrs, nfProtocols[family])
			if err != nil {
				return err
			}
			r := chainRuleReader{rule: ChainRule{Rule: rule}, loaded: map[uint32]part{}, addrSize: 4, addrAt: 16}
			if family == corev1.IPv6Protocol {
				r.addrSize, r.addrAt = 16, 24
			}
			err = inside(attrs, unix.NFTA_RULE_EXPRESSIONS, func(list []byte) error {
				return inside(list, unix.NFTA_LIST_ELEM, r.expression)
			})
			rules = append(rules, r.rule)
			return err
		})
	})
	return rules, err
}

// chainRuleReader finds the destination that a rule matches: parts of the packet that are loaded and compared, or an xtables
// match. Newer iptables write the former, older ones the latter for ports.
type chainRuleReader struct {
	rule             ChainRule
	loaded           map[uint32]part // by register
	addrSize, addrAt uint32          // of the destination, in the IP header
}

// part of a packet.
type part struct {
	base, offset, size uint32
}

// protocolPart stands for the protocol number behind all IP headers.
var protocolPart = part{base: ^uint32(0)}

func (r *chainRuleReader) expression(expression []byte) error {
	name, body, err := expressionOf(expression)
	if err != nil {
		return err
	}
	values := map[uint16]uint32{}
	switch name {
	case "payload", "meta", "cmp":
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
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, r.addrAt, r.addrSize}:
		r.rule.Addr, _ = netip.AddrFromSlice(value)
	case part{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}:
		if len(value) == 2 {
			r.rule.Port = binary.BigEndian.Uint16(value)
		}
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}, protocolPart:
		// In an IPv6 header, this byte is no protocol.
		if len(value) == 1 && (what == protocolPart || r.addrSize == 4) {
			r.rule.Protocol = value[0]
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
		r.rule.udp(data)
	}
	return err
}
