package kernel

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/xtables"
)

// Lead is a rule with what it asks of a packet's destination.
type Lead struct {
	Rule
	Addr     netip.Addr // the one address; invalid: any, or more than one
	Protocol byte       // of the IP header; 0: any
	Port     uint16     // of UDP; 0: any, or more than one
}

// Leads are the rules of one table of iptables, to be followed from chain to chain. It belongs to the network namespace of
// the thread that opened it. Not safe for concurrent use.
type Leads struct {
	family corev1.IPFamily
	table  string
	legacy *Jumps    // a copy of the table; nil: there is none
	nft    *Nftables // asked chain by chain; nil: variant legacy
}

// OpenLeads opens a table of a variant: "legacy" or "nft". A table that is not there holds nothing.
func OpenLeads(variant string, family corev1.IPFamily, table string) (*Leads, error) {
	l := &Leads{family: family, table: table}
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

// Close closes the socket, or gives the copy's memory back.
func (l *Leads) Close() {
	l.legacy.Close()
	if l.nft != nil {
		l.nft.Close()
	}
}

// Of gives the rules of a user-defined chain, in order; none when there is no such chain.
func (l *Leads) Of(chain string) ([]Lead, error) {
	if l.nft != nil {
		return l.nft.leads(l.family, l.table, chain)
	}
	if l.legacy == nil {
		return nil, nil
	}
	at, there := l.legacy.chains[chain]
	if !there {
		return nil, nil
	}
	var leads []Lead
	for t := l.legacy.table; at < len(t.Entries); {
		e, err := t.Wire.EntryAt(t.Entries, at)
		if err != nil {
			return nil, err
		}
		if e.Head() != nil { // of the next chain, or the table's end
			return leads[:max(0, len(leads)-1)], nil // behind the rules, a chain returns
		}
		at += len(e.Bytes)
		lead := Lead{Rule: l.legacy.rule(e)}
		lead.destination(t.Wire, e.Bytes[:len(e.Bytes)-len(e.Target)])
		leads = append(leads, lead)
	}
	return leads, nil
}

// Bits of an entry's inversions, and of those of match udp.
const (
	invertedDestination = 0x10 // IPT_INV_DSTIP
	invertedProtocol    = 0x40 // XT_INV_PROTO
	invertedPort        = 0x02 // XT_UDP_INV_DSTPT
)

// destination reads an entry of the legacy tables, without its target.
func (l *Lead) destination(w *xtables.Wire, entry []byte) {
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
func (l *Lead) udp(match []byte) {
	if len(match) < 9 || match[8]&invertedPort != 0 {
		return
	}
	if first, last := binary.NativeEndian.Uint16(match[4:]), binary.NativeEndian.Uint16(match[6:]); first == last {
		l.Port = first
	}
}

// leads reads the rules of a chain.
func (n *Nftables) leads(family corev1.IPFamily, table, chain string) (leads []Lead, err error) {
	filter := stringAttr(nil, unix.NFTA_RULE_TABLE, table)
	filter = stringAttr(filter, unix.NFTA_RULE_CHAIN, chain)
	err = n.ask(func() error {
		leads = leads[:0]
		return n.s.dump(unix.NFT_MSG_GETRULE, nfProtocols[family], filter, func(attrs []byte) error {
			rule, err := ruleOf(attrs, nfProtocols[family])
			if err != nil {
				return err
			}
			r := leadReader{lead: Lead{Rule: rule}, loaded: map[uint32]part{}, addrSize: 4, addrAt: 16}
			if family == corev1.IPv6Protocol {
				r.addrSize, r.addrAt = 16, 24
			}
			err = inside(attrs, unix.NFTA_RULE_EXPRESSIONS, func(list []byte) error {
				return inside(list, unix.NFTA_LIST_ELEM, r.expression)
			})
			leads = append(leads, r.lead)
			return err
		})
	})
	return leads, err
}

// leadReader reads what a rule asks of the destination: parts of the packet that are loaded and compared, or a match of
// xtables. Newer iptables write the former, older ones the latter for ports.
type leadReader struct {
	lead             Lead
	loaded           map[uint32]part // by register
	addrSize, addrAt uint32          // of the destination, in the IP header
}

// part of a packet.
type part struct {
	base, offset, size uint32
}

// protocolPart stands for the number of the protocol behind all headers of IP.
var protocolPart = part{base: ^uint32(0)}

func (r *leadReader) expression(expression []byte) error {
	name, body, err := expressionOf(expression)
	if err != nil {
		return err
	}
	values := map[uint16]uint32{}
	switch string(name) {
	case "payload", "meta", "cmp":
		if err := eachAttr(body, func(kind uint16, value []byte) { values[kind] = number(value) }); err != nil {
			return err
		}
	}
	switch string(name) {
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
		clear(r.loaded) // no part of the packet any more
	}
	return nil
}

// compared: a part of the packet has this value.
func (r *leadReader) compared(what part, value []byte) {
	switch what {
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, r.addrAt, r.addrSize}:
		r.lead.Addr, _ = netip.AddrFromSlice(value)
	case part{unix.NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2}:
		if len(value) == 2 {
			r.lead.Port = binary.BigEndian.Uint16(value)
		}
	case part{unix.NFT_PAYLOAD_NETWORK_HEADER, 9, 1}, protocolPart:
		// Of IPv6, what stands there is none.
		if len(value) == 1 && (what == protocolPart || r.addrSize == 4) {
			r.lead.Protocol = value[0]
		}
	}
}

func (r *leadReader) match(body []byte) error {
	var name, data []byte
	err := eachAttr(body, func(kind uint16, value []byte) {
		switch kind {
		case unix.NFTA_MATCH_NAME:
			name = cString(value)
		case unix.NFTA_MATCH_INFO:
			data = value
		}
	})
	if string(name) == "udp" {
		r.lead.udp(data)
	}
	return err
}
