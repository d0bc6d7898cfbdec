package conntrack

import (
	"encoding/binary"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/attr"
)

// message returns the kernel's message for an entry, with an attribute in the middle that parseEntry does not use.
func message(f Flow, proto uint8) []byte {
	tuple := func(typ uint16, f Flow) []byte {
		srcType, dstType := uint16(nl.CTA_IP_V4_SRC), uint16(nl.CTA_IP_V4_DST)
		if f.Src.Addr().Is6() {
			srcType, dstType = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
		}
		ip := attr.Append(nil, srcType, f.Src.Addr().AsSlice())
		ip = attr.Append(ip, dstType, f.Dst.Addr().AsSlice())
		l4 := attr.Append(nil, nl.CTA_PROTO_NUM, []byte{proto})
		l4 = attr.Append(l4, nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, f.Src.Port()))
		l4 = attr.Append(l4, nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, f.Dst.Port()))
		body := attr.Append(nil, nl.CTA_TUPLE_IP|unix.NLA_F_NESTED, ip)
		return attr.Append(nil, typ|unix.NLA_F_NESTED, attr.Append(body, nl.CTA_TUPLE_PROTO|unix.NLA_F_NESTED, l4))
	}
	msg := []byte{2, 0, 0, 0}
	msg = append(msg, tuple(nl.CTA_TUPLE_ORIG, f)...)
	msg = attr.Append(msg, 3, []byte{0, 0, 0, 8}) // status
	msg = append(msg, tuple(nl.CTA_TUPLE_REPLY, Flow{Src: f.ReplySrc, Dst: f.ReplyDst})...)
	msg = attr.Append(msg, nl.CTA_ZONE, binary.BigEndian.AppendUint16(nil, f.Zone))
	return attr.Append(msg, nl.CTA_ID, binary.BigEndian.AppendUint32(nil, f.ID))
}

func TestParseEntry(t *testing.T) {
	v4 := flow("10.96.0.10:53", "10.1.0.1:5353")
	v4.Zone, v4.ID = 7, 4242
	v6 := Flow{Src: ap("[fd00::1]:1"), Dst: ap("[fd00::a]:53"), ReplySrc: ap("[fd01::1]:53"), ReplyDst: ap("[fd00::1]:1")}
	var e entry
	for _, want := range []Flow{v4, v6} {
		msg := message(want, unix.IPPROTO_UDP)
		if err := parseEntry(msg, &e); err != nil {
			t.Fatal(err)
		}
		if e.flow != want || e.proto != unix.IPPROTO_UDP || len(e.key) != 3 {
			t.Errorf("parsed %+v, protocol %d, %d keys; want %+v, 17, 3", e.flow, e.proto, len(e.key), want)
		}
		// The delete key must parse as the same entry.
		var again entry
		if err := parseEntry(append([]byte{2, 0, 0, 0}, deleteKey(e.key)...), &again); err != nil {
			t.Fatal(err)
		}
		if again.flow.Src != want.Src || again.flow.Dst != want.Dst || again.flow.ID != want.ID || again.flow.Zone != want.Zone {
			t.Errorf("the delete request names %+v, want %+v", again.flow, want)
		}
	}
	if err := parseEntry([]byte{2, 0, 0, 0}, &e); err == nil {
		t.Error("an entry without a tuple was accepted; deleting it would empty the table")
	}
	if err := parseEntry(message(v4, unix.IPPROTO_UDP)[:30], &e); err == nil {
		t.Error("a message cut short was accepted")
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(message(flow("10.96.0.10:53", "10.1.0.1:53"), unix.IPPROTO_UDP))
	f.Add([]byte{2, 0, 0, 0, 4, 0, 1, 128})
	f.Fuzz(func(t *testing.T, msg []byte) {
		var e entry
		if err := parseEntry(msg, &e); err == nil && len(deleteKey(e.key)) == 0 {
			t.Error("an entry without a key would empty the table")
		}
	})
}

func BenchmarkStale(b *testing.B) {
	msg := message(flow("10.96.0.10:53", "10.1.0.1:53"), unix.IPPROTO_UDP)
	want := Expectation{Serving: map[Frontend]Endpoints{frontend("10.96.0.10:53"): NewEndpoints(ap("10.1.0.1:53"))}}
	var e entry
	b.ReportAllocs()
	for b.Loop() {
		if err := parseEntry(msg, &e); err != nil || want.Stale(e.flow) {
			b.Fatal(err)
		}
	}
}
