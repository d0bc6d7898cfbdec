package conntrack

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"synclab/proxier/kernel/attr"
)

// message returns the kernel's message for an entry, with an attribute in the middle that parseEntry does not use.
func message(f Flow, proto uint8) []byte {
	tuple := func(typ uint16, f Flow) []byte {
		srcType, dstType := uint16(ipV4Src), uint16(ipV4Dst)
		if f.Src.Addr().Is6() {
			srcType, dstType = ipV6Src, ipV6Dst
		}
		ip := attr.Append(nil, srcType, f.Src.Addr().AsSlice())
		ip = attr.Append(ip, dstType, f.Dst.Addr().AsSlice())
		l4 := attr.Append(nil, protoNum, []byte{proto})
		l4 = attr.Append(l4, protoSrcPort, binary.BigEndian.AppendUint16(nil, f.Src.Port()))
		l4 = attr.Append(l4, protoDstPort, binary.BigEndian.AppendUint16(nil, f.Dst.Port()))
		body := attr.Append(nil, tupleIP|unix.NLA_F_NESTED, ip)
		return attr.Append(nil, typ|unix.NLA_F_NESTED, attr.Append(body, tupleProto|unix.NLA_F_NESTED, l4))
	}
	msg := []byte{2, 0, 0, 0}
	msg = append(msg, tuple(attrTupleOrig, f)...)
	msg = attr.Append(msg, 3, []byte{0, 0, 0, 8}) // status
	msg = append(msg, tuple(attrTupleReply, Flow{Src: f.ReplySrc, Dst: f.ReplyDst})...)
	msg = attr.Append(msg, attrZone, binary.BigEndian.AppendUint16(nil, f.Zone))
	return attr.Append(msg, attrID, binary.BigEndian.AppendUint32(nil, f.ID))
}

func TestParseEntry(t *testing.T) {
	v4 := flow("10.96.0.10:53", "10.1.0.1:5353")
	v4.Zone, v4.ID = 7, 4242
	v6 := Flow{Src: ap("[fd00::1]:1"), Dst: ap("[fd00::a]:53"), ReplySrc: ap("[fd01::1]:53"), ReplyDst: ap("[fd00::1]:1")}
	var e entry
	for _, want := range []Flow{v4, v6} {
		msg := message(want, protoUDP)
		if err := parseEntry(msg, &e); err != nil {
			t.Fatal(err)
		}
		if e.flow != want || e.proto != protoUDP || len(e.key) != 3 {
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
	if err := parseEntry(message(v4, protoUDP)[:30], &e); err == nil {
		t.Error("a message cut short was accepted")
	}
}

func FuzzParseEntry(f *testing.F) {
	f.Add(message(flow("10.96.0.10:53", "10.1.0.1:53"), protoUDP))
	f.Add([]byte{2, 0, 0, 0, 4, 0, 1, 128})
	f.Fuzz(func(t *testing.T, msg []byte) {
		var e entry
		if err := parseEntry(msg, &e); err == nil && len(deleteKey(e.key)) == 0 {
			t.Error("an entry without a key would empty the table")
		}
	})
}

func BenchmarkStale(b *testing.B) {
	msg := message(flow("10.96.0.10:53", "10.1.0.1:53"), protoUDP)
	want := Expectation{Serving: map[Frontend]Endpoints{frontend("10.96.0.10:53"): NewEndpoints(ap("10.1.0.1:53"))}}
	var e entry
	b.ReportAllocs()
	for b.Loop() {
		if err := parseEntry(msg, &e); err != nil || want.Stale(e.flow) {
			b.Fatal(err)
		}
	}
}
