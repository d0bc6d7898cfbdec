package nftables

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"synclab/proxier/kernel/attr"
)

// messages parses a batch as the kernel would: each message fills its length, and attributes are whole.
func messages(t testing.TB, batch []byte, yield func(kind, flags uint16, attrs [][]byte)) {
	t.Helper()
	for len(batch) > 0 {
		if len(batch) < headerSize {
			t.Fatalf("%d bytes are left", len(batch))
		}
		length := int(binary.NativeEndian.Uint32(batch))
		if length < headerSize+nfgenSize || length > len(batch) || length%4 != 0 {
			t.Fatalf("message of %d bytes in %d", length, len(batch))
		}
		body, sum := batch[headerSize+nfgenSize:length], 0
		attrs := attrsOf(body)
		for _, a := range attrs {
			sum += attr.HeaderSize + attr.Align(len(a))
		}
		if sum != len(body) {
			t.Fatalf("attributes of %d bytes in %d", sum, len(body))
		}
		yield(binary.NativeEndian.Uint16(batch[4:]), binary.NativeEndian.Uint16(batch[6:]), attrs)
		batch = batch[length:]
	}
}

// Whatever the number of elements, and wherever transactions are split, each element arrives once and in order.
func FuzzElements(f *testing.F) {
	f.Add(uint16(5000), uint32(0), true)
	f.Add(uint16(5000), uint32(5000), false)
	f.Fuzz(func(t *testing.T, n uint16, limit uint32, v6 bool) {
		family := corev1.IPv4Protocol
		if v6 {
			family = corev1.IPv6Protocol
		}
		key, value := setEndpoints.keyLen(family), setEndpoints.valueLen(family)
		var elements, have []byte
		for i := range int(n%8192) * (key + value) {
			elements = append(elements, byte(i*7+i>>8))
		}
		e := newEncoder(family, "synclab", func(batch []byte, _, _ uint32) error {
			inside, acks := false, 0
			messages(t, batch, func(kind, flags uint16, attrs [][]byte) {
				switch kind {
				case unix.NFNL_MSG_BATCH_BEGIN, unix.NFNL_MSG_BATCH_END:
					inside = !inside
					return
				}
				if !inside || len(attrs) != 3 || attr.Text(attrs[0]) != "synclab" || attr.Text(attrs[1]) != "endpoints" {
					t.Fatalf("message %x with %d attributes", kind, len(attrs))
				}
				if flags&unix.NLM_F_ACK != 0 {
					acks++
				}
				for _, element := range attrsOf(attrs[2]) {
					parts := attrsOf(element)
					have = append(have, attrsOf(parts[0])[0]...)
					have = append(have, attrsOf(parts[1])[0]...)
				}
			})
			if inside || acks != 1 {
				t.Fatalf("%d acknowledgements; batch open: %v", acks, inside)
			}
			return nil
		})
		e.limit = int(limit % (1 << 18))
		e.add(setEndpoints, elements)
		if err := e.commit(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(have, elements) {
			t.Errorf("%d bytes of elements arrived, not %d", len(have), len(elements))
		}
	})
}

// attrsOf returns the values of the attributes of a message, in order.
func attrsOf(b []byte) (values [][]byte) {
	var torn error
	for a := range attr.All(b, &torn) {
		values = append(values, a.Value)
	}
	return values
}
