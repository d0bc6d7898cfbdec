package conntrack

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/attr"
)

// What package nl lacks of the kernel's include/uapi/linux/netfilter/nfnetlink_conntrack.h.
const (
	attrFilter = 25 // Linux 5.8

	filterOrigFlags  = 1 // host byte order
	filterReplyFlags = 2 // host byte order
	// filterByProtoNum is the kernel's CTA_FILTER_F_CTA_PROTO_NUM
	// (net/netfilter/nf_internals.h): compare the protocol and nothing else.
	filterByProtoNum = 1 << 3
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
	if len(msg) < nl.SizeofNfgenmsg {
		return fmt.Errorf("conntrack entry of %d bytes: %w", len(msg), errShort)
	}
	haveOrig := false
	var torn, bad error
	for a := range attr.All(msg[nl.SizeofNfgenmsg:], &torn) {
		switch a.Type {
		case nl.CTA_TUPLE_ORIG:
			haveOrig = true
			e.key = append(e.key, a.Raw)
			bad = parseTuple(a.Value, &e.flow.Src, &e.flow.Dst, &e.proto)
		case nl.CTA_TUPLE_REPLY:
			var proto uint8
			bad = parseTuple(a.Value, &e.flow.ReplySrc, &e.flow.ReplyDst, &proto)
		case nl.CTA_ZONE:
			if len(a.Value) < 2 {
				bad = errShort
				break
			}
			e.key = append(e.key, a.Raw)
			e.flow.Zone = binary.BigEndian.Uint16(a.Value)
		case nl.CTA_ID:
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
		if part.Type != nl.CTA_TUPLE_IP && part.Type != nl.CTA_TUPLE_PROTO {
			continue
		}
		for a := range attr.All(part.Value, &err) {
			switch {
			case part.Type == nl.CTA_TUPLE_IP && (a.Type == nl.CTA_IP_V4_SRC || a.Type == nl.CTA_IP_V6_SRC):
				srcAddr, _ = netip.AddrFromSlice(a.Value)
			case part.Type == nl.CTA_TUPLE_IP && (a.Type == nl.CTA_IP_V4_DST || a.Type == nl.CTA_IP_V6_DST):
				dstAddr, _ = netip.AddrFromSlice(a.Value)
			case part.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_NUM && len(a.Value) >= 1:
				*proto = a.Value[0]
			case part.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_SRC_PORT && len(a.Value) >= 2:
				srcPort = binary.BigEndian.Uint16(a.Value)
			case part.Type == nl.CTA_TUPLE_PROTO && a.Type == nl.CTA_PROTO_DST_PORT && len(a.Value) >= 2:
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
	body := attr.Nest(nil, nl.CTA_TUPLE_ORIG, func(b []byte) []byte {
		return attr.Nest(b, nl.CTA_TUPLE_PROTO, func(b []byte) []byte { return attr.Append(b, nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP}) })
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
