package conntrack

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"synclab/proxier/kernel/attr"
)

// The ctnetlink attributes in use, from the kernel's include/uapi/linux/netfilter/nfnetlink_conntrack.h. Their values
// are big-endian unless noted.
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

	nfgenmsg = 4 // bytes: family, version, resource id

	protoUDP = 17
)

var errShort = errors.New("attribute reaches beyond the message")

// entry is a conntrack entry as the kernel sent it.
type entry struct {
	flow  Flow
	proto uint8
	// key holds the raw attributes that identify the entry in a delete request: original tuple, zone, id. They are
	// slices of the message.
	key [][]byte
}

// parseEntry reads the message of one entry. The message starts with its nfgenmsg.
func parseEntry(msg []byte, e *entry) error {
	*e = entry{key: e.key[:0]}
	if len(msg) < nfgenmsg {
		return fmt.Errorf("conntrack entry of %d bytes: %w", len(msg), errShort)
	}
	haveOrig := false
	var torn, bad error
	for a := range attr.All(msg[nfgenmsg:], &torn) {
		switch a.Type {
		case attrTupleOrig:
			haveOrig = true
			e.key = append(e.key, a.Raw)
			bad = parseTuple(a.Value, &e.flow.Src, &e.flow.Dst, &e.proto)
		case attrTupleReply:
			var proto uint8
			bad = parseTuple(a.Value, &e.flow.ReplySrc, &e.flow.ReplyDst, &proto)
		case attrZone:
			if len(a.Value) < 2 {
				bad = errShort
				break
			}
			e.key = append(e.key, a.Raw)
			e.flow.Zone = binary.BigEndian.Uint16(a.Value)
		case attrID:
			if len(a.Value) < 4 {
				bad = errShort
				break
			}
			e.key = append(e.key, a.Raw)
			e.flow.ID = binary.BigEndian.Uint32(a.Value)
		}
		if bad != nil {
			break
		}
	}
	if err := cmp.Or(bad, torn); err != nil {
		return fmt.Errorf("conntrack entry: %w", err)
	}
	if !haveOrig {
		// A delete request without a tuple would empty the whole table.
		return errors.New("conntrack entry: no original tuple")
	}
	return nil
}

// parseTuple reads one direction of an entry.
func parseTuple(tuple []byte, src, dst *netip.AddrPort, proto *uint8) (err error) {
	var srcAddr, dstAddr netip.Addr
	var srcPort, dstPort uint16
	for part := range attr.All(tuple, &err) {
		if part.Type != tupleIP && part.Type != tupleProto {
			continue
		}
		for a := range attr.All(part.Value, &err) {
			switch {
			case part.Type == tupleIP && (a.Type == ipV4Src || a.Type == ipV6Src):
				srcAddr, _ = netip.AddrFromSlice(a.Value)
			case part.Type == tupleIP && (a.Type == ipV4Dst || a.Type == ipV6Dst):
				dstAddr, _ = netip.AddrFromSlice(a.Value)
			case part.Type == tupleProto && a.Type == protoNum && len(a.Value) >= 1:
				*proto = a.Value[0]
			case part.Type == tupleProto && a.Type == protoSrcPort && len(a.Value) >= 2:
				srcPort = binary.BigEndian.Uint16(a.Value)
			case part.Type == tupleProto && a.Type == protoDstPort && len(a.Value) >= 2:
				dstPort = binary.BigEndian.Uint16(a.Value)
			}
		}
	}
	*src, *dst = netip.AddrPortFrom(srcAddr, srcPort), netip.AddrPortFrom(dstAddr, dstPort)
	return err
}

// udpFilter is the body of a dump request for UDP entries only. Kernels before 5.8 ignore the filter attribute and send
// all entries.
func udpFilter() []byte {
	body := attr.Nest(nil, attrTupleOrig, func(b []byte) []byte {
		return attr.Nest(b, tupleProto, func(b []byte) []byte { return attr.Append(b, protoNum, []byte{protoUDP}) })
	})
	return attr.Nest(body, attrFilter, func(b []byte) []byte {
		b = attr.Append(b, filterOrigFlags, binary.NativeEndian.AppendUint32(nil, filterByProtoNum))
		return attr.Append(b, filterReplyFlags, binary.NativeEndian.AppendUint32(nil, 0))
	})
}

// deleteKey is the body of a request to delete an entry.
func deleteKey(key [][]byte) []byte {
	var body []byte
	for _, raw := range key {
		body = append(body, raw...)
		body = append(body, make([]byte, attr.Align(len(raw))-len(raw))...)
	}
	return body
}
