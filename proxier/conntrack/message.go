package conntrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// The attributes of ctnetlink that matter here, from the kernel's
// include/uapi/linux/netfilter/nfnetlink_conntrack.h. Values inside them are
// big-endian unless noted.
const (
	attrTupleOrig  = 1
	attrTupleReply = 2
	attrID         = 12
	attrZone       = 18
	attrFilter     = 25 // Linux 5.8

	tupleIP    = 1
	tupleProto = 2

	ipV4Src = 1
	ipV4Dst = 2
	ipV6Src = 3
	ipV6Dst = 4

	protoNum     = 1
	protoSrcPort = 2
	protoDstPort = 3

	filterOrigFlags  = 1 // host byte order
	filterReplyFlags = 2 // host byte order
	// filterByProtoNum is the kernel's CTA_FILTER_F_CTA_PROTO_NUM
	// (net/netfilter/nf_internals.h): compare the protocol and nothing else.
	filterByProtoNum = 1 << 3

	nested   = 1 << 15
	typeMask = 0x3fff // without the nested and the byte order flag

	attrHeader = 4 // bytes: length and type
	nfgenmsg   = 4 // bytes: family, version, resource id

	protoUDP = 17
)

var errShort = errors.New("attribute reaches beyond the message")

// entry is a conntrack entry as the kernel sent it.
type entry struct {
	flow  Flow
	proto uint8
	// key holds the raw attributes that name the entry in a delete request:
	// original tuple, zone, id. They point into the message.
	key [][]byte
}

// parseEntry reads the message of one entry, which starts with its nfgenmsg.
func parseEntry(msg []byte, e *entry) error {
	*e = entry{key: e.key[:0]}
	if len(msg) < nfgenmsg {
		return fmt.Errorf("conntrack entry of %d bytes: %w", len(msg), errShort)
	}
	haveOrig := false
	err := eachAttr(msg[nfgenmsg:], func(typ uint16, raw, value []byte) error {
		switch typ {
		case attrTupleOrig:
			haveOrig = true
			e.key = append(e.key, raw)
			return parseTuple(value, &e.flow.Src, &e.flow.Dst, &e.proto)
		case attrTupleReply:
			var proto uint8
			return parseTuple(value, &e.flow.ReplySrc, &e.flow.ReplyDst, &proto)
		case attrZone:
			if len(value) < 2 {
				return errShort
			}
			e.key = append(e.key, raw)
			e.flow.Zone = binary.BigEndian.Uint16(value)
		case attrID:
			if len(value) < 4 {
				return errShort
			}
			e.key = append(e.key, raw)
			e.flow.ID = binary.BigEndian.Uint32(value)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("conntrack entry: %w", err)
	}
	if !haveOrig {
		// A delete request without a tuple would empty the whole table.
		return errors.New("conntrack entry: no original tuple")
	}
	return nil
}

// parseTuple reads one direction of an entry.
func parseTuple(tuple []byte, src, dst *netip.AddrPort, proto *uint8) error {
	var srcAddr, dstAddr netip.Addr
	var srcPort, dstPort uint16
	err := eachAttr(tuple, func(typ uint16, _, value []byte) error {
		switch typ {
		case tupleIP:
			return eachAttr(value, func(typ uint16, _, value []byte) error {
				switch typ {
				case ipV4Src, ipV6Src:
					srcAddr, _ = netip.AddrFromSlice(value)
				case ipV4Dst, ipV6Dst:
					dstAddr, _ = netip.AddrFromSlice(value)
				}
				return nil
			})
		case tupleProto:
			return eachAttr(value, func(typ uint16, _, value []byte) error {
				switch {
				case typ == protoNum && len(value) >= 1:
					*proto = value[0]
				case typ == protoSrcPort && len(value) >= 2:
					srcPort = binary.BigEndian.Uint16(value)
				case typ == protoDstPort && len(value) >= 2:
					dstPort = binary.BigEndian.Uint16(value)
				}
				return nil
			})
		}
		return nil
	})
	*src, *dst = netip.AddrPortFrom(srcAddr, srcPort), netip.AddrPortFrom(dstAddr, dstPort)
	return err
}

// eachAttr calls visit with each netlink attribute in b: its type without
// flags, the raw attribute without padding, and its value. Lengths and types of
// netlink headers are in host byte order.
func eachAttr(b []byte, visit func(typ uint16, raw, value []byte) error) error {
	for len(b) >= attrHeader {
		length := int(binary.NativeEndian.Uint16(b))
		if length < attrHeader || length > len(b) {
			return errShort
		}
		typ := binary.NativeEndian.Uint16(b[2:]) & typeMask
		if err := visit(typ, b[:length], b[attrHeader:length]); err != nil {
			return err
		}
		b = b[min(padded(length), len(b)):]
	}
	return nil
}

// appendAttr appends an attribute and its padding to b.
func appendAttr(b []byte, typ uint16, value []byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(value)))
	b = binary.NativeEndian.AppendUint16(b, typ)
	b = append(b, value...)
	return append(b, make([]byte, padded(len(value))-len(value))...)
}

// padded rounds a length up to netlink's alignment of 4 bytes.
func padded(n int) int { return (n + 3) &^ 3 }

// udpFilter is the body of a dump request for UDP entries only. A kernel older
// than 5.8 does not know the filter attribute and sends all entries.
func udpFilter() []byte {
	proto := appendAttr(nil, protoNum, []byte{protoUDP})
	tuple := appendAttr(nil, tupleProto|nested, proto)
	flags := appendAttr(nil, filterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterByProtoNum))
	flags = appendAttr(flags, filterReplyFlags, binary.NativeEndian.AppendUint32(nil, 0))
	body := appendAttr(nil, attrTupleOrig|nested, tuple)
	return appendAttr(body, attrFilter|nested, flags)
}

// deleteKey is the body of a request to delete an entry.
func deleteKey(key [][]byte) []byte {
	var body []byte
	for _, raw := range key {
		body = append(body, raw...)
		body = append(body, make([]byte, padded(len(raw))-len(raw))...)
	}
	return body
}
